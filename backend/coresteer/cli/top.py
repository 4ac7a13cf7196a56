"""`coresteer top`: the fleet's nodes by a figure, and what would help its hot spots, as text."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias  # Any: answers of the API
from urllib.parse import urlencode

from coresteer.cli.api_client import ApiClient
from coresteer.cli.output import printable
from coresteer.fleet import thresholds

Json: TypeAlias = dict[str, Any]
Style: TypeAlias = Literal["plain", "head", "hot", "away"]
_MAX_SPOTS = 8
_MAX_NAME = 32


@dataclass(frozen=True)
class Column:
    """A figure of nodes. sort: its name in the API's `sort`; metric: of FLEET_METRICS."""

    sort: str
    metric: str
    title: str
    unit: Literal["%", "bit/s", "1/s", "µs"]


COLUMNS = (
    Column("softirq", "softirq_cpu_percent", "softirq", "%"),
    Column("busiest", "busiest_cpu_percent", "busiest CPU", "%"),
    Column("dropped", "softnet_dropped_per_s", "dropped/s", "1/s"),
    Column("squeezed", "squeezed_per_s", "squeezed/s", "1/s"),
    Column("interrupts", "interrupts_per_s", "interrupts/s", "1/s"),
    Column("wrong-node", "wrong_node_percent", "wrong node", "%"),
    Column("rx", "rx_bytes_per_s", "rx bit/s", "bit/s"),
    Column("tx", "tx_bytes_per_s", "tx bit/s", "bit/s"),
    Column("rtt", "rtt_p99_us", "RTT p99", "µs"),
)
SORTS = (*(column.sort for column in COLUMNS), "health", "name")
_CPUS = {"softirq_cpu_percent": "softirq_cpu", "busiest_cpu_percent": "busiest_cpu"}


@dataclass(frozen=True)
class Line:
    """A line of the view."""

    text: str
    style: Style = "plain"


@dataclass(frozen=True)
class View:
    """What is shown. filter: as the fleet page's; sort: of SORTS; offset, rows: of the nodes in that order."""

    filter: str
    sort: str
    offset: int = 0
    rows: int = 20


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser."""
    top = commands.add_parser(
        "top",
        help="show the fleet's hot spots, live on a terminal",
        description="Show the fleet's nodes by a figure, and what would help the hot spots. On a terminal the view is "
        "live: s sorts by the next figure, the arrow keys page, q ends. Elsewhere it is printed once.",
    )
    top.add_argument("filter", nargs="*", help="as on the fleet page: web label:role=db 'softirq > 60'")
    top.add_argument("--sort", choices=SORTS, default="softirq", help="default: softirq")


def fetch(client: ApiClient, view: View) -> tuple[Json, list[Json]]:
    """Return the fleet's answer and suggestions for its hot spots. Raises ApiError and UnreachableError."""
    sort = view.sort if view.sort == "name" else f"-{view.sort}"
    query = {"q": view.filter, "sort": sort, "offset": view.offset, "limit": view.rows, "hot_spots": _MAX_SPOTS}
    answer = client.get("/fleet", **query)
    nodes = [("node_id", node["id"]) for node in answer["hot_spots"]]
    return answer, client.get(f"/suggestions?{urlencode(nodes)}") if nodes else []


def lines(answer: Json, suggestions: Sequence[Json], view: View, *, address: str, width: int) -> list[Line]:
    """Return the view as lines of at most width characters; columns that do not fit are left out."""
    found = [Line(text) for text in _summary(answer, address)]
    found += [Line(f"filter: {problem}", "hot") for problem in answer["problems"]]
    found.append(Line(""))
    cells = [["node", "health", *(_title(column, view.sort) for column in COLUMNS)]]
    cells += [_cells(node) for node in answer["rows"]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    styles: list[Style] = ["head", *map(_style, answer["rows"])]
    for row, style in zip(cells, styles, strict=True):
        texts = [
            cell.ljust(size) if at < 2 else cell.rjust(size)
            for at, (cell, size) in enumerate(zip(row, widths, strict=True))
        ]
        while len("  ".join(texts)) > width and len(texts) > 2:
            texts.pop()
        found.append(Line("  ".join(texts), style))
    if not answer["rows"]:
        found.append(Line("No node matches."))
    found += [Line(""), Line("Hot spots, and what would help", "head")]
    sentences = {each["node_id"]: each["sentence"] for each in suggestions}
    for node in answer["hot_spots"]:
        found.append(Line(f"{_name(node)}: {sentences.get(node['id'], 'no suggestion.')}"))
    if not answer["hot_spots"]:
        busy = f"{thresholds.BUSY_PERCENT} % busy"
        found.append(Line(f"No drops, no time squeeze, and no CPU overloaded by softirq or {busy}."))
    return [Line(printable(line.text)[:width], line.style) for line in found]


def _summary(answer: Json, address: str) -> list[str]:
    totals = answer["totals"]
    health = ", ".join(f"{count} {name}" for name, count in totals["health"].items() if count)
    bound = f"{thresholds.SOFTIRQ_BOUND_PERCENT} % softirq or more"
    hot = "" if totals["hot"] is None else f"   {totals['hot']} with a CPU at {bound}"
    changes = f"   {totals['open_changes']} changes open" if totals["open_changes"] else ""
    sums = totals["sums"]
    traffic = [f"{each.title} {_number(sums[each.metric], each)}" for each in COLUMNS if each.metric in sums]
    return [
        f"{address}   {totals['nodes']} of {answer['nodes']} nodes: {health or 'none'}{hot}{changes}",
        "   ".join(traffic),
    ]


def _title(column: Column, sort: str) -> str:
    return f"{column.title}▼" if column.sort == sort else column.title


def _name(node: Json) -> str:
    name = str(node["name"])
    return name if len(name) <= _MAX_NAME else f"{name[: _MAX_NAME - 1]}…"


def _cells(node: Json) -> list[str]:
    figures = node["figures"]
    return [_name(node), node["health"], *(_figure(figures, column) for column in COLUMNS)]


def _figure(figures: Json | None, column: Column) -> str:
    value = None if figures is None else figures["metrics"].get(column.metric)
    text = _number(value, column)
    cpu = None if figures is None or value is None else figures.get(_CPUS.get(column.metric, ""))
    return text if cpu is None else f"cpu{cpu} {text}"


def _number(value: float | None, column: Column) -> str:
    if value is None:
        return "-"
    if column.unit == "%":
        return f"{value:.0f} %"
    if column.unit == "µs":
        return f"{value:.0f} µs" if value < 1000 else f"{value / 1000:.1f} ms"
    size = value * 8 if column.unit == "bit/s" else value
    for factor, prefix in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if size >= factor:
            return f"{size / factor:.1f}{prefix}"
    return f"{size:.1f}" if 0 < size < 10 else f"{size:.0f}"


def _style(node: Json) -> Style:
    if node["health"] != "live":
        return "away"
    metrics = node["figures"]["metrics"] if node["figures"] else {}
    figure = {name: value or 0 for name, value in metrics.items()}
    is_hot = (
        figure.get("softnet_dropped_per_s", 0) > 0
        or figure.get("squeezed_per_s", 0) >= thresholds.SQUEEZED_PER_S
        or figure.get("softirq_cpu_percent", 0) >= thresholds.SOFTIRQ_PERCENT
        or figure.get("busiest_cpu_percent", 0) >= thresholds.BUSY_PERCENT
    )
    return "hot" if is_hot else "plain"
