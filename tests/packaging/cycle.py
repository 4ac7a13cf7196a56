"""The packages in a clean Debian 12: installed, running as their units say, upgraded, removed and purged.

`make test-packages` runs it, not `make test`: the packages alone take minutes to build.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
from tests.lab.fleet import Backend
from tests.lab.test_changes import apply, await_change
from tests.packaging.clean_root import RPS, CleanRoot, clean_root
from tests.packaging.systemd_guest import run_under_systemd
from tests.support.polling import poll

from coresteer.config import REPOSITORY

BUILT = Path(os.environ.get("CORESTEER_PACKAGES", REPOSITORY / "build/dist"))
DATABASE = "postgresql://coresteer_owner:secret@127.0.0.1/coresteer"
NODE = "packaged"


@pytest.fixture
def debs(tmp_path: Path) -> Path:
    """A folder with the packages."""
    for deb in BUILT.glob("*.deb"):
        shutil.copyfile(deb, tmp_path / deb.name)
    return tmp_path


@pytest.fixture
def later_debs(debs: Path) -> Path:
    """The folder also with packages of a later release."""
    for deb in list(debs.glob("*.deb")):
        repacked(deb, debs / f"later-{deb.name.partition('_')[0]}.deb", debs)
    return debs


def repacked(deb: Path, later: Path, folder: Path) -> None:
    """Make the package of a later release out of one, with a new file in place of an old one."""
    tree = folder / "tree"
    subprocess.run(["dpkg-deb", "--raw-extract", deb, tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub("^Version: .*$", "Version: 99.0-1", control.read_text(), flags=re.MULTILINE))
    name = deb.name.partition("_")[0]
    (tree / f"usr/share/doc/{name}/copyright").rename(tree / f"usr/share/doc/{name}/license")
    subprocess.run(["dpkg-deb", "--build", "-Znone", tree, later], check=True)
    shutil.rmtree(tree)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[CleanRoot]:
    with clean_root(tmp_path) as found:
        yield found


def install(root: CleanRoot, *names: str) -> None:
    """Install packages of the shared folder, whose files begin with these names."""
    files = [f"/mnt/{path.name}" for name in names for path in (root.path / "mnt").glob(f"{name}*.deb")]
    assert len(files) == len(names)
    root.run("apt-get", "install", "--yes", "--no-install-recommends", *files)


@contextmanager
def serving(root: CleanRoot) -> Iterator[Backend]:
    """Make the database and run the backend's unit as docs/INSTALL.md says; the agent's file has a token then."""
    root.run("pg_ctlcluster", "15", "main", "start")
    owner = "CREATE ROLE coresteer_owner LOGIN CREATEROLE PASSWORD 'secret'"
    database = "CREATE DATABASE coresteer OWNER coresteer_owner"
    root.run("psql", f"--command={owner}", f"--command={database}", account="postgres")
    root.run("coresteer", "migrate", account="coresteer", CORESTEER_OWNER_URL=DATABASE)
    with root.unit("coresteer-backend"):
        await_ready()
        (root.path / "etc/coresteer/token").write_text(root.run("coresteer", "enrolment-token", account="coresteer"))
        with (root.path / "etc/coresteer/agent.toml").open("a") as file:
            file.write(f'name = "{NODE}"\ntoken_file = "/etc/coresteer/token"\n')
        yield Backend(8420, root.run("coresteer", "set-up-link", account="coresteer").strip(), {})


def await_ready() -> None:
    """Wait until the backend answers that it is ready."""

    def is_ready() -> bool:
        with requests.Session() as session:
            session.trust_env = False  # a proxy is for the world outside
            try:
                return session.get("http://127.0.0.1:8420/readyz", timeout=5).status_code == 200
            except requests.ConnectionError:
                return False

    poll(is_ready, interval_s=0.2)


def rps(root: CleanRoot) -> str:
    return (root.path / str(RPS).lstrip("/")).read_text().strip()


def test_packages_serve_and_are_upgraded_and_leave_nothing_behind(root: CleanRoot, later_debs: Path) -> None:
    before, original = root.files(), rps(root)
    install(root, "coresteer-agent_", "coresteer-backend_")
    assert root.run("find", "/usr/lib/coresteer-agent", "-name", "__main__.cpython-311.pyc")
    with serving(root) as backend:
        with root.unit("coresteer-agent"):
            change = apply(backend, backend.await_live(NODE)["id"], "netdev/veth0/rx-0/rps", "0")
            backend.request("POST", f"/api/v1/changes/{change['id']}/confirm")
            await_change(backend, change["id"], {"confirmed"})
            changed = rps(root)
            assert changed != original
            install(root, "later-coresteer-agent")
        assert rps(root) == changed
        with root.unit("coresteer-agent"):  # systemd would have restarted it
            backend.await_live(NODE)
            assert rps(root) == changed
        assert f'name = "{NODE}"' in (root.path / "etc/coresteer/agent.toml").read_text()
        assert "restored" in root.run("apt-get", "remove", "--yes", "coresteer-agent")
        assert rps(root) == original
    install(root, "later-coresteer-backend")
    with root.unit("coresteer-backend"):
        await_ready()
    root.run("pg_ctlcluster", "15", "main", "stop")
    root.run("apt-get", "purge", "--yes", "coresteer-agent", "coresteer-backend")
    after = root.files()
    paths = before.keys() | after
    assert {path: (before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)} == {}


@pytest.mark.parametrize(
    ("name", "program", "says"),
    [
        ("coresteer-agent", ("coresteer-agent", "sample"), '"softnet"'),
        ("coresteer-backend", ("coresteer", "openapi"), '"openapi"'),
    ],
)
def test_an_rpm_says_what_it_needs_and_its_program_runs(
    root: CleanRoot, name: str, program: tuple[str, ...], says: str
) -> None:
    (rpm,) = BUILT.glob(f"{name}-*.rpm")

    def query(*what: str) -> list[str]:
        argv = ["rpm", "--query", "--package", *what, str(rpm)]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()

    role = name.removeprefix("coresteer-")
    assert query("--configfiles") == [f"/etc/coresteer/{role}.toml"]
    assert "(python3.13 or python3.12 or python3.11)" in query("--requires")
    assert f"/usr/lib/systemd/system/{name}.service" in query("--list")
    scripts = "\n".join(query("--scripts"))
    assert all(f"{each}install scriptlet" in scripts for each in ("post", "preun", "postun"))
    with subprocess.Popen(["rpm2cpio", rpm], stdout=subprocess.PIPE) as content:
        argv = ["cpio", "--extract", "--make-directories", "--quiet", "--unconditional"]
        subprocess.run(argv, stdin=content.stdout, cwd=root.path, check=True)
    assert says in root.run(*program)


STEPS = """
step() { echo "== $*"; "$@" 2>&1 | tail -n 30; }
step systemctl is-active coresteer-backend
ip link add veth0 type veth peer name veth1
step python3 /change.py
step cat SETTING
step systemctl restart coresteer-agent
step systemctl is-active coresteer-agent
step cat SETTING
step systemd-analyze security --no-pager coresteer-agent
step journalctl --no-pager --unit coresteer-agent
step apt-get remove --yes coresteer-agent
step cat SETTING
step systemctl is-active coresteer-agent
"""
EXPECTED = (
    *("active", "confirmed", "1", "", "active", "1", ".*exposure level for coresteer-agent.service: 3.*"),
    *(".*Connected to http://127.0.0.1:8420.*", ".*was restored to.*", "0", "inactive"),
)
"""A line of what each step says."""
CHANGE = """
import json, time, urllib.request
def ask(method, path, body=None):
    headers = {"Authorization": "Bearer TOKEN", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request("http://127.0.0.1:8420/api/v1" + path, data, headers, method=method)
    return json.load(urllib.request.urlopen(request, timeout=60))
deadline = time.monotonic() + 500  # s: an emulated agent takes minutes to start
def until(what, read):
    while time.monotonic() < deadline:
        try:
            if found := read():
                return found
        except OSError:
            pass
        time.sleep(0.5)
    raise SystemExit(f"{what} never came")
node = until("the node", lambda: [each["id"] for each in ask("GET", "/nodes") if each["health"] == "live"])[0]
desired = [{"key": "netdev/veth0/rx-0/rps", "value": "0"}]
preview = lambda: ask("POST", f"/nodes/{node}/previews", {"desired": desired})
previewed = until("a plan to apply", lambda: (found := preview())["can_apply"] and found)
change = ask("POST", f"/nodes/{node}/changes", {"plan": previewed["plan"], "confirm_timeout_s": 300})["id"]
until("the applied change", lambda: ask("GET", f"/changes/{change}")["state"] == "unconfirmed")
ask("POST", f"/changes/{change}/confirm")
until("the confirmed change", lambda: ask("GET", f"/changes/{change}")["state"] == "confirmed")
print("confirmed")
"""


def test_the_units_run_under_systemd_and_removal_restores(root: CleanRoot, debs: Path, tmp_path: Path) -> None:
    install(root, "coresteer-agent_", "coresteer-backend_")
    with serving(root) as backend:
        token = backend.request("POST", "/api/v1/tokens", {"name": "check", "role": "operator"})["token"]
    root.run("pg_ctlcluster", "15", "main", "stop")
    root.run("systemctl", "enable", "coresteer-backend", "coresteer-agent")
    (root.path / "change.py").write_text(CHANGE.replace("TOKEN", token))
    said = run_under_systemd(root.path, STEPS.replace("SETTING", str(RPS)), tmp_path)
    outputs = [step.strip().split("\n")[1:] for step in said.split("== ")[1:]]
    assert len(outputs) == len(EXPECTED)
    for output, expected in zip(outputs, EXPECTED, strict=True):
        assert any(re.fullmatch(expected, line) for line in output or [""]), said
