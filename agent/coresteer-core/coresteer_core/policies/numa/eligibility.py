"""Which processes the policy may move."""

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.numa import NumaTask
from coresteer_core.policies.numa.explain import format_bytes
from coresteer_core.policies.numa.spec import Numa


def why_fixed(task: NumaTask, spec: Numa, usable: frozenset[int], *, bound_by_us: bool) -> str | None:
    """Return why a process must not move, None where it may. bound_by_us: by the policy or by its static pins."""
    affinity, allowed = parse_cpu_list(task.affinity), parse_cpu_list(task.allowed) & usable
    reasons = (
        (task.kernel or task.bound, "A kernel thread."),
        (task.realtime, "A real-time process."),
        (task.age_s < spec.min_age_s, f"Younger than {spec.min_age_s:g} s."),
        (task.rss_bytes < spec.min_rss_bytes, f"It has less than {format_bytes(spec.min_rss_bytes)} of memory."),
        (task.mempolicy is not None, f"Its program set its own memory policy ({task.mempolicy})."),
        (
            not bound_by_us and not affinity >= allowed,
            "Another program bound it to CPUs, which counts as a static pin.",
        ),
    )
    return next((sentence for applies, sentence in reasons if applies), None)
