import socket
from pathlib import Path

import pytest

from coresteer.systemd import notify_ready


@pytest.mark.parametrize("is_abstract", [False, True])
def test_systemd_is_told_that_the_backend_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_abstract: bool
) -> None:
    name = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name}" if is_abstract else name)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if is_abstract else name)
        notify_ready()
        assert systemd.recv(100) == b"READY=1"


def test_without_systemd_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify_ready()
