"""Simulated response times of the workload of parallel jobs: jobs take turns, and processes wait for their peers."""

from coresteer_core.experiments.parallel_jobs import Bsp

_STRAGGLER = 0.25
"""Share of the imbalance by which the slowest process of a loop exceeds the mean."""
_MISSED = 0.5
"""Share of a loop's communication that a process waits because a peer does not run, for each further job."""
_SLICE_S = 0.02
_SPUN = {"block": 0.0, "spin-block": 0.05, "busy-wait": 1.0}
"""Share of the waiting time that is spent spinning."""


def bsp_figures(workload: Bsp) -> dict[str, float]:
    """Return response times, spin time, idle share and context switches, without noise.

    The policy does not act on these processes.
    """
    compute_s, io_s, exchange_s = workload.loop_s
    at_once = min(workload.mpl, workload.jobs)
    waits_s = exchange_s * _MISSED * (at_once - 1) + _STRAGGLER * workload.imbalance * (compute_s + io_s)
    spun_s = waits_s * _SPUN[workload.wait]
    busy_s = compute_s + exchange_s + spun_s
    loop_s = max(at_once * busy_s, compute_s + io_s + exchange_s + waits_s)
    loops, rounds = workload.jobs * workload.loops, -(-workload.jobs // at_once)
    makespan_s = rounds * workload.loops * loop_s
    switches = workload.processes * loop_s / _SLICE_S
    return {
        "job_response_s": (rounds + 1) / 2 * workload.loops * loop_s,
        "makespan_s": makespan_s,
        "loops_per_s": loops / makespan_s,
        "spin_s": loops * workload.processes * spun_s,
        "idle_percent": 100 * (1 - at_once * busy_s / loop_s),
        "voluntary_switches_per_loop": workload.processes * (1.0 if workload.wait == "busy-wait" else 3.0),
        "involuntary_switches_per_loop": switches if at_once > 1 else 0.0,
    }
