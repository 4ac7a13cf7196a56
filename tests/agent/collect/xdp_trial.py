"""Prints what the inventory says of a veth with an XDP program, then with an AF_XDP socket; run it in a namespace."""

import ctypes
import mmap
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import msgspec

from coresteer_agent.linux.bpf import BpfObjects, Op, assemble
from coresteer_agent.linux.netlink import NETLINK_ROUTE, Netlink, encode_attribute
from coresteer_agent.observe.inventory import InventoryReader

_PROGRAM_XDP, _ATTACH_XDP, _PASS = 6, 37, 2
_SET_LINK, _XDP, _XDP_FD = 19, 43, 1
_AF_XDP, _SOL_XDP, _COPY = 44, 283, 1 << 1
_RX_RING, _UMEM_REG, _FILL_RING, _COMPLETION_RING = 2, 4, 5, 6
_FRAME, _FRAMES = 4096, 8
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Attach the program, print, detach it, bind the socket to queue 0, print."""
    subprocess.run(["mount", "-t", "sysfs", "none", "/sys"], check=True)
    subprocess.run(["ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1"], check=True)
    for name in ("veth0", "veth1"):
        subprocess.run(["ip", "link", "set", name, "up"], check=True)
    index = socket.if_nametoindex("veth0")
    programs = BpfObjects()
    steps = [(Op.MOVE_VALUE, 0, 0, 0, _PASS), (Op.EXIT, 0, 0, 0, 0)]
    _attach(index, programs.load(_PROGRAM_XDP, _ATTACH_XDP, assemble(steps)))
    _print()
    _attach(index, -1)
    programs.close()
    xsk, memory = _bind(index)
    _print()
    xsk.close()
    memory.close()


def _print() -> None:
    users = InventoryReader(Path("/")).read().queue_users
    sys.stdout.write(msgspec.json.encode(users).decode() + "\n")


def _attach(index: int, descriptor: int) -> None:
    netlink = Netlink(NETLINK_ROUTE)
    xdp = encode_attribute(_XDP | 0x8000, encode_attribute(_XDP_FD, struct.pack("=i", descriptor)))
    netlink.exchange(_SET_LINK, struct.pack("=BxHiII", 0, 0, index, 0, 0) + xdp)
    netlink.close()


def _bind(index: int) -> tuple[socket.socket, mmap.mmap]:
    xsk = socket.socket(_AF_XDP, socket.SOCK_RAW, 0)
    memory = mmap.mmap(-1, _FRAME * _FRAMES)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    xsk.setsockopt(_SOL_XDP, _UMEM_REG, struct.pack("=QQIIII", address, _FRAME * _FRAMES, _FRAME, 0, 0, 0))
    for ring in (_FILL_RING, _COMPLETION_RING, _RX_RING):
        xsk.setsockopt(_SOL_XDP, ring, struct.pack("=I", _FRAMES))
    name = ctypes.create_string_buffer(struct.pack("=HHIII", _AF_XDP, _COPY, index, 0, 0))
    if _libc.bind(xsk.fileno(), name, 16) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return xsk, memory


if __name__ == "__main__":
    main()
