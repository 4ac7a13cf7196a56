"""One run of the simulation: a scheme on a machine with a set of jobs."""

import numpy as np

from coresteer.simulation.engine import simulate
from coresteer.simulation.jobs import Jobs
from coresteer.simulation.machine import Machine
from coresteer.simulation.parameters import Parameters
from coresteer.simulation.results import Result
from coresteer.simulation.schemes import Scheme
from coresteer.simulation.state import COSTS, EVENT, JOB, NODE, PEER, PROCESS, RANK, SENDER, TOTALS, TRACE


def costs_of(parameters: Parameters, scheme: Scheme, jobs: Jobs) -> np.void:
    """Return the engine's constants of a run."""
    costs = np.zeros(1, COSTS)
    for source, names in (
        (parameters, [name for name in COSTS.names or () if hasattr(parameters, name)]),
        (scheme, ["wait", "arrival", "reorder"]),
        (jobs, ["compute_s", "io_s", "stride", "ring"]),
    ):
        for name in names:
            costs[name] = getattr(source, name)
    constants: np.void = costs[0]
    return constants


def empty_machine(parameters: Parameters, jobs: Jobs, traced: int = 0) -> Machine:
    """Return the state of a machine on which nothing has run. traced: time slices to record, from the first one."""
    nodes, slots, count = parameters.nodes, parameters.nodes * parameters.mpl, len(jobs.size)
    node = np.zeros(nodes, NODE)
    node["current"] = node["last"] = -1
    node["next_s"] = np.inf
    node["ts_s"] = parameters.first_slice_s
    job, ranks = np.zeros(count, JOB), np.zeros((count, int(jobs.size.max())), RANK)
    for name in ("arrival_s", "size", "loops", "peers", "delay_s"):
        job[name] = getattr(jobs, name)
    job["left"] = jobs.size
    ranks["offset"] = jobs.offset
    return Machine(
        np.zeros(slots, PROCESS), node, np.zeros((slots, nodes), SENDER), np.zeros((nodes, nodes), PEER),
        job, ranks, np.zeros(4 * slots + 4, EVENT), np.zeros(1, TOTALS), jobs.factors, np.zeros(traced, TRACE),
    )  # fmt: skip


def run(parameters: Parameters, scheme: Scheme, jobs: Jobs) -> Result:
    """Simulate a set of jobs under a scheme."""
    machine = empty_machine(parameters, jobs)
    events, elapsed_s = simulate(costs_of(parameters, scheme, jobs), machine)

    def total(name: str) -> float:
        return float(machine.node[name].sum())

    return Result(
        response_s=float((machine.job["end_s"] - jobs.arrival_s).mean()),
        elapsed_s=float(elapsed_s),
        compute_s=total("compute_s"),
        spin_s=total("spin_s"),
        switch_s=total("switch_s"),
        overhead_s=total("overhead_s"),
        idle_s=total("idle_s"),
        switches=int(total("switches")),
        messages=int(machine.totals["messages"][0]),
        events=int(events),
    )
