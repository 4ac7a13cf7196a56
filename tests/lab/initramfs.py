"""The first root directory of a guest: busybox and the modules needed to mount the host's root directory."""

import lzma
import os
import stat
from collections.abc import Iterator
from pathlib import Path

MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console")

INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
for module in $(cat /modules); do insmod /$module.ko || echo "lab: $module cannot be loaded"; done
mkdir -p /host /sysroot /memory
options=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o $options,cache=loose,ro host /host
mount -t 9p -o $options,cache=loose,ro sysroot /sysroot
mount -t tmpfs memory /memory
mkdir -p /memory/upper /memory/work /memory/root
for word in $(cat /proc/cmdline); do case $word in
  lab.python=*) python=${word#*=};; lab.inside=*) inside=${word#*=};;
esac; done
layers=lowerdir=/sysroot:/host,upperdir=/memory/upper,workdir=/memory/work
mount -t overlay -o $layers overlay /memory/root || poweroff -f
cd /memory/root
for kind in proc sysfs devtmpfs; do case $kind in sysfs) at=sys;; devtmpfs) at=dev;; *) at=$kind;; esac
  mount -t $kind $kind $at; done
mount -t tmpfs tmpfs run
mkdir -p run/share
mount -t 9p -o $options,cache=none share run/share
exec switch_root /memory/root $python $inside
"""


def write_initramfs(path: Path, sysroot: Path, release: str, init: str = INIT) -> Path:
    """Write the archive and return its path. sysroot: folder of the unpacked kernel and busybox packages.

    init: the script that runs first.
    """
    modules = sysroot / "usr/lib/modules" / release
    order = list(_in_order(modules))
    entries: list[tuple[str, int, bytes]] = [(name, stat.S_IFDIR | 0o755, b"") for name in ("bin", "dev", "proc")]
    entries.append(("bin/busybox", stat.S_IFREG | 0o755, (sysroot / "usr/bin/busybox").read_bytes()))
    entries.append(("init", stat.S_IFREG | 0o755, init.encode()))
    entries.append(("modules", stat.S_IFREG | 0o644, " ".join(_stem(name) for name in order).encode()))
    for name in order:
        data = (modules / name).read_bytes()
        plain = lzma.decompress(data) if name.endswith(".xz") else data
        entries.append((f"{_stem(name)}.ko", stat.S_IFREG | 0o644, plain))
    fresh = path.with_suffix(f".{os.getpid()}")  # another boot may read the one that is there
    fresh.write_bytes(_cpio(entries))
    return fresh.replace(path)


def _stem(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]


def _in_order(modules: Path) -> Iterator[str]:
    """Return the files of MODULES and of their dependencies, each after its own dependencies."""
    needs = dict(line.split(":", 1) for line in (modules / "modules.dep").read_text().splitlines())
    file_of = {_stem(file).replace("-", "_"): file for file in needs}
    done: set[str] = set()
    for module in MODULES:
        if module not in file_of:
            continue  # built in
        for file in [*reversed(needs[file_of[module]].split()), file_of[module]]:
            if file not in done:
                done.add(file)
                yield file


def _cpio(entries: list[tuple[str, int, bytes]]) -> bytes:
    """Return an archive in the newc format (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    out = bytearray()
    for number, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], start=1):
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        out += b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        out += bytes(-len(out) % 4) + data
        out += bytes(-len(out) % 4)
    return bytes(out)
