"""Four regimes and two processes whose memory is on the wrong NUMA node, in one guest with two nodes.

    python -m tests.lab.bench_numa [REGIME...]

Each regime finds the same start: 320 MiB of each process on node 0, and both running on node 1. ``bound`` may run only
there, so its pages must follow. ``free`` may run anywhere; two processes that compute are bound to node 0, so that the
kernel has no reason to move it. An agent observes throughout. From numa_maps and the CPU on which each process ran
last: how long until 95 % of its pages are local, what was moved, what moves in the three minutes afterwards, and what
is left when the regime has ended. The guest is emulated and remote memory costs nothing in it: places and counts are
measured, never speed.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise

from tests.lab.fleet import Backend, backend, join
from tests.lab.machines import TWO_SOCKET
from tests.lab.memory import CPUS, Moment, balancing, look, stream
from tests.lab.nics import enforced
from tests.lab.provision import provide
from tests.lab.rig import Guest, boot
from tests.lab.test_affinity import STATE
from tests.support.polling import poll

MACHINE = replace(TWO_SOCKET, memory_mib=3072)
PROCESSES: dict[str, tuple[str, ...]] = {"bound": (), "free": ("--free",)}
"""Further arguments of tests.lab.stream by name."""
MIB = 320
"""Of each: numad considers no process with less than 300 MB."""
SPEC = {"type": "numa", "move_pages": True, "max_page_move_bytes": 512 << 20, "pins": {"bound": "1"}}
SETTLING_S, STEADY_S, LIFE_S = 60, 180, 3600
"""At most until all pages are local; what is called the steady state afterwards; of the processes."""
LEFT_S, RESTORED_S = 15, 60
"""When it is read what a regime leaves, unless all is as before sooner; the second for the policy, which restores."""
LOCAL, HELD_S = 0.95, 10
"""Share of local pages that counts, and for how long it must last."""
PAGES_MOVED = 0.05
"""Change of a process's share of pages on a node between two readings that counts as a move."""
NUMAD_UPTIME_S = 310
"""numad takes every process for one that it bound at boot, and does not move it again for 5 minutes."""
KHUGEPAGED = "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs"
"""numad sets it."""


@dataclass(frozen=True)
class Row:
    """One process under one regime; None: not reached, or not measured.

    local_after_s: until LOCAL of its pages were local for HELD_S. affinities, nodes, pages: until it settled, changes
    of its affinity, of the node on which it ran, and of more than PAGES_MOVED of its pages. mib: that changed nodes.
    remote, moves_per_min: in steady state. left_share: by which its pages differ from the start after the end.
    """

    regime: str
    process: str
    local_after_s: float | None
    affinities: int
    nodes: int
    pages: int
    mib: float
    remote: float | None
    moves_per_min: float | None
    affinity: str
    left_affinity: str
    left_share: float
    left_after_s: float


@dataclass
class Lab:
    """agent: PID of the one that runs now, None after it was killed."""

    guest: Guest
    host: Backend
    agent: int | None = None


def main() -> None:
    rows: list[Row] = []
    with backend() as host, boot(provide(), MACHINE, backend_port=host.port) as [guest], balancing(guest, "0"):
        lab = Lab(guest, host)
        for name in sys.argv[1:] or REGIMES:
            rows += observe(lab, name)
    print_table(rows)
    print(json.dumps([asdict(row) for row in rows]))


