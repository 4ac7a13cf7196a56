"""systemd's readiness protocol, sd_notify(3)."""

import os
import socket


def notify_ready() -> None:
    """Tell systemd, if it started this program with Type=notify, that it serves now."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"READY=1", f"\0{address[1:]}" if address.startswith("@") else address)
