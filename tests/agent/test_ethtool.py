"""What is asked of the kernel by the ethtool ioctl; the machine itself answers in the lab."""

import struct

import pytest

from coresteer_agent.linux import ethtool


def test_an_rss_table_is_written_without_ending_a_symmetric_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def answer(_: str, command: bytes) -> bytes:
        asked.append(command)
        return command[:17] + b"\x01" + command[18:]

    monkeypatch.setattr(ethtool, "ioctl", answer)
    ethtool.set_rss("eth0", [2, 3])
    assert struct.unpack("=IIIIBB6x2I", asked[-1]) == (0x47, 0, 2, 0, 0, 1, 2, 3)
