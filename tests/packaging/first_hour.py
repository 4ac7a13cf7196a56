"""docs/FIRST_HOUR.md, literally: its commands on four clean Debian systems, and what it does in a browser by the API.

`make test-first-hour` runs it, not `make test`. It prints how long each step took.
"""

import asyncio
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any  # JSON of the API
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests
from tests.packaging.cycle import BUILT, repacked
from tests.packaging.systemd_machines import GATEWAY, Machine, machines
from tests.support.dashboard import NEEDS_MORE, QUERIES, is_answered
from tests.support.polling import poll
from tests.support.prometheus import running_prometheus

from coresteer.config import REPOSITORY

PAGE = REPOSITORY / "docs/FIRST_HOUR.md"
BACKEND, WEB = "coresteer.example", ("web-1", "web-2", "web-3")
URL = f"https://{BACKEND}:8420"
API = f"{URL}/api/v1"
ISSUER = "http://127.0.0.1:9000"
REPLACED = {"https://login.example.com/realms/ops": ISSUER}
"""The one thing that differs from the page: the issuer, without TLS on the loopback of the backend's machine."""
CONSENT = "import requests, sys; print(requests.get(sys.argv[1], allow_redirects=False).headers['location'])"
RPS = "sys/class/net/host0/queues/rx-0/rps_cpus"
_BLOCK = re.compile(r"<!-- on (?P<names>[^>]+) -->\n```sh\n(?P<script>.*?)^```$", re.DOTALL | re.MULTILINE)
SLOW_S = 180
"""Enough for a rollout, or for three machines on a busy host."""


class Hour:
    """The machines, and the administrator's browser."""

    def __init__(self, found: dict[str, Machine], folder: Path) -> None:
        self.machines, self.folder = found, folder
        self.backend, self.web = found[BACKEND], [found[name] for name in WEB]
        self.browser = requests.Session()
        self.browser.trust_env = False
        self.browser.verify = str(self.backend.root / "var/lib/coresteer-backend/tls/ca.pem")
        self.output = ""

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        answer = self.browser.request(method, f"{API}{path}", json=body, timeout=30)
        assert answer.ok, f"{method} {path}: {answer.text}"
        return answer.json() if answer.content else None

    def token(self, role: str) -> str:
        return str(self.ask("POST", "/tokens", {"name": f"of {role}", "role": role})["token"])

    def live(self) -> list[dict[str, Any]]:
        return [node for node in self.ask("GET", "/nodes") if node["health"] == "live"]

    def rps(self) -> list[int]:
        return [int(machine.run(f"cat /{RPS}").replace(",", ""), 16) for machine in self.web]

    def await_rps(self, *expected: int) -> None:
        poll(lambda: self.rps() == list(expected), timeout_s=SLOW_S, interval_s=0.5)

    def await_state(self, change: str, state: str) -> None:
        poll(lambda: self.ask("GET", f"/changes/{change}"), lambda found: found["state"] == state)


Block = Callable[[], str]


def backend(hour: Hour, block: Block) -> None:
    shutil.copy(next(BUILT.glob("coresteer-backend_*.deb")), hour.backend.home)
    link = block().strip().splitlines()[-1]
    body = {"token": link.partition("token=")[2], "username": "ada", "password": "correct horse battery"}
    hour.browser.headers["X-CSRF-Token"] = hour.ask("POST", "/auth/setup", body)["csrf_token"]


def agents(hour: Hour, block: Block) -> None:
    block()
    for machine in hour.web:
        shutil.copy(next(BUILT.glob("coresteer-agent_*.deb")), machine.home)
        shutil.copy(hour.backend.home / "token", machine.home)
    block()
    poll(lambda: {node["name"] for node in hour.live()} == set(WEB), timeout_s=SLOW_S)


def change(hour: Hour, _: Block) -> None:
    node = next(node["id"] for node in hour.live() if node["name"] == "web-1")
    for confirm in (False, True):
        preview = hour.ask(
            "POST", f"/nodes/{node}/previews", {"desired": [{"key": "netdev/host0/rx-0/rps", "value": "0"}]}
        )
        body = {"plan": preview["plan"], "confirm_timeout_s": 30}
        made = hour.ask("POST", f"/nodes/{node}/changes", body)["id"]
        hour.await_state(made, "unconfirmed")
        hour.await_rps(1, 0, 0)
        if confirm:
            hour.ask("POST", f"/changes/{made}/confirm")
        else:
            hour.await_rps(0, 0, 0)


def policy(hour: Hour, block: Block) -> None:
    (hour.backend.home / "api-token").write_text(hour.token("operator"))
    block()
    block()
    hour.await_rps(3, 3, 3)


def alert(hour: Hour, block: Block) -> None:
    with webhook() as notifications:
        body = {"name": "hook", "kind": "webhook", "url": f"http://{GATEWAY}:9001/", "secret": "key"}
        receiver = hour.ask("POST", "/alert-receivers", body)["id"]
        hour.ask("POST", f"/alert-receivers/{receiver}/test")
        poll(lambda: len(notifications) == 1, timeout_s=SLOW_S)
        block()
        poll(lambda: "Setting drifted" in str(notifications), timeout_s=SLOW_S)


