"""Builds the deb and rpm of agent and backend from the wheels: `make packages`. Same commit, same bytes.

Each package has its libraries as one virtual environment for each minor version of Python, whose interpreter is the
distribution's. What is the same for all of them is in the folder `common`. Versions and hashes are requirements.lock's.
"""

import argparse
import gzip
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import shtab
from argparse_manpage.manpage import Manpage

REPOSITORY = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
MINORS = (13, 12, 11)
"""Of Python 3, the newest first."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_OF_THE_INSTALLER = ("RECORD", "REQUESTED", "INSTALLER", "direct_url.json", "uv_cache.json")


@dataclass(frozen=True)
class Package:
    """One package. role: its folder here, and the name of its file in /etc. wheels: ours in it, with extras."""

    role: str
    program: str
    module: str
    parser: str
    wheels: dict[str, str]

    @property
    def name(self) -> str:
        """Return the package's name."""
        return f"coresteer-{self.role}"

    @property
    def libraries(self) -> str:
        """Return the folder of the libraries on the machine."""
        return f"/usr/lib/{self.name}"


AGENT = Package(
    role="agent",
    program="coresteer-agent",
    module="coresteer_agent",
    parser="coresteer_agent.__main__",
    wheels={"coresteer_agent": "", "coresteer_core": ""},
)
BACKEND = Package(
    role="backend",
    program="coresteer",
    module="coresteer",
    parser="coresteer.cli.main",
    wheels={"coresteer": "[otlp,pdf]", "coresteer_core": ""},
)


