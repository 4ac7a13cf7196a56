"""Requirements of the lab: QEMU, a stock kernel and a few tools, fetched to a cache folder without installing them.

On Debian and its kin the packages come through apt with separate lists, sources and archives, so root is not
required and the machine is not changed. They are unpacked into one folder, the sysroot, which guests see as an overlay
of the host's root directory.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.lab.initramfs import write_initramfs

QEMU = "qemu-system-x86"
KERNELS = ("linux-image-6.12-amd64", "linux-image-amd64")
"""The full flavour; the cloud flavour lacks e1000e, igb and 9p. The first that the distribution has is taken."""
TOOLS = ("busybox-static", "kmod", "iproute2", "ethtool", "numactl", "irqbalance", "numad", "procps")
MERGED = ("bin", "sbin", "lib", "lib64")
OLDEST_QEMU = 8  # the first with igb


class LabUnavailableError(Exception):
    """The lab cannot run here; the message says what is missing and how to get it."""


@dataclass(frozen=True)
class Kit:
    """sysroot: the unpacked packages. env: environment in which its programs and libraries are found."""

    qemu: str
    qemu_options: tuple[str, ...]
    env: dict[str, str]
    kernel: Path
    initramfs: Path
    sysroot: Path


def provide() -> Kit:
    """Return the kit; fetch it if it is missing. Raises LabUnavailableError."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coresteer-lab"
    sysroot = cache / "sysroot"
    complete = cache / "complete"
    cache.parent.mkdir(parents=True, exist_ok=True)
    with cache.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another program may be fetching it
        if not complete.exists() or complete.read_text() != " ".join(TOOLS):  # of an earlier version with other tools
            shutil.rmtree(cache, ignore_errors=True)
            _fetch(cache, sysroot)
            _depmod(sysroot, _environment(sysroot))
            complete.write_text(" ".join(TOOLS))
    kernel = next((sysroot / "boot").glob("vmlinuz-*"))
    initramfs = write_initramfs(cache / "initramfs", sysroot, kernel.name.removeprefix("vmlinuz-"))
    env = _environment(sysroot)
    ours = sysroot / "usr/bin/qemu-system-x86_64"
    if ours.exists():
        data = [option for name in ("qemu", "seabios") for option in ("-L", str(sysroot / "usr/share" / name))]
        return Kit(str(ours), tuple(data), env, kernel, initramfs, sysroot)
    return Kit("qemu-system-x86_64", (), env, kernel, initramfs, sysroot)


def _environment(sysroot: Path) -> dict[str, str]:
    """Return the environment in which the sysroot's programs are found, after the host's, with their libraries."""
    libraries = [str(path) for path in sorted((sysroot / "usr/lib").glob("*-linux-gnu*"))]
    libraries += [f"{path}/pulseaudio" for path in libraries]
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:{sysroot}/usr/sbin:{sysroot}/usr/bin"
    return os.environ | {"PATH": path, "LD_LIBRARY_PATH": ":".join(libraries)}


def _fetch(cache: Path, sysroot: Path) -> None:
    if shutil.which("apt-get") is None:
        raise LabUnavailableError("The lab fetches its kernel with apt-get, which this machine does not have.")
    print_progress("Fetching QEMU, a kernel and tools for the lab; nothing is installed.")
    apt = _private_apt(cache)
    _run(*apt, "update")
    kernel = _kernel_package(apt)
    (cache / "archives").mkdir()
    _run(*apt, "download", kernel, "busybox-static", cwd=cache / "archives")
    wanted = [name for name in TOOLS if name != "busybox-static"]
    _run(*apt, "install", "--yes", "--download-only", "--no-install-recommends", *wanted)
    if not _host_qemu_will_do():
        backports = ("--target-release", f"{_codename()}-backports") if _codename() == "bookworm" else ()
        _run(*apt, "install", "--yes", "--download-only", "--no-install-recommends", *backports, QEMU)
    for name in MERGED:
        (sysroot / "usr" / name).mkdir(parents=True)
        (sysroot / name).symlink_to(f"usr/{name}")
    for package in sorted((cache / "archives").glob("*.deb")):
        _unpack(package, sysroot)
    shutil.rmtree(cache / "archives")


def _unpack(package: Path, into: Path) -> None:
    """Unpack a package like dpkg -x, but follow the links of a merged /usr instead of replacing them."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as members:
        subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", str(into)], stdin=members.stdout, check=True)


def _private_apt(cache: Path) -> list[str]:
    """Return an apt-get with separate folders and, for Debian 12, its backports, whose QEMU has igb."""
    sources = cache / "sources"
    shutil.copytree("/etc/apt/sources.list.d", sources, ignore=shutil.ignore_patterns("*.disabled*"))
    (cache / "lists/partial").mkdir(parents=True)
    if _codename() == "bookworm":
        debian = sources / "debian.sources"
        found = re.search(r"^URIs: .*$", debian.read_text(), re.MULTILINE) if debian.exists() else None
        listed = Path("/etc/apt/sources.list")
        old = (
            re.search(r"^deb (?:\[.*\] )?(\S+) bookworm main", listed.read_text(), re.MULTILINE)
            if listed.exists()
            else None
        )
        uris = found[0] if found else f"URIs: {old[1]}" if old else None
        if uris:
            keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
            stanza = f"Types: deb\n{uris}\nSuites: bookworm-backports\nComponents: main\nSigned-By: {keyring}\n"
            (sources / "backports.sources").write_text(stanza)
    options = {
        "Dir::Etc::sourceparts": sources,
        "Dir::State::lists": cache / "lists",
        "Dir::Cache": cache,
        "Dir::Cache::archives": cache / "archives",
        "Debug::NoLocking": "true",
        "APT::Sandbox::User": "",
    }
    return ["apt-get", "--quiet=2", *(f"--option={key}={value}" for key, value in options.items())]


def _kernel_package(apt: list[str]) -> str:
    """Return the kernel's package, a dependency of the newest meta-package."""
    for meta in KERNELS:
        shown = subprocess.run(["apt-cache", *apt[2:], "depends", meta], capture_output=True, text=True, check=False)
        if found := re.search(r"Depends: (linux-image-\S+)", shown.stdout):
            return found[1]
    raise LabUnavailableError(f"The lab needs one of the kernel packages {', '.join(KERNELS)}; apt knows none of them.")


def _host_qemu_will_do() -> bool:
    if shutil.which("qemu-system-x86_64") is None:
        return False
    output = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"version (\d+)", output)
    return found is not None and int(found[1]) >= OLDEST_QEMU


def _codename() -> str:
    found = re.search(r"^VERSION_CODENAME=(\S+)", Path("/etc/os-release").read_text(), re.MULTILINE)
    return found[1] if found else ""


def _depmod(sysroot: Path, env: dict[str, str]) -> None:
    """Run kmod as depmod; its own link is absolute and therefore invalid in the sysroot."""
    release = next((sysroot / "usr/lib/modules").iterdir()).name
    kmod = sysroot / "usr/bin/kmod"
    if not kmod.exists():
        kmod = Path(shutil.which("kmod", path=env["PATH"]) or "")
    command = ["depmod", "-b", str(sysroot), release]
    done = subprocess.run(command, executable=kmod, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise LabUnavailableError(f"depmod ended with {done.returncode}: {done.stderr.strip()}")


def _run(*command: str, cwd: Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    if done.returncode:
        raise LabUnavailableError(
            f"“{' '.join(command[:1] + command[-3:])}” ended with {done.returncode}: {done.stderr.strip()}"
        )


def print_progress(text: str) -> None:
    """Print progress."""
    print(text, file=sys.stderr, flush=True)
