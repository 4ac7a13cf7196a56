"""What is asked of the kernel by the ethtool ioctl; the machine itself answers in the lab."""

import errno
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


TABLE = struct.pack("=2I", 1, 0)


@pytest.mark.parametrize(
    ("attributes", "input_xfrm"),
    [({6: 2}, 2), ({6: 1}, 1), ({}, 0)],
    ids=["symmetric-or-xor", "symmetric-xor", "the kernel leaves zero out"],
)
def test_the_transformation_of_the_hashs_input_is_read(
    attributes: dict[int, int], input_xfrm: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {number: memoryview(struct.pack("=I", value)) for number, value in ({3: 1} | attributes).items()}
    answer = numbers | {4: memoryview(TABLE), 5: memoryview(b"key")}
    monkeypatch.setattr(ethtool, "exchange", lambda *_: answer)
    assert ethtool.read_rss("eth0") == ethtool.Rss(b"key", [1, 0], "toeplitz", input_xfrm)


def test_the_transformation_of_the_hashs_input_is_read_by_ioctl(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    answer = struct.pack("=IIIIBB6x", 0x46, 0, 2, 3, 1, 2) + TABLE + b"key"
    monkeypatch.setattr(ethtool, "exchange", absent)
    monkeypatch.setattr(ethtool, "ioctl", lambda _, command: answer[: len(command)])
    assert ethtool.read_rss("eth0") == ethtool.Rss(b"key", [1, 0], "toeplitz", 2)


@pytest.mark.parametrize(
    ("stated", "firmware"),
    [
        (b"22.41.1000 (MT_359)", "22.41.1000 (MT_359)"),
        (b"3.25, 0x800005cc ", "3.25, 0x800005cc"),
        (b"N/A", None),
        (b"", None),
    ],
)
def test_the_firmware_is_what_the_driver_states(
    stated: bytes, firmware: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = struct.pack("=I32s32s32s32s32s12x5I", 3, b"igb", b"6.12", stated, b"0000:3b:00.0", b"", 0, 0, 0, 0, 0)
    monkeypatch.setattr(ethtool, "ioctl", lambda _, command: info if len(command) == len(info) else b"")
    assert ethtool.read_firmware("eth0") == firmware


def test_a_device_without_a_driver_states_no_firmware() -> None:
    assert ethtool.read_firmware("lo") is None
