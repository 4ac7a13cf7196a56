"""What an experiment's run may not do on this node, whatever the backend asks for."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coresteer_agent.collect.files import read_text
from coresteer_core.cpuset import CpuListError, parse_cpu_list
from coresteer_core.experiments.load_limits import load_refusal
from coresteer_core.experiments.model import MAX_RUN_S, Run, Workload, has_client
from coresteer_core.node.limits import LIMITS_FILE, Limits, address_refusal
from coresteer_core.protocol import BeginExperiment


class RunError(Exception):
    """Raised if a run is not possible; the message is a sentence."""


def workload_refusal(limits: Limits, workload: Workload) -> str | None:
    """Return why this node's limits forbid to generate a workload, as a sentence; None if they allow it."""
    try:
        return load_refusal(limits, workload)
    except CpuListError as error:
        return f"The CPUs of the workload are invalid: {error}"


def run_refusal(begun: BeginExperiment, run: Run, limits: Limits, own_address: str) -> str | None:
    """Return why a run is refused: it differs from its experiment, or would send where it may not; None if it may.

    own_address: of the prepared server on this node, empty without one.
    """
    if not (0 <= run.warmup_s <= MAX_RUN_S and 0 < run.measure_s <= MAX_RUN_S):
        return f"Warm-up and measurement of a run may each last at most {MAX_RUN_S:g} s."
    asked, expected = ((each.workload, each.role) for each in (run, begun))
    if _kind(*asked) != _kind(*expected):
        return "The run has another kind of workload or another role than its experiment has begun with."
    if run.role != "client" and run.address not in ("", own_address):
        return f"The run names the server {run.address[:80]}, but this node's is {own_address or 'none'}."
    if not has_client(run.workload) or run.role == "alone":
        return None
    if run.receipts is None:
        return (
            "A load between two nodes needs receipts of the program that receives it, which this backend does not "
            "arrange; upgrade the backend."
        )
    return address_refusal(limits, run.address) if run.role == "client" else None


def _kind(workload: Workload, role: str) -> tuple[type[Workload], bool, str]:
    return type(workload), has_client(workload), role


@contextmanager
def confined_to_others(closed: frozenset[int]) -> Iterator[None]:
    """Keep what is started meanwhile off these CPUs: it inherits the affinity. Raises RunError without others.

    Where this thread runs only on them, all other online CPUs may be used, except isolated ones.
    """
    if not closed:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        kept_free = _listed("isolated") | _listed("nohz_full") | closed
        os.sched_setaffinity(0, before - closed or _listed("online") - kept_free)
    except OSError:
        raise RunError(
            f"The agent may use no CPU that is not off limits on this node: see cpus_off_limits in {LIMITS_FILE}."
        ) from None
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _listed(name: str) -> frozenset[int]:
    return parse_cpu_list(read_text(Path("/"), f"sys/devices/system/cpu/{name}") or "")
