"""One Ethernet for several guests: a bridge and taps in a separate network namespace."""

import contextlib
import ctypes
import fcntl
import os
import struct
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.lab.provision import Kit, LabUnavailableError

_CLONE_NEWNET = 0x4000_0000
_TUNSETIFF, _TUNSETQUEUE = 0x4004_54CA, 0x4004_54D9
_IFF_ATTACH_QUEUE = 0x0200
_IFF_TAP, _IFF_NO_PI, _IFF_MULTI_QUEUE, _IFF_VNET_HDR = 0x0002, 0x1000, 0x0100, 0x4000


@contextlib.contextmanager
def bridge(kit: Kit, queues: list[int]) -> Iterator[list[list[int]]]:
    """Yield the descriptors of one tap per guest, one per queue. Raises LabUnavailableError without root.

    A tap stays in the namespace that it was made in, so QEMU, which gets the descriptor, need not enter it.
    """
    if os.geteuid() != 0:
        raise LabUnavailableError("The bridge between guests needs root.")
    ip = partial(_ip, kit)
    namespace = f"coresteer-lab-{os.getpid()}"
    opened: list[list[int]] = []
    ip("netns", "add", namespace)
    try:
        ip("-n", namespace, "link", "add", "bridge", "type", "bridge")
        ip("-n", namespace, "link", "set", "bridge", "up")
        for number, count in enumerate(queues):
            opened.append(_within(namespace, f"tap{number}", count))
            ip("-n", namespace, "link", "set", f"tap{number}", "master", "bridge", "up")
        yield opened
    finally:
        for descriptor in [fd for fds in opened for fd in fds]:
            os.close(descriptor)
        ip("netns", "delete", namespace)


def attach(queues: list[int]) -> None:
    """Attach all queues of a tap again, which the next QEMU requires after one that detached some of them."""
    for queue in queues:
        with contextlib.suppress(OSError):  # it is attached, or the only one
            fcntl.ioctl(queue, _TUNSETQUEUE, struct.pack("16sH22x", b"", _IFF_ATTACH_QUEUE))


def _ip(kit: Kit, *arguments: str) -> None:
    """Run ip, the kit's if the host has none. Raises LabUnavailableError with its output."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, env=kit.env, check=False)
    if done.returncode:
        raise LabUnavailableError(f"“ip {' '.join(arguments)}” failed: {done.stderr.strip()}")


def _within(namespace: str, name: str, queues: int) -> list[int]:
    """Create a tap in a namespace. A thread enters it and ends; the process stays in its own."""
    opened: list[int] = []
    failed: list[OSError] = []

    def work() -> None:
        try:
            with Path(f"/run/netns/{namespace}").open("rb") as place:
                if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "The namespace cannot be entered")
            flags = _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR | (_IFF_MULTI_QUEUE if queues > 1 else 0)
            for _ in range(queues):
                opened.append(os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC))
                fcntl.ioctl(opened[-1], _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return opened
