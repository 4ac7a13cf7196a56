"""Rules for messages of experiments that relate several fields; each returns a sentence on what is wrong, or None."""

from ipaddress import ip_address

from coresteer_core.experiments.model import RunState
from coresteer_core.experiments.run_metrics import CPU_KINDS, MAX_OWN_FIGURES, OWN_FIGURE
from coresteer_core.metrics import EXPERIMENT_METRICS
from coresteer_core.protocol import ExperimentMessage


def invalid_address(message: ExperimentMessage) -> str | None:
    """Return why the load's address is invalid: it must be empty or IP:PORT, because another node connects to it."""
    host, _, port = message.address.rpartition(":")
    try:
        if not message.address or (ip_address(host) and 0 < int(port) < 65_536):
            return None
    except ValueError:
        pass
    return f"{message.address[:40]!r} is not an address IP:PORT."


def unexpected_result(message: ExperimentMessage) -> str | None:
    """Return why a run's result does not fit its state: there is one exactly when the state is measured. Else None."""
    is_measured = message.state is RunState.MEASURED and message.run_id is not None
    if (message.measured is not None) == is_measured:
        return None
    return f"state {message.state} with run {(message.run_id or '')[:40]!r} does not fit its result."


def invalid_figures(message: ExperimentMessage) -> str | None:
    """Return which figure of a result is unknown, or that there are too many of a command's own, else None."""
    if message.measured is None:
        return None
    names = sorted(message.measured.figures.keys() - EXPERIMENT_METRICS.keys())
    if len(names) > MAX_OWN_FIGURES:
        return f"{len(names)} figures of a command exceed the limit of {MAX_OWN_FIGURES}."
    invalid = next((name for name in names if OWN_FIGURE.match(name) is None), None)
    return None if invalid is None else f"{invalid[:40]!r} is not the name of a figure."


def invalid_cpu_times(message: ExperimentMessage) -> str | None:
    """Return which kind of CPU time of a result is unknown, None if all are known."""
    unknown = (
        next((kind for kind in message.measured.cpus if kind not in CPU_KINDS), None) if message.measured else None
    )
    return None if unknown is None else f"{unknown[:40]!r} is not one of the CPU times {', '.join(CPU_KINDS)}."
