"""What kinds of Setting share."""

from functools import lru_cache

from coresteer_core.cpuset import CpuListError, format_cpu_list, parse_cpu_list


class SettingError(ValueError):
    """A key or value that is not a Setting's; the message is a sentence for the person who asked."""


def cpu_list(value: str) -> str:
    """A CPU list as the kernel would print it. Raises SettingError with the part that is wrong."""
    try:
        return common_cpus(value, None)
    except CpuListError as error:
        raise SettingError(str(error)) from None


@lru_cache(maxsize=1024)  # a round of policies asks again and again for the same
def common_cpus(value: str, online: frozenset[int] | None) -> str:
    """A CPU list as the kernel would print it, without CPUs that are offline. Raises CpuListError."""
    cpus = parse_cpu_list(value)
    return format_cpu_list(cpus if online is None else cpus & online)


def say_cpus(cpus: frozenset[int] | set[int]) -> str:
    """A set of CPUs for a sentence: ``CPU 3``, ``CPUs 0-3``, ``no CPU``."""
    return f"CPU{'s' if len(cpus) > 1 else ''} {format_cpu_list(cpus)}" if cpus else "no CPU"


def no_netdev(name: str) -> str:
    """That a node has no such network device."""
    return f"This node has no network device {name}."
