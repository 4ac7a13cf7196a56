"""Which processes the policy may move."""

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.numa import NumaTask
from coresteer_core.policies.numa.explain import format_bytes
from coresteer_core.policies.numa.spec import Numa


def why_fixed(task: NumaTask, spec: Numa, unbound: frozenset[int], *, bound_by_us: bool) -> str | None:
    """Return why a process must not move, None where it may. unbound: View.unbound_cpus().

    bound_by_us: by the policy or by its static pins.
    """
    reasons = (
        (task.kernel or task.bound, "A kernel thread."),
        (task.realtime, "A real-time process."),
        (task.age_s < spec.min_age_s, "Younger than {age:g} s."),
        (task.rss_bytes < spec.min_rss_bytes, "It has less than {memory} of memory."),
        (task.mempolicy is not None, "Its program set its own memory policy ({mempolicy})."),
        (
            task.threads_differ and not bound_by_us,
            "Another program bound its threads to different CPUs, which counts as a static pin.",
        ),
        (
            not bound_by_us
            and task.affinity != task.allowed
            and not parse_cpu_list(task.affinity) >= parse_cpu_list(task.allowed) & unbound,
            "Another program or policy bound it to CPUs, which counts as a static pin.",
        ),
    )
    sentence = next((sentence for applies, sentence in reasons if applies), None)
    if sentence is None:
        return None
    return sentence.format(age=spec.min_age_s, memory=format_bytes(spec.min_rss_bytes), mempolicy=task.mempolicy)
