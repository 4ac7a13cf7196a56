"""The wheels of `make dist`: the same bytes twice, and what they serve in environments of their own."""

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from tests.support.polling import PATIENCE_S, poll_async
from tests.support.postgres import running_postgres

from coresteer.cli.local_backend import free_port
from coresteer.config import REPOSITORY

UV = REPOSITORY / ".venv/bin/uv"
LOCK = REPOSITORY / "requirements.lock"
INSTALL_S = 300


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that every account may enter, unlike pytest's: backend and database run under others than root."""
    found = Path(tempfile.mkdtemp(prefix="coresteer-wheels-"))
    found.chmod(0o755)
    yield found
    shutil.rmtree(found)


def environment(**more: str) -> dict[str, str]:
    """The environment of programs outside the checkout and outside of the make that runs the tests."""
    ours = ("CORESTEER_", "DATABASE_URL", "PG_BIN", "PYTHONPATH", "MAKE", "MFLAGS", "SOURCE_DATE_EPOCH")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)} | more


def build(folder: Path, **more: str) -> dict[str, str]:
    """Build the wheels; return their names and digests."""
    subprocess.run(["make", "--silent", "dist", f"DIST={folder}"], cwd=REPOSITORY, env=environment(**more), check=True)
    return {wheel.name: hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def wheels(folder: Path) -> Path:
    build(folder / "wheels")
    return folder / "wheels"


def installed(folder: Path, wheels: Path, requirement: str) -> Path:
    """Install a distribution into a new environment; return the folder of its programs."""
    subprocess.run([UV, "venv", "--quiet", folder], env=environment(), check=True)
    argv: list[str | Path] = [UV, "pip", "install", "--quiet", "--python", folder / "bin/python"]
    argv += ["--find-links", wheels, "--constraint", LOCK, requirement]
    subprocess.run(argv, env=environment(), check=True, timeout=INSTALL_S)
    return folder / "bin"


@contextmanager
def running(program: Path, *arguments: str, **more: str) -> Iterator[str]:
    """Run a command that serves; yield its address. Its output is the test's."""
    port = free_port()
    options = {"CORESTEER_PORT": str(port), **more}
    process = subprocess.Popen([program, *arguments], cwd="/", env=environment(**options))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) in (0, -signal.SIGTERM)


def answer(url: str) -> requests.Response | None:
    """The answer to a request, None while nothing listens."""
    with requests.Session() as session:
        session.trust_env = False  # a proxy is for the world outside
        try:
            return session.get(url, timeout=PATIENCE_S)
        except requests.ConnectionError:
            return None


async def serves(url: str) -> None:
    """Wait until a backend is ready; then check that it has the page and all that belongs to it."""

    def is_ready() -> bool:
        found = answer(f"{url}/readyz")
        return found is not None and found.status_code == 200

    await poll_async(is_ready, interval_s=0.1)
    built = REPOSITORY / "frontend/dist"
    for path in ("index.html", "favicon.svg", *(f"assets/{each.name}" for each in (built / "assets").glob("index-*"))):
        found = answer(f"{url}/{path}")
        assert found is not None
        assert found.content == (built / path).read_bytes()


@pytest.mark.slow("builds the page, where nothing has yet")
def test_a_commit_gives_the_same_wheels_whoever_builds_them(folder: Path, wheels: Path) -> None:
    first = {wheel.name: hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels.glob("*.whl")}
    umask = os.umask(0o077)
    try:
        again = build(folder / "again", TZ="Asia/Seoul", LC_ALL="C", PYTHONHASHSEED="1")
    finally:
        os.umask(umask)
    assert first == again
    assert {name.partition("-")[0] for name in first} == {
        "coresteer",
        "coresteer_agent",
        "coresteer_core",
        "coresteer_gate",
    }


@pytest.mark.slow("builds the page, where nothing has yet")
def test_each_wheel_contains_the_license(wheels: Path) -> None:
    text = (REPOSITORY / "LICENSE").read_bytes()
    for wheel in wheels.glob("*.whl"):
        with zipfile.ZipFile(wheel) as files:
            (name,) = [each for each in files.namelist() if each.endswith(".dist-info/licenses/LICENSE")]
            assert files.read(name) == text


@pytest.mark.slow("builds the page, where nothing has yet")
def test_backend_and_agent_need_the_core_of_their_release(wheels: Path) -> None:
    (core,) = wheels.glob("coresteer_core-*.whl")
    version = core.name.split("-")[1]
    for wheel in (*wheels.glob("coresteer-*.whl"), *wheels.glob("coresteer_agent-*.whl")):
        with zipfile.ZipFile(wheel) as files:
            metadata = files.read(f"{'-'.join(wheel.name.split('-')[:2])}.dist-info/METADATA").decode()
        assert f"Requires-Dist: coresteer-core=={version}\n" in metadata


@pytest.mark.slow("installs the packages into an environment, and starts database, backend and agent")
async def test_what_pip_installs_starts_everything_on_this_machine(folder: Path, wheels: Path) -> None:
    programs = installed(folder / "local", wheels, "coresteer[local]")
    state = folder / "state"
    with running(programs / "coresteer", "up", CORESTEER_STATE_DIR=str(state)) as url:
        await serves(url)
        await poll_async((state / "agent/key.json").exists)  # the agent has enrolled


@pytest.mark.slow("installs the packages into an environment, and starts a database and a backend")
async def test_without_extras_the_backend_serves_with_another_database(folder: Path, wheels: Path) -> None:
    coresteer = installed(folder / "core", wheels, "coresteer") / "coresteer"
    async with running_postgres("coresteer-wheels-") as server:
        urls = {"DATABASE_URL": server.backend_url, "CORESTEER_STATE_DIR": str(folder / "served")}
        owner = environment(**urls, CORESTEER_OWNER_URL=server.url)
        subprocess.run([coresteer, "migrate"], cwd="/", env=owner, check=True, timeout=PATIENCE_S)  # noqa: ASYNC221
        with running(coresteer, "serve", **urls) as url:
            await serves(url)
        done = subprocess.run([coresteer, "up"], env=environment(**urls), capture_output=True, text=True, check=False)  # noqa: ASYNC221
    assert done.returncode == 1
    assert "pip install 'coresteer[local]'" in done.stderr