def sign_on(hour: Hour, block: Block) -> None:
    inside = ["nsenter", "--target", str(hour.backend.leader), "--net", sys.executable]
    issuer = subprocess.Popen([*inside, "-m", "tests.support.mock_issuer", "9000"], stdout=subprocess.PIPE)
    try:
        assert issuer.stdout is not None
        assert issuer.stdout.readline() == b"ready\n"
        block()
        poll(lambda: len(hour.live()) == len(WEB), timeout_s=SLOW_S)
        person = requests.Session()
        person.trust_env, person.verify = False, hour.browser.verify
        at_issuer = person.post(f"{API}/auth/sso/begin", json={"return_to": "/"}, timeout=30).json()["url"]
        consent = subprocess.run([*inside, "-c", CONSENT, at_issuer], check=True, capture_output=True, text=True)
        body = dict(parse_qsl(urlsplit(consent.stdout.strip()).query))
        answer = person.post(f"{API}/auth/sso/finish", json=body, timeout=30)
        assert (answer.json()["username"], answer.json()["role"]) == ("kim", "admin")
    finally:
        issuer.terminate()
        issuer.wait()


def metrics(hour: Hour, _: Block) -> None:
    jobs = re.search(r"```yaml\n(scrape_configs:.*?)```", (REPOSITORY / "docs/METRICS.md").read_text(), re.DOTALL)
    assert jobs is not None
    (hour.folder / "token").write_text(hour.token("viewer"))
    config = jobs[1]
    for written, here in {
        "/etc/prometheus/coresteer-token": str(hour.folder / "token"),
        "/etc/prometheus/coresteer-ca.pem": str(hour.browser.verify),
        '"backend-1:8420", "backend-2:8420"': f'"{BACKEND}:8420"',
        "coresteer.example.org": BACKEND,
        "30s": "2s",
    }.items():
        assert written in config
        config = config.replace(written, here)

    async def answered() -> None:
        async with running_prometheus(hour.folder, f"global: {{scrape_interval: 2s}}\n{config}") as url:
            empty = set(QUERIES)
            end = time.monotonic() + SLOW_S
            while empty > NEEDS_MORE:
                empty = {
                    title
                    for title in empty
                    if not await is_answered(url, QUERIES[title].replace("$__rate_interval", "20s"))
                }
                assert time.monotonic() < end, empty
                await asyncio.sleep(1)

    asyncio.run(answered())


def stop(hour: Hour, _: Block) -> None:
    begun = hour.ask("POST", "/stops", {"restore": True, "reason": "a drill"})["id"]
    hour.await_rps(0, 0, 0)
    hour.ask("POST", f"/stops/{begun}/lift")
    hour.await_rps(3, 3, 3)


def recovery(hour: Hour, block: Block) -> None:
    block()
    block()
    poll(lambda: _is_up(hour) and len(hour.live()) == len(WEB), timeout_s=SLOW_S)
    assert [each["name"] for each in hour.ask("GET", "/policies")] == ["spread received packets"]


def upgrade(hour: Hour, block: Block) -> None:
    before = hour.rps()
    for machine, name in [(hour.backend, "backend"), *((machine, "agent") for machine in hour.web)]:
        (machine.home / "new").mkdir()
        repacked(
            next(BUILT.glob(f"coresteer-{name}_*.deb")), machine.home / f"new/coresteer-{name}_99.0-1.deb", hour.folder
        )
    block()
    block()
    poll(lambda: _is_up(hour) and len(hour.live()) == len(WEB), timeout_s=SLOW_S)
    assert hour.rps() == before


def removal(hour: Hour, block: Block) -> None:
    block()
    assert hour.rps() == [0, 0, 0]
    block()


STEPS: dict[str, Callable[[Hour, Block], None]] = {
    "1": backend,
    "2": agents,
    "4": change,
    "5": policy,
    "6": alert,
    "7": sign_on,
    "8": metrics,
    "9": stop,
    "10": recovery,
    "11": upgrade,
    "12": removal,
}


def test_the_first_hour_is_as_its_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sections = re.findall(r"^## (\d+)\. (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert {number for number, _, text in sections if _BLOCK.search(text)} <= set(STEPS)
    with machines([BACKEND, *WEB]) as found:
        hour = Hour(found, tmp_path)
        for number, title, text in sections:
            if number not in STEPS:
                continue
            blocks = _blocks(hour, text)
            began = time.monotonic()
            STEPS[number](hour, lambda: next(blocks))  # noqa: B023 - called in this round
            with capsys.disabled():
                sys.stdout.write(f"{number:>3}  {title:<60} {time.monotonic() - began:6.1f} s\n")
            assert next(blocks, None) is None, f"a block of step {number} was not run"


def _blocks(hour: Hour, text: str) -> Iterator[str]:
    """Run one block after the other; yield the output of each."""
    for block in _BLOCK.finditer(text):
        script = block["script"]
        for written, here in REPLACED.items():
            script = script.replace(written, here)
        yield "".join(hour.machines[name].run(script) for name in block["names"].split())


def _is_up(hour: Hour) -> bool:
    try:
        return hour.browser.get(f"{URL}/readyz", timeout=5).ok
    except requests.ConnectionError:
        return False


@contextmanager
def webhook() -> Iterator[list[bytes]]:
    """A receiver on the bridge; yields the bodies of the notifications."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

    with ThreadingHTTPServer((GATEWAY, 9001), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield bodies
        server.shutdown()
