"""A query of an application metric for one node and one period, and the value in Prometheus' answer. Pure.

https://prometheus.io/docs/prometheus/latest/querying/api/
"""

import json
import math
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from coresteer_core.metrics import MetricLabel

NODE, RANGE = "{{node}}", "{{range}}"
PREFIX = "app."
"""Before the name of an application metric where it stands among other metrics: ``app.checkout_p99``."""

_MAX_POINTS = 60
_MIN_PRESENT = 0.5
_MAX_QUOTED = 200
_NODE_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,253}", re.ASCII)


@dataclass(frozen=True)
class DeclaredMetric:
    """An application metric as an administrator declared it.

    name: without PREFIX. better: ``more``, ``less`` or empty. url: of the Prometheus server. query: PromQL with
    ``{{node}}`` for the node's name; with ``{{range}}`` it is evaluated once, at the end of the period, with the
    period's length as ``90s``; otherwise its value is the mean over the period. floor: the smallest value that counts,
    which stands for smaller ones in proofs, since 0 has no logarithm; None for a metric that was declared without one,
    of which 0 does not count.
    """

    name: str
    label: str
    unit: str
    better: Literal["more", "less", ""]
    url: str
    query: str
    floor: float | None

    @property
    def shown_as(self) -> MetricLabel:
        """Return the metric's label, unit and direction, as those of Coresteer's own metrics."""
        return MetricLabel(self.label, self.unit, self.better)


class Missing(StrEnum):
    """Why an application metric has no value."""

    NODE_NAME = "node-name"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    FORBIDDEN = "forbidden"
    REFUSED = "refused"
    TOO_LARGE = "too-large"
    NOT_PROMETHEUS = "not-prometheus"
    NO_DATA = "no-data"
    SEVERAL_SERIES = "several-series"
    NOT_A_NUMBER = "not-a-number"


@dataclass(frozen=True)
class Reading:
    """The value of an application metric in a period. value: None if it is missing, with the code and a sentence."""

    value: float | None = None
    missing: Missing | None = None
    reason: str = ""


ReadMetric: TypeAlias = Callable[[DeclaredMetric, str, datetime, datetime], Awaitable[Reading]]
"""Returns the value of an application metric for a node (by name) between two moments, or why it is missing."""


@dataclass(frozen=True)
class Request:
    """A request to Prometheus' HTTP API. path: below the server's address. points: expected in the answer."""

    path: str
    params: dict[str, str]
    points: int


def make_request(metric: DeclaredMetric, node: str, start: datetime, end: datetime) -> Request | Reading:
    """Return the request for a metric of a node between two moments, or why it cannot be made.

    A node's name comes from its machine, so only names that mean nothing else in PromQL are used.
    """
    if _NODE_NAME.fullmatch(node) is None:
        sentence = "The node's name has characters other than letters, digits, '.', ':', '_' and '-'."
        return Reading(missing=Missing.NODE_NAME, reason=sentence)
    seconds = max(1, round((end - start).total_seconds()))
    query = metric.query.replace(NODE, node).replace(RANGE, f"{seconds}s")
    if RANGE in metric.query:
        return Request("/api/v1/query", {"query": query, "time": f"{end.timestamp():.3f}"}, 1)
    step = max(1, math.ceil(seconds / _MAX_POINTS))
    first = start.timestamp() + step
    points = int(max(0.0, end.timestamp() - first) // step) + 1
    params = {"query": query, "start": f"{first:.3f}", "end": f"{end.timestamp():.3f}", "step": str(step)}
    return Request("/api/v1/query_range", params, points)


def parse_answer(body: bytes, status: int, points: int) -> Reading:
    """Return the value in an answer of Prometheus: the mean of its points. points: that the request expects.

    Zero is a value; an answer without a series, or with fewer than half of the points, is missing.
    """
    try:
        answer = json.loads(body)
        success = answer["status"] == "success"
    except (ValueError, RecursionError, KeyError, TypeError):
        sentence = f"The server answered with HTTP status {status} and not as Prometheus does."
        return Reading(missing=Missing.NOT_PROMETHEUS, reason=sentence)
    if not success:
        text = str(answer.get("error", f"HTTP status {status}"))[:_MAX_QUOTED]
        return Reading(missing=Missing.REFUSED, reason=f"Prometheus refused the query: {text}.".replace("..", "."))
    try:
        values = _values(answer["data"])
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
        sentence = "The answer of Prometheus has neither a scalar nor series of numbers."
        return Reading(missing=Missing.NOT_PROMETHEUS, reason=sentence)
    return values if isinstance(values, Reading) else _mean(values, points)


def _values(data: dict[str, Any]) -> list[float] | Reading:  # Any: JSON
    kind, result = data["resultType"], data["result"]
    if kind == "scalar":
        return [float(result[1])]
    if not result:
        return Reading(missing=Missing.NO_DATA, reason="Prometheus has no data for this node in the period.")
    if len(result) > 1:
        sentence = f"The query returned {len(result)} series; aggregate them to one, for example with sum()."
        return Reading(missing=Missing.SEVERAL_SERIES, reason=sentence)
    samples = [result[0]["value"]] if kind == "vector" else result[0]["values"]
    return [float(text) for _, text in samples]


def _mean(values: list[float], points: int) -> Reading:
    """Return the mean of the numbers; Prometheus writes 0/0 as NaN, which is a missing point."""
    numbers = [value for value in values if not math.isnan(value)]
    if values and not numbers:
        return Reading(
            missing=Missing.NOT_A_NUMBER, reason="The query has no numeric value: NaN, as for 0 divided by 0."
        )
    if any(math.isinf(value) for value in numbers):
        return Reading(missing=Missing.NOT_A_NUMBER, reason="The query's value is infinite.")
    if len(numbers) < _MIN_PRESENT * points:
        sentence = f"Prometheus has {len(numbers)} of {points} points in the period; at least half are needed."
        return Reading(missing=Missing.NO_DATA, reason=sentence)
    return Reading(math.fsum(value / len(numbers) for value in numbers))
