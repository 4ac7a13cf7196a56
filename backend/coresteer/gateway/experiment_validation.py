"""Bounds on what agents say of experiments: it is untrusted, stored, shown, and passed on to other agents."""

import math
import re
from ipaddress import ip_address

from coresteer.gateway.bounds import MAX_INT, MAX_NAME, MAX_TEXT, bad_text, bad_time
from coresteer_core.cpuset import MAX_CPUS
from coresteer_core.experiments.model import METRICS, Measured, RunState
from coresteer_core.protocol import ExperimentMessage

MAX_DISTURBED = 64
MAX_FIGURES = 256
_MAX_FIGURE = 1e18
_MAX_PERCENT = 101.0  # clock ticks are counted a little early or late
_FIGURE = re.compile(r"command\.[A-Za-z0-9_.-]{1,64}\Z", re.ASCII)
_NETDEV = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.@+-]{0,14})?\Z", re.ASCII)
_KINDS = frozenset(("busy", "user", "system", "irq", "softirq", "steal"))


def check_experiment(message: ExperimentMessage, *, now_ms: int) -> str | None:
    """Whether word of an experiment can be kept, and what it names be passed on to another agent."""
    measured = message.measured
    wrong = bad_text([message.run_id], MAX_NAME) or bad_text([message.sentence], MAX_TEXT)
    if wrong is None and not 0 < message.experiment_id < 2**31:
        wrong = f"{message.experiment_id} is not an experiment's number."
    if wrong is None and not _NETDEV.match(message.netdev):
        wrong = f"{message.netdev[:40]!r} is not a netdev's name."
    if wrong is None and not _is_address(message.address):
        wrong = f"{message.address[:40]!r} is not an address."
    if wrong is None and (measured is not None) != (message.state is RunState.MEASURED and message.run_id is not None):
        wrong = "only a run that was measured comes to something."
    if wrong is None and measured is not None:
        wrong = bad_time(measured.started_ms, now_ms) or _bad_measured(measured)
    return f"Experiment: {wrong}" if wrong else None


def _is_address(text: str) -> bool:
    """HOST:PORT with a number of a host, for a client on another node connects to it."""
    host, _, port = text.rpartition(":")
    try:
        return not text or (bool(ip_address(host)) and 0 < int(port) < 65_536)
    except ValueError:
        return False


def _bad_measured(measured: Measured) -> str | None:  # noqa: PLR0911 - one return a bound
    cells = [cell for column in measured.cpus.values() for cell in column if cell is not None]
    if not 0 < measured.duration_s <= 86_400 or not 0 <= measured.load_before < MAX_INT:
        return f"it lasted {measured.duration_s} s with {measured.load_before} tasks before it."
    if not (measured.steal_percent is None or 0 <= measured.steal_percent <= 100):
        return f"{measured.steal_percent} % were stolen."
    if unknown := sorted(measured.figures.keys() - METRICS.keys()):
        if len(unknown) > MAX_FIGURES:
            return f"it has {len(measured.figures)} figures, more than {MAX_FIGURES}."
        if not all(map(_FIGURE.match, unknown)):
            return f"{unknown[0][:40]!r} is no figure's name."
    if not all(math.isfinite(figure) and abs(figure) < _MAX_FIGURE for figure in measured.figures.values()):
        return "a figure is not a number that anything can have come to."
    if not measured.cpus.keys() <= _KINDS or any(len(column) > MAX_CPUS for column in measured.cpus.values()):
        return f"its CPUs have times that are none of {', '.join(sorted(_KINDS))}, or are more than {MAX_CPUS}."
    if not all(0 <= cell <= _MAX_PERCENT for cell in cells):  # NaN is none of these
        return "a CPU was busy for less than none or more than all of the time."
    if len(measured.disturbed) > MAX_DISTURBED:
        return f"{len(measured.disturbed)} reasons are more than {MAX_DISTURBED}."
    return bad_text(measured.disturbed, MAX_TEXT)
