"""`coresteer top`: the view as text, printed once, and live on a terminal."""

import asyncio
import curses
import fcntl
import os
import pty
import struct
import sys
import termios
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
import pytest_asyncio
from tests.backend.conftest import Backend
from tests.backend.live_node import connected_node
from tests.support.polling import PATIENCE_S

from coresteer.cli import top, top_screen
from coresteer.cli.api_client import ApiClient
from coresteer.cli.main import main
from coresteer.fleet import thresholds
from coresteer.fleet.schemas import SORTS

Json = dict[str, Any]  # Any: an answer of the API


def node(name: str, *, health: str = "live", cpu: int | None = 3, **metrics: float | None) -> Json:
    figures = {"busiest_cpu": cpu, "softirq_cpu": cpu, "metrics": metrics}
    return {"id": len(name), "name": name, "health": health, "figures": figures if metrics else None}


def answer(*rows: Json, **changes: object) -> Json:
    totals = {
        "nodes": len(rows), "health": {"live": 2, "stale": 0, "away": 1}, "hot": 1, "open_changes": 2,
        "sums": {"rx_bytes_per_s": 1.5e9, "tx_bytes_per_s": None},
    }  # fmt: skip
    return {"nodes": 9, "totals": totals, "problems": [], "rows": list(rows), "hot_spots": []} | changes


HOT = node("web-1", softirq_cpu_percent=92.4, rx_bytes_per_s=1.25e8, rtt_p99_us=1234.0, softnet_dropped_per_s=0.5)
AWAY = node("db-12", health="away")
CALM = node("web-10", softirq_cpu_percent=3.0, cpu=None)


def shown(answer: Json, suggestions: list[Json] | None = None, *, width: int = 160) -> list[top.Line]:
    return top.lines(answer, suggestions or [], top.View("", "softirq"), address="https://c.example", width=width)


def test_nodes_are_lines_with_figures_and_hot_spots_with_what_would_help() -> None:
    suggestion = {"node_id": HOT["id"], "sentence": "Move IRQ 41 to CPU 5."}
    found = shown(answer(HOT, AWAY, CALM, hot_spots=[HOT]), [suggestion])
    assert [" ".join(line.text.split()) for line in found] == [
        "https://c.example 3 of 9 nodes: 2 live, 1 away 1 with a CPU at 90 % softirq or more 2 changes open",
        "rx bit/s 12.0 G tx bit/s -",
        "",
        "node health softirq▼ busiest CPU dropped/s squeezed/s interrupts/s wrong node rx bit/s tx bit/s RTT p99",
        "web-1 live cpu3 92 % - 0.5 - - - 1.0 G - 1.2 ms",
        "db-12 away - - - - - - - - -",
        "web-10 live 3 % - - - - - - - -",
        "",
        "Hot spots, and what would help",
        "web-1: Move IRQ 41 to CPU 5.",
    ]
    assert [line.style for line in found[3:7]] == ["head", "hot", "away", "plain"]


@pytest.mark.parametrize("width", [20, 60, 79, 100])
def test_columns_that_do_not_fit_are_left_out_whole(width: int) -> None:
    found = shown(answer(HOT, CALM), width=width)
    assert max(len(line.text) for line in found) <= width
    assert len({len(line.text) for line in found[3:6]}) == 1


def test_an_empty_fleet_a_wrong_filter_and_names_that_would_steer_the_terminal_are_shown_as_such() -> None:
    found = [line.text for line in shown(answer(problems=["softirq > what"]))]
    assert "filter: softirq > what" in found
    assert "No node matches." in found
    assert not any("\x1b" in line.text for line in shown(answer(node("\x1b[2Jweb", rx_bytes_per_s=1.0))))


def test_every_figure_by_which_the_api_sorts_is_a_column() -> None:
    assert {column.sort: column.metric for column in top.COLUMNS} == dict(SORTS)


@pytest.mark.parametrize(
    ("metric", "least"),
    [
        ("softirq_cpu_percent", thresholds.SOFTIRQ_PERCENT),
        ("busiest_cpu_percent", thresholds.BUSY_PERCENT),
        ("squeezed_per_s", thresholds.SQUEEZED_PER_S),
    ],
)
def test_a_node_is_red_from_the_figure_that_makes_it_a_hot_spot(metric: str, least: float) -> None:
    rows = [node("web") | {"figures": {"metrics": {metric: each}}} for each in (least, least - 0.1)]
    found = shown(answer(*rows))
    assert [line.style for line in found[4:6]] == ["hot", "plain"]


class Screen:
    """A terminal on which keys are pressed, one after each drawing. drawn: the text of each."""

    def __init__(self, *keys: int) -> None:
        self._keys = list(keys)
        self.drawn: list[str] = []

    def getmaxyx(self) -> tuple[int, int]:
        return 24, 120

    def timeout(self, period_ms: int) -> None:
        """Wait for no key: they are pressed already."""

    def erase(self) -> None:
        self.drawn.append("")

    def addnstr(self, at: int, left: int, text: str, *_: int) -> None:
        self.drawn[-1] += f"{text}\n"

    def getch(self) -> int:
        return self._keys.pop(0)


class Fleet(ApiClient):
    """A backend with 15 nodes."""

    def get(self, path: str, **query: object) -> Json:
        assert isinstance(query["offset"], int)
        assert isinstance(query["limit"], int)
        rows = [node(f"node-{number}") for number in range(15)][query["offset"] :][: query["limit"]]
        return answer(*rows)


def test_the_last_page_is_the_end() -> None:
    screen = Screen(*[curses.KEY_DOWN] * 3, *[curses.KEY_UP] * 2, ord("q"))
    top_screen._live(cast("curses.window", screen), Fleet("https://c.example", ""), top.View("", "softirq"))
    assert ["node-0 " in each for each in screen.drawn] == [True, False, False, False, True, True]
    assert ["node-14 " in each for each in screen.drawn] == [False, True, True, True, False, False]


@pytest_asyncio.fixture
async def name(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The name of a connected node, whose backend the environment names."""
    admin = await backend.client("admin")
    made = (await admin.post("/api/v1/tokens", {"name": "top", "role": "viewer"})).json()
    monkeypatch.setenv("CORESTEER_URL", backend.url)
    monkeypatch.setenv("CORESTEER_TOKEN", made["token"])
    async with connected_node(backend) as live:
        yield live.node.name


async def test_without_a_terminal_it_is_printed_once(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await asyncio.to_thread(main, ["top", "--sort", "name"]) == 0
    assert name in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["top", "name-of-no-node"]) == 0
    assert "No node matches." in capsys.readouterr().out


async def test_on_a_terminal_it_is_live_until_q(name: str) -> None:
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    program = [sys.executable, "-c", "import sys; from coresteer.cli.main import main; sys.exit(main(['top']))"]
    environment = os.environ | {"TERM": "xterm", "LC_ALL": "C.UTF-8"}
    running = await asyncio.create_subprocess_exec(
        *program, stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)

    def until(text: str) -> None:
        seen = b""
        while text.encode() not in seen:
            seen += os.read(controller, 65536)

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.to_thread(until, name)
        os.write(controller, b"s")
        await asyncio.to_thread(until, "busiest CPU▼")
        os.write(controller, b"q")
        try:
            await asyncio.to_thread(until, "what never comes")
        except OSError:  # the terminal is closed
            assert await running.wait() == 0
    os.close(controller)
