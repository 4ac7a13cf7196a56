"""A clean Debian 12 to install packages in: its root directory, in namespaces of this process that end with it.

`python -m tests.packaging.clean_root` fetches it to a cache folder; `tests/packaging/run` does that first.
"""

import configparser
import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coresteer-packages"
BASE = CACHE / "bookworm"
PACKAGES = ("python3", "systemd-sysv", "dbus", "iproute2", "libudev1", "kmod", "postgresql", "sudo")
"""What the packages depend on, and a database, so that a test needs no network."""
RPS = Path("/sys/class/net/veth0/queues/rx-0/rps_cpus")
"""A setting of a device that exists only in the network namespace of the test."""
NOT_THE_PACKAGES = (
    *("dev", "mnt", "proc", "root", "run", "sys", "tmp", "var/cache/apt", "var/cache/ldconfig", "var/lib/apt"),
    *("var/lib/dpkg", "var/lib/postgresql", "var/log"),
    *("etc/passwd-", "etc/shadow-", "etc/group-", "etc/gshadow-", "etc/.pwd.lock"),
)
"""What the package manager, the database and the kernel change themselves."""
_END_S = 15


def fetch() -> None:
    """Make the base directory unless it is there: about 4 minutes."""
    complete = CACHE / "complete"
    if complete.exists() and complete.read_text() == " ".join(PACKAGES):
        return
    shutil.rmtree(BASE, ignore_errors=True)
    CACHE.mkdir(parents=True, exist_ok=True)
    argv = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", "bookworm", str(BASE)]
    subprocess.run(argv, check=True)
    complete.write_text(" ".join(PACKAGES))


class CleanRoot:
    """A root directory with the kernel's file systems, and a device veth0."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *command: str, account: str = "root", check: bool = True, **more: str) -> str:
        """Run a command; return what it says. more: variables of the environment."""
        argv = ["chroot", str(self.path), *_as(account), *command]
        done = subprocess.run(
            argv, check=False, env=_environment(more), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        said = done.stdout.decode()
        assert not check or done.returncode == 0, said
        return said

    @contextlib.contextmanager
    def unit(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a unit's program as systemd would: its command, account, capabilities, folders and umask."""
        parser = configparser.RawConfigParser(strict=False, interpolation=None)
        parser.optionxform = str  # type: ignore[assignment,method-assign]  # names have capitals
        parser.read(self.path / f"usr/lib/systemd/system/{name}.service")
        unit = parser["Service"]
        account = unit.get("User", "root")
        folders = {"var/lib": unit.get("StateDirectory"), "run": unit.get("RuntimeDirectory")}
        for parent, folder in folders.items():
            if folder:
                self.run(
                    "install", "-d", "-o", account, "-m", unit.get("StateDirectoryMode", "0755"), f"/{parent}/{folder}"
                )
        kept = [f"+{each.removeprefix('CAP_').lower()}" for each in unit["CapabilityBoundingSet"].split()]
        argv = ["chroot", str(self.path), "setpriv", "--no-new-privs", f"--bounding-set={','.join(['-all', *kept])}"]
        argv += [*_as(account)[1:], *unit["ExecStart"].split()]
        with subprocess.Popen(argv, env=_environment({}), umask=int(unit["UMask"], 8)) as process:
            try:
                yield process
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(_END_S)
                finally:
                    process.kill()
                if folders["run"]:
                    shutil.rmtree(self.path / "run" / folders["run"])

    def files(self) -> dict[str, str]:
        """Return all files, with what a change of them changes, but those that are not the packages'."""
        found = {}
        for folder, folders, names in os.walk(self.path):
            here = Path(folder)
            relative = here.relative_to(self.path)
            folders[:] = [each for each in folders if str(relative / each) not in NOT_THE_PACKAGES]
            for name in (*names, *folders):
                path, status = here / name, (here / name).lstat()
                if str(relative / name) in NOT_THE_PACKAGES:
                    continue
                is_file = path.is_file() and not path.is_symlink() and relative.parts[:1] == ("etc",)
                content = hashlib.sha256(path.read_bytes()).hexdigest() if is_file else ""
                found[str(relative / name)] = f"{status.st_mode:o} {status.st_uid}:{status.st_gid} {content}"
        return found


def _as(account: str) -> list[str]:
    return ["setpriv", "--reuid", account, "--regid", account, "--init-groups"] if account != "root" else ["env"]


def _environment(more: dict[str, str]) -> dict[str, str]:
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **more}


@contextlib.contextmanager
def clean_root(shared: Path) -> Iterator[CleanRoot]:
    """A new copy of the base; shared appears in it as /mnt. The caller is in its own mount and network namespaces."""
    with tempfile.TemporaryDirectory(prefix="coresteer-root-") as folder:
        mounts: list[Path] = []

        def mount(at: Path, *arguments: str) -> None:
            at.mkdir(exist_ok=True)
            subprocess.run(["mount", *arguments, at], check=True)
            mounts.append(at)

        try:
            mount(Path(folder) / "memory", "-t", "tmpfs", "-o", "size=4g", "tmpfs")
            layers = [Path(folder) / "memory" / each for each in ("upper", "work")]
            for layer in layers:
                layer.mkdir(mode=0o755)
            root = Path(folder) / "root"
            options = f"lowerdir={BASE},upperdir={layers[0]},workdir={layers[1]}"
            mount(root, "-t", "overlay", "-o", options, "overlay")
            mount(root / "proc", "-t", "proc", "proc")
            mount(root / "sys", "-t", "sysfs", "sysfs")
            mount(root / "dev", "--bind", "/dev")
            mount(root / "run", "-t", "tmpfs", "tmpfs")
            mount(root / "mnt", "--bind", str(shared))
            found = CleanRoot(root)
            found.run("install", "-d", "-o", "postgres", "-g", "postgres", "/run/postgresql")
            found.run("ip", "link", "set", "lo", "up")
            found.run("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1")
            try:
                yield found
            finally:
                found.run("ip", "link", "delete", "veth0")
        finally:
            for at in reversed(mounts):
                subprocess.run(["umount", at], check=True)


if __name__ == "__main__":
    fetch()
