"""The filter line of the fleet page, such as ``web role:db softirq > 60 health:stale``. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from coresteer.fleet.figures import FleetNode, FleetValues, Mask
from coresteer.presence.schemas import Health

Test = Callable[[FleetNode], bool]
Comparison = Callable[[FleetValues], Mask]

_COLUMNS = MappingProxyType(
    {
        "softirq": ("softirq_cpu_percent", 1),
        "busiest": ("busiest_cpu_percent", 1),
        "rx": ("rx_bytes_per_s", 8),
        "tx": ("tx_bytes_per_s", 8),
        "interrupts": ("interrupts_per_s", 1),
        "drops": ("softnet_dropped_per_s", 1),
        "squeezed": ("squeezed_per_s", 1),
        "rtt": ("rtt_p99_us", 1),
        "wrong-node": ("wrong_node_percent", 1),
    }
)
"""Figures that change each second, with the factor to the unit in which they are shown."""
_OF_NODES: Mapping[str, Callable[[FleetNode], int | None]] = MappingProxyType(
    {"cpus": lambda node: node.cpus, "changes": lambda node: node.open_changes}
)
_COMPARE = MappingProxyType({">": np.greater, "<": np.less, ">=": np.greater_equal, "<=": np.less_equal, "=": np.equal})
_MULTIPLES = MappingProxyType({"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12})
_YES_NO = MappingProxyType({"yes": True, "no": False})
_KEYS = ("label", "health", "simulated", "mode", "kernel", "driver")
_PART = re.compile(r"([^\s<>=:]+)\s*(>=|<=|>|<|=)\s*(\S*)|(\S+)")
"""A comparison may contain spaces; other parts end at the next space."""
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kmgt]?)%?")

_MOST_PARTS = 16
"""Each is tried with every node."""


@dataclass
class Filter:
    """A parsed filter: all of its parts must hold. problems: a sentence for each invalid part, which is ignored.

    words: parts of the name, in small letters.
    """

    tests: list[Test] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def mask(self, nodes: Sequence[FleetNode], values: FleetValues) -> Mask:
        """Return which of the nodes match. values: their figures."""
        words, tests = self.words, self.tests
        found = np.ones(len(nodes), np.bool_)
        for at, node in enumerate(nodes if words or tests else ()):
            name = node.name.lower()
            found[at] = all(word in name for word in words) and all(test(node) for test in tests)
        for compare in self.comparisons:
            found &= compare(values)
        return found


class _ProblemError(Exception):
    """An invalid part; the text says what to enter."""


def parse_filter(line: str) -> Filter:
    """Return the filter of a line."""
    found = Filter()
    parts = [*dict.fromkeys(_PART.findall(line.lower()))]
    if len(parts) > _MOST_PARTS:
        found.problems.append(f"Only the first {_MOST_PARTS} parts of the filter are used.")
    for name, compare, value, word in parts[:_MOST_PARTS]:
        try:
            if compare:
                _add_comparison(found, name, compare, value)
            elif ":" in word:
                _add_key(found, *word.split(":", 1))
            else:
                found.words.append(word)
        except _ProblemError as problem:
            found.problems.append(str(problem))
    return found


def _add_comparison(found: Filter, name: str, compare: str, value: str) -> None:
    if name not in _COLUMNS and name not in _OF_NODES:
        raise _ProblemError(f"“{name}” is not a figure; use {', '.join([*_COLUMNS, *_OF_NODES])}.")
    if (match := _NUMBER.fullmatch(value)) is None:
        raise _ProblemError(f"Enter a number after “{name} {compare}”, for example {name} {compare} 60.")
    wanted, holds = float(match[1]) * _MULTIPLES[match[2]], _COMPARE[compare]
    if name in _COLUMNS:
        column, factor = _COLUMNS[name]
        found.comparisons.append(lambda values: np.asarray(holds(values.metrics[column] * factor, wanted)))
        return
    read = _OF_NODES[name]
    found.tests.append(lambda node: (figure := read(node)) is not None and bool(holds(figure, wanted)))


def _add_key(found: Filter, key: str, value: str) -> None:
    match key:
        case "label":
            found.tests.append(_label(value))
        case "health":
            if value not in list(Health):
                raise _ProblemError(f"“health:{value}” is invalid; use {', '.join(Health)}.")
            found.comparisons.append(lambda values: values.is_of(Health(value)))
        case "simulated":
            if value not in _YES_NO:
                raise _ProblemError(f"“simulated:{value}” is invalid; use yes or no.")
            found.tests.append(lambda node: node.simulated is _YES_NO[value])
        case "mode":
            found.tests.append(lambda node: value in (node.mode or "").lower())
        case "kernel":
            found.tests.append(lambda node: value in (node.kernel or "").lower())
        case "driver":
            found.tests.append(lambda node: any(value in driver.lower() for driver in node.drivers))
        case _:
            raise _ProblemError(f"“{key}:{value}” is not a filter; use {':, '.join(_KEYS)}:.")


def _label(text: str) -> Test:
    name, equals, value = text.partition("=")
    if not name:
        raise _ProblemError("Enter a label after “label:”, for example label:role=db.")

    def test(node: FleetNode) -> bool:
        found = next((of for label, of in node.labels.items() if label.lower() == name), None)
        return found is not None and (not equals or found.lower() == value)

    return test
