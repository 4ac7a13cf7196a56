"""Clean Debian systems with their own systemd, on one bridge: containers that end with this process's namespaces.

Run in `unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private`.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.packaging.clean_root import BASE
from tests.support.polling import poll

GATEWAY = "10.84.0.1"
"""Address of this process on the bridge."""
_ROOT_HOME = "root"
_STATE = "/root/.environment"
_WRITABLE = """
mount -o remount,rw /sys/devices
for irq in /proc/irq/[0-9]*; do
  mkdir -p /var/tmp${irq#/proc}
  cp $irq/smp_affinity_list /var/tmp${irq#/proc}
done
mount --bind /var/tmp/irq /proc/irq
"""
"""systemd-nspawn mounts these read-only, and the agent would only observe.

Network devices in /sys are the machine's own; of the interrupts it gets a copy, so that the host's stay as they are.
"""
_BOOTED = ("running", "degraded")
_END_S = 30


class Machine:
    """A running system. root: its root directory; leader: PID of its systemd."""

    def __init__(self, name: str, address: str, root: Path, leader: int) -> None:
        self.name, self.address, self.root, self.leader = name, address, root, leader

    @property
    def home(self) -> Path:
        """The home directory of root, in which commands run."""
        return self.root / _ROOT_HOME

    def run(self, script: str) -> str:
        """Run commands as a login of root would; return what they say. What they export stays for the next ones."""
        text = f"cd; [ -f {_STATE} ] && . {_STATE}\nset -euo pipefail\n{script}\nexport -p > {_STATE}\n"
        argv = ["nsenter", "--target", str(self.leader), "--all", "--root", "--wd=/", "/bin/bash", "-c", text]
        environment = {
            "HOME": "/root",
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
            "LC_ALL": "C.UTF-8",
        }
        done = subprocess.run(
            argv, check=False, cwd="/", env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{self.name}: {script}\n{done.stdout}{done.stderr}"
        return done.stdout


@contextmanager
def machines(names: Sequence[str]) -> Iterator[dict[str, Machine]]:
    """Systems with these names, which know each other by name."""
    addresses = {name: f"10.84.0.{number}" for number, name in enumerate(names, 2)}
    known = "".join(f"{address} {name}\n" for name, address in ({"localhost": "127.0.0.1"} | addresses).items())
    with tempfile.TemporaryDirectory(prefix="coresteer-machines-") as folder, ExitStack() as stack:
        memory = Path(folder)
        _mount(stack, memory, "-t", "tmpfs", "-o", "size=8g", "tmpfs")
        _mount(stack, Path("/run"), "-t", "tmpfs", "tmpfs")  # systemd-nspawn leaves folders there
        (memory / "hosts").write_text(known)
        _mount(stack, Path("/etc/hosts"), "--bind", str(memory / "hosts"))
        for command in (
            "link set lo up",
            "link add br0 type bridge",
            f"address add {GATEWAY}/24 dev br0",
            "link set br0 up",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        yield {name: stack.enter_context(_machine(memory / name, name, addresses[name])) for name in names}


@contextmanager
def _machine(folder: Path, name: str, address: str) -> Iterator[Machine]:
    for each in ("upper", "work", "root"):
        (folder / each).mkdir(parents=True)
    root = folder / "root"
    with ExitStack() as stack:
        options = f"lowerdir={BASE},upperdir={folder / 'upper'},workdir={folder / 'work'}"
        _mount(stack, root, "-t", "overlay", "-o", options, "overlay")
        shutil.copyfile("/etc/hosts", root / "etc/hosts")
        (root / "etc/hostname").write_text(f"{name}\n")
        (root / "etc/apt/apt.conf.d/90yes").write_text('APT::Get::Assume-Yes "true";\n')
        argv = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot", f"--directory={root}"]
        argv += [f"--machine={name}", "--network-bridge=br0", "--resolv-conf=off", "--console=pipe"]
        argv += ["systemd.unit=multi-user.target"]
        environment = {**os.environ, "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"}
        log = (folder / "console").open("wb")
        with log, subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as process:
            try:
                poll(lambda: _leader(process.pid) is not None, interval_s=0.1)
                leader = _leader(process.pid)
                assert leader is not None, (folder / "console").read_text()
                machine = Machine(name, address, root, leader)
                machine.run(f"ip address add {address}/24 dev host0; ip link set host0 up; ip link set lo up")
                poll(lambda: machine.run("systemctl is-system-running || true").strip() in _BOOTED, interval_s=0.2)
                machine.run(_WRITABLE)
                yield machine
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(_END_S)
                finally:
                    process.kill()


def _leader(pid: int) -> int | None:
    """Return the PID of the systemd that a systemd-nspawn has started, None until it runs."""
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            if Path(f"/proc/{child}/comm").read_text() == "systemd\n":
                return int(child)
        except OSError:
            pass  # it has ended
    return None


def _mount(stack: ExitStack, at: Path, *arguments: str) -> None:
    subprocess.run(["mount", *arguments, at], check=True)
    stack.callback(lambda: subprocess.run(["umount", "--lazy", at], check=True))
