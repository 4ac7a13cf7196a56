"""A virtual machine that boots a root directory with its own systemd, which runs one script and powers off."""

import subprocess
from pathlib import Path

from tests.lab.initramfs import write_initramfs
from tests.lab.provision import provide
from tests.lab.qemu import CPU, KERNEL_ARGUMENTS

MOST_S = 1200
"""Under emulation, with other programs on the host's CPUs; 150 s on an idle one."""
_INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
for module in $(cat /modules); do insmod /$module.ko || echo "$module cannot be loaded"; done
mkdir -p /host /sysroot /memory
options=trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro
mount -t 9p -o $options host /host
mount -t 9p -o $options sysroot /sysroot
mount -t tmpfs -o size=1g memory /memory
mkdir -p /memory/upper /memory/work /memory/root
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /memory/root || poweroff -f
mkdir -p /memory/root/usr/lib/modules
mount -o bind /sysroot/usr/lib/modules /memory/root/usr/lib/modules
exec switch_root /memory/root /lib/systemd/systemd
"""
_UNIT = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh /check.sh
ExecStopPost=/bin/systemctl --no-block poweroff
StandardOutput=file:/dev/ttyS1
StandardError=inherit
[Install]
WantedBy=multi-user.target
"""


def run_under_systemd(root: Path, script: str, folder: Path) -> str:
    """Boot a root directory, run a shell script in it after the boot, power off, and return what the script said.

    folder: for temporary files; its file ``console`` shows the boot. Raises TimeoutExpired if the machine stays on.
    """
    kit = provide()
    (root / "check.sh").write_text(script)
    (root / "etc/systemd/system/check.service").write_text(_UNIT)
    (root / "etc/systemd/system/multi-user.target.wants/check.service").symlink_to("../check.service")
    initramfs = write_initramfs(folder / "initramfs", kit.sysroot, kit.kernel.name.removeprefix("vmlinuz-"), _INIT)
    argv = [kit.qemu, *kit.qemu_options, "-nodefaults", "-no-reboot", "-display", "none", "-m", "2048", "-smp", "2"]
    # in parallel, unlike the lab's machines: it takes two thirds of the time, and with 2 CPUs every boot succeeded
    argv += ["-accel", "tcg,thread=multi,tb-size=512", "-machine", "q35,hpet=off", "-cpu", CPU]
    argv += ["-kernel", str(kit.kernel), "-initrd", str(initramfs), "-append", KERNEL_ARGUMENTS]
    for name in ("console", "said"):
        argv += ["-chardev", f"file,id={name},path={folder / name}", "-serial", f"chardev:{name}"]
    for tag, path in (("host", root), ("sysroot", kit.sysroot)):
        options = f"local,id={tag},path={path},readonly=on,multidevs=remap,security_model=none"
        argv += ["-fsdev", options, "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
    subprocess.run(argv, stdin=subprocess.DEVNULL, env=kit.env, timeout=MOST_S, check=True)
    return (folder / "said").read_text(errors="replace").replace("\r", "")