def observe(lab: Lab, name: str) -> list[Row]:
    """Start the processes, and watch them under a regime and after its end."""
    guest, brief = lab.guest, "kill" in name
    if lab.agent is None:
        lab.agent = join(guest, lab.host)
    with ExitStack() as stack:
        pids = processes(guest, stack)
        start, period_ms = look(guest, *pids.values()), guest.read(KHUGEPAGED)
        began_s, end = REGIMES[name](lab, stack)
        settling = watch(guest, [replace(start, at_s=began_s)], SETTLING_S, 1, until_local=True)
        steady = [] if brief else watch(guest, settling[-1:], STEADY_S, 5)
        said = end(settling[-1].at_s - began_s)
        left, left_after_s = await_start(guest, start, RESTORED_S if "policy" in name else LEFT_S)
        if (now := guest.read(KHUGEPAGED)) != period_ms:
            said.append(f"{KHUGEPAGED} is {now} instead of {period_ms}")
            guest.run("sh", "-c", f"echo {period_ms} > {KHUGEPAGED}")
    migrated = ((steady or settling)[-1].migrated - start.migrated) * 4096 >> 20
    print(f"{name}: {migrated} MiB migrated (pgmigrate_success)", *said, sep="\n- ", file=sys.stderr, flush=True)
    rows = []
    for process, pid in pids.items():
        was, now_at = start.places[pid], left.places[pid]
        remote = statistics.fmean(moment.places[pid].remote for moment in steady) if steady else None
        per_min = sum(moves(steady, pid)[:3]) / STEADY_S * 60 if steady else None
        rows.append(
            Row(
                name, process, local_after_s(settling + steady, pid), *moves(settling, pid), remote, per_min,
                was.affinity, now_at.affinity, abs(now_at.share(0) - was.share(0)), left_after_s,
            )
        )  # fmt: skip
    return rows


def processes(guest: Guest, stack: ExitStack) -> dict[str, int]:
    """Start the processes; return the PIDs of those that are watched."""
    for name in ("compute-0", "compute-1"):
        stack.enter_context(stream(guest, touch=CPUS[0], run=CPUS[0], name=name, seconds=LIFE_S, mib=1))
    return {
        name: stack.enter_context(
            stream(guest, *arguments, touch=CPUS[0], run=CPUS[1], name=name, seconds=LIFE_S, mib=MIB)
        )
        for name, arguments in PROCESSES.items()
    }


def watch(
    guest: Guest, moments: list[Moment], seconds: float, every_s: float, *, until_local: bool = False
) -> list[Moment]:
    """Read where the processes are from the first moment on; until_local: no longer than until all pages are local."""
    start = moments[0]
    while moments[-1].at_s - start.at_s < seconds:
        if until_local and all(local_after_s(moments, pid) is not None for pid in start.places):
            break
        time.sleep(every_s)
        moments.append(look(guest, *start.places))
        for pid, place in moments[-1].places.items():
            assert place.started == start.places[pid].started, f"PID {pid} is another process now."
    return moments


def await_start(guest: Guest, start: Moment, seconds: float) -> tuple[Moment, float]:
    """Return where the processes are once that is as in the beginning, or after some seconds, and when that was."""
    began_s = uptime_s(guest)
    while True:
        now = look(guest, *start.places)
        restored = all(
            now.places[pid].affinity == place.affinity and abs(now.places[pid].share(0) - place.share(0)) <= PAGES_MOVED
            for pid, place in start.places.items()
        )
        if restored or now.at_s - began_s >= seconds:
            return now, now.at_s - began_s
        time.sleep(0.5)


def local_after_s(moments: list[Moment], pid: int) -> float | None:
    """Return after how long a process's pages were local and remained so; None where they never were."""
    since_s: float | None = None
    for moment in moments:
        if moment.places[pid].remote > 1 - LOCAL:
            since_s = None
        elif since_s is None:
            since_s = moment.at_s
        elif moment.at_s - since_s >= HELD_S:
            return since_s - moments[0].at_s
    return None


def moves(moments: list[Moment], pid: int) -> tuple[int, int, int, float]:
    """Return the changes of a process's affinity, node and pages, and the MiB that changed nodes."""
    affinities = nodes = pages = 0
    mib = 0.0
    for was, now in pairwise(moment.places[pid] for moment in moments):
        moved = abs(now.share(0) - was.share(0))
        affinities += was.affinity != now.affinity
        nodes += was.node != now.node
        pages += moved > PAGES_MOVED
        mib += moved * sum(now.mib.values())
    return affinities, nodes, pages, mib


# Regimes: each begins at once, and returns the guest's uptime and what ends it, which takes the seconds until it had
# settled, and returns what the regime did

End = Callable[[float], list[str]]
Regime = Callable[[Lab, ExitStack], tuple[float, End]]


