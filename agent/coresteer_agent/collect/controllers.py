"""Detects other programs that move interrupts or processes, such as irqbalance and kubelet, and who set ksoftirqd."""

from collections.abc import Mapping
from pathlib import Path

from coresteer_agent.collect.files import names, read_bytes
from coresteer_agent.collect.kubelet import assigns_cpus
from coresteer_agent.collect.rows import value_or_none
from coresteer_agent.collect.tasks import parse_scheduling
from coresteer_core.cpuset import format_cpu_list

KNOWN_CONTROLLERS = {
    b"irqbalance\n": "irqbalance",
    b"tuned\n": "tuned",
    b"numad\n": "numad",
    b"kubelet\n": "kubelet",
}
"""By /proc/PID/comm."""

_KSOFTIRQD = b"ksoftirqd/"


def find_processes(root: Path) -> dict[int, bytes]:
    """Return the comm of known controllers and of each CPU's ksoftirqd by PID. Reads every process: milliseconds.

    Any process can have the name of another one.
    """
    found = {int(pid): read_bytes(root, f"proc/{pid}/comm") or b"" for pid in names(root, "proc") if pid.isdecimal()}
    return {pid: comm for pid, comm in found.items() if comm in KNOWN_CONTROLLERS or comm.startswith(_KSOFTIRQD)}


def find_controllers(root: Path, processes: Mapping[int, bytes]) -> list[str]:
    """Return the names of running programs that move interrupts or processes. processes: of find_processes().

    kubelet moves processes only where its CPU manager has the policy static.
    """
    running = {KNOWN_CONTROLLERS[comm] for comm in processes.values() if comm in KNOWN_CONTROLLERS}
    return sorted(running if assigns_cpus(root) else running - {"kubelet"})


def changed_ksoftirqd(root: Path, processes: Mapping[int, bytes]) -> str | None:
    """Return the nice values of ksoftirqd that are not the kernel's 0, ``nice -10 on CPUs 0-3``; None without one."""
    by_nice: dict[int, list[int]] = {}
    for pid, comm in processes.items():
        cpu = comm.removeprefix(_KSOFTIRQD).strip()
        path = f"proc/{pid}/stat"
        if not comm.startswith(_KSOFTIRQD) or not cpu.isdigit() or (text := read_bytes(root, path)) is None:
            continue
        found = value_or_none(parse_scheduling, text, path)
        if found is not None and found.kernel and found.nice != 0:
            by_nice.setdefault(found.nice, []).append(int(cpu))
    return ", ".join(f"nice {nice} on CPUs {format_cpu_list(cpus)}" for nice, cpus in sorted(by_nice.items())) or None