def main() -> None:
    """Build all packages into the folder of the wheels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", type=Path, help="folder with the wheels; the packages are added")
    parser.add_argument("work", type=Path, help="folder for what is in between; its content is deleted")
    parser.add_argument("--release", default="1", help="number of the packages of the same version")
    arguments = parser.parse_args()
    os.umask(0o022)
    for package in (AGENT, BACKEND):
        work = arguments.work.absolute() / package.role
        shutil.rmtree(work, ignore_errors=True)
        _lay_out(package, arguments.wheels.absolute(), work)
        _pack(package, arguments.wheels.absolute(), work, arguments.release)


def _lay_out(package: Package, wheels: Path, work: Path) -> None:
    """Make the tree of files, and beside it the completion for zsh, whose place depends on the distribution."""
    tree = work / "tree"
    libraries = tree / package.libraries.removeprefix("/")
    for minor in MINORS:
        _environment(package, wheels, libraries / f"python3.{minor}", minor)
    _share(libraries)
    for name in _OF_THE_INSTALLER:
        for file in libraries.rglob(f"*.dist-info/{name}"):
            file.unlink()
    launcher = (HERE / "launcher.sh").read_text()
    for name, value in {
        "MINORS": " ".join(map(str, MINORS)),
        "LIBRARIES": package.libraries,
        "MODULE": package.module,
        "PROGRAM": package.program,
    }.items():
        launcher = launcher.replace(f"@{name}@", value)
    _write(tree / "usr/bin" / package.program, launcher.encode(), 0o755)
    _write(tree / f"usr/lib/systemd/system/{package.name}.service", _read(f"packaging/systemd/{package.name}.service"))
    _write(tree / f"usr/share/doc/{package.name}/copyright", _read("LICENSE"))
    for users in (HERE / package.role).glob("*.sysusers"):
        _write(tree / f"usr/lib/sysusers.d/{users.stem}.conf", users.read_bytes())
    described = {kind: text.encode() for kind, text in descriptions(package).items()}
    _write(tree / "usr/share/bash-completion/completions" / package.program, described["bash"])
    _write(tree / f"usr/share/fish/vendor_completions.d/{package.program}.fish", described["fish"])
    _write(work / f"_{package.program}", described["zsh"])
    _write(tree / f"usr/share/man/man1/{package.program}.1.gz", gzip.compress(described["man"], mtime=0))


def _environment(package: Package, wheels: Path, folder: Path, minor: int) -> None:
    """Make a virtual environment whose interpreter is /usr/bin/python3.<minor>, which this machine need not have."""
    site = folder / f"lib/python3.{minor}/site-packages"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to(f"../../../../bin/python3.{minor}")  # dangling here, so that no machine differs
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    ours = [f"{name}{extras} @ file://{_only(wheels, name)}" for name, extras in package.wheels.items()]
    argv: list[str | Path] = [Path(sys.executable).with_name("uv"), "pip", "install", "--quiet", "--target", site]
    argv += ["--python-version", f"3.{minor}", "--python-platform", f"{platform.machine()}-manylinux_2_28"]
    argv += ["--only-binary", ":all:", "--link-mode", "copy", "--constraint", REPOSITORY / "requirements.lock"]
    subprocess.run([*argv, *ours], check=True)
    shutil.rmtree(site / "bin", ignore_errors=True)  # programs for this machine
    (site / ".lock").unlink(missing_ok=True)
    (site / "common.pth").write_text(f"{package.libraries}/common\n")


def _share(libraries: Path) -> None:
    """Move each distribution whose files are the same for all minor versions to the folder `common`."""
    sites = [libraries / f"python3.{minor}/lib/python3.{minor}/site-packages" for minor in MINORS]
    for record in sorted(sites[0].glob("*.dist-info/RECORD")):
        relative = record.relative_to(sites[0])
        if any(
            not (site / relative).exists() or (site / relative).read_bytes() != record.read_bytes() for site in sites
        ):
            continue
        files = [line.rsplit(",", 2)[0].strip('"') for line in record.read_text().splitlines()]
        for file in files:
            if not (sites[0] / file).is_file():  # a program
                continue
            target = libraries / "common" / file
            target.parent.mkdir(parents=True, exist_ok=True)
            (sites[0] / file).rename(target)
            for site in sites[1:]:
                (site / file).unlink()
    for site in sites:
        for folder in sorted((each for each in site.rglob("*") if each.is_dir()), reverse=True):
            if not any(folder.iterdir()):
                folder.rmdir()


def descriptions(package: Package) -> dict[str, str]:
    """Return the completions by shell and the manual page, ``man``, which say what the program's parser says."""
    with patch.dict(os.environ, COLUMNS="100", CORESTEER_STATE_DIR="/var/lib/coresteer"):  # not of this account
        parser: argparse.ArgumentParser = import_module(package.parser)._parser()
        found = {shell: shtab.complete(parser, shell=shell) for shell in ("bash", "zsh", "fish")}
        page = Manpage(parser)
        page.manual = "Coresteer"
        return {**found, "man": str(page)}


def _pack(package: Package, wheels: Path, work: Path, release: str) -> None:
    """Let nfpm make the deb and the rpm."""
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    for path in (work, *work.rglob("*")):
        os.utime(path, (epoch, epoch), follow_symlinks=False)
    environment = os.environ | {
        "ARCH": ARCHITECTURES[platform.machine()],
        "BUILT": str(work),
        "RELEASE": release,
        "TREE": str(work / "tree"),
        "VERSION": _only(wheels, next(iter(package.wheels))).name.split("-")[1],
    }
    nfpm = Path(sys.executable).with_name("nfpm")
    for packager in ("deb", "rpm"):
        argv: list[str | Path] = [nfpm, "package", "--config", HERE / package.role / "nfpm.yaml"]
        subprocess.run([*argv, "--packager", packager, "--target", wheels], cwd=REPOSITORY, env=environment, check=True)


def _only(wheels: Path, name: str) -> Path:
    (wheel,) = wheels.glob(f"{name}-*.whl")
    return wheel


def _read(name: str) -> bytes:
    return (REPOSITORY / name).read_bytes()


def _write(path: Path, data: bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)


if __name__ == "__main__":
    main()