def kernel_alone(lab: Lab, _: ExitStack) -> tuple[float, End]:
    return uptime_s(lab.guest), lambda _: []


def automatic(lab: Lab, stack: ExitStack) -> tuple[float, End]:
    began_s, on = uptime_s(lab.guest), stack.enter_context(ExitStack())
    on.enter_context(balancing(lab.guest, "1"))

    def end(_: float) -> list[str]:
        on.close()
        return []

    return began_s, end


def numad(lab: Lab, _: ExitStack) -> tuple[float, End]:
    guest = lab.guest
    poll(lambda: uptime_s(guest) > NUMAD_UPTIME_S, timeout_s=NUMAD_UPTIME_S, interval_s=5)
    began_s = uptime_s(guest)
    guest.run("numad", "-v", "-i", "5")

    def end(_: float) -> list[str]:
        guest.run("numad", "-i", "0")
        log = [line.split(": ", 1)[-1] for line in guest.read("/var/log/numad.log").splitlines()]
        return [line for line in log if line.startswith("Advising") or "moved to node" in line]

    return began_s, end


def policy(lab: Lab, stack: ExitStack, how: str) -> tuple[float, End]:
    """Enforce the policy until it is disabled, or until the agent is killed: then restore runs, or the agent again."""
    guest, host = lab.guest, lab.host
    node_id = host.await_live(guest.machine.name, timeout_s=60)["id"]
    began_s, began, force = uptime_s(guest), datetime.now(UTC), stack.enter_context(ExitStack())
    force.enter_context(enforced(host, f"numa, {how}", SPEC, scope={"tasks": list(PROCESSES)}))

    def end(settled_s: float) -> list[str]:
        said = written(host, node_id, began, settled_s)
        if how != "disable":
            guest.run("kill", "-9", str(lab.agent))
            lab.agent = None
        if how == "restore":
            said += guest.run("coresteer-agent", "restore", "--state-dir", STATE, timeout_s=120).stdout.splitlines()
        force.close()
        if how == "restart":
            lab.agent = join(guest, host)
        return said

    return began_s, end


def written(host: Backend, node_id: int, began: datetime, settled_s: float) -> list[str]:
    """Return how many settings the agent has written, how many of them in steady state, and why."""
    found = host.request("GET", f"/api/v1/changes?node_id={node_id}&limit=500")["changes"]
    ages = [(datetime.fromisoformat(change["created_at"]) - began).total_seconds() for change in found]
    mine = [(age, change) for age, change in zip(ages, found, strict=True) if age >= 0]
    said = [f"{result['outcome']}: {result['sentence']}" for _, change in mine for result in change["results"]]
    late = sum(age >= settled_s for age, _ in mine)
    return [f"{len(said)} settings written in {len(mine)} changes, {late} of them in steady state", *said]


def uptime_s(guest: Guest) -> float:
    return float(guest.read("/proc/uptime").split()[0])


REGIMES: dict[str, Regime] = {
    "kernel alone": kernel_alone,
    "automatic balancing": automatic,
    "numad": numad,
    "numa policy, disabled": partial(policy, how="disable"),
    "numa policy, kill −9 and restore": partial(policy, how="restore"),
    "numa policy, kill −9 and restart": partial(policy, how="restart"),
}


def print_table(rows: list[Row]) -> None:
    heads = (
        "regime", "process", f"s to {LOCAL:.0%} local", "affinity / node / page moves", "MiB moved", "remote, steady",
        "moves/min, steady", "affinity afterwards", "pages differ by", "after s",
    )  # fmt: skip
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for each in rows:
        cells = (
            each.regime,
            each.process,
            "–" if each.local_after_s is None else f"{each.local_after_s:.0f}",
            f"{each.affinities} / {each.nodes} / {each.pages}",
            f"{each.mib:.0f}",
            "–" if each.remote is None else f"{each.remote:.1%}",
            "–" if each.moves_per_min is None else f"{each.moves_per_min:.1f}",
            "as before" if each.left_affinity == each.affinity else f"{each.left_affinity} instead of {each.affinity}",
            f"{each.left_share:.1%}",
            f"{each.left_after_s:.0f}",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
