"""Processes that receive from the network run where their packets are handled (Jang, Jin, Kim, 2009).

The algorithm of the paper: a list of the processes that communicate, whoever did so last at the end; from its head
those that fell silent get their affinity back; the others run on the CPU that handles their packets if its load
without them allows it, else on one that shares a cache with it. What the paper left open is decided so:

- Several interrupts or NICs: the CPU with the least mean distance to all of a process's packets, by bytes, whatever
  they come through. What arrives at CPUs that are not known is stated and counts for nothing.
- Several threads: a process that needs more than one CPU, or has threads and packets on several, gets as many CPUs,
  each near to one of those that handle its packets.
- A process that may not move: with move_irq, the interrupt that brings all of its packets moves to it.

Stability: a placed process keeps its CPUs before others choose (placing.py has the thresholds), and one that was placed
counts as silent only below half of the rate that it takes to be placed.
"""

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.policies.base import (
    ALLOW_ISOLATED,
    Decision,
    PolicyKind,
    PolicySpec,
    Proposal,
    Scope,
)
from coresteer_core.policies.distance import Reach, Smt, rings
from coresteer_core.policies.network_process.capacity import Flow, Seats
from coresteer_core.policies.network_process.move_irq import IrqMoves
from coresteer_core.policies.network_process.placement import Placing, Talker, name_cpus
from coresteer_core.policies.skipped import Reason, Staying, Why, rate
from coresteer_core.schema import labelled

KNOWN_SHARE = 0.5
"""Of its bytes: with less arriving at known CPUs a process is left alone."""
_KEEP_RATE = 0.5
_FORGET_S = 60.0
"""A process that is no longer seen at all is remembered so long after its expiry, for its affinity to be returned."""


_SILENT = Why("Silent for {0:.0f} s, over {1} s.", "Silent for {0:.0f} s, over {1} s.")
_SLOW = Why("Its {0:rate} are under {1}.", "Each has {0:rate}, under {1}.")
_UNKNOWN = Why(
    "{0:.0f} % of its {1:rate} arrive at CPUs not known.", "{0:.0f} % of the {1:rate} of each arrive at CPUs not known."
)
_BOUND = Why(
    "{2} has bound it to {0:cpus} of the {1} that it may have.",
    "{2} has bound each of them, in all to {0:cpus}; each may have {1}.",
)


class NetworkProcess(PolicySpec, frozen=True, tag="network-process"):
    """Fields of the policy that runs processes near the CPUs that handle their packets."""

    label = "Place network processes"
    summary = "Moves processes that use the network near the CPUs that handle their packets."

    min_bytes_per_s: Annotated[
        float, Meta(ge=0, le=1e15), labelled("Minimum traffic", "Processes with less are skipped.", unit="bytes/s")
    ] = 100_000.0
    idle_s: Annotated[
        float,
        Meta(ge=1, le=86_400),
        labelled("Idle timeout", "After this long without traffic a process's affinity is restored.", unit="s"),
    ] = 10.0
    max_load: Annotated[
        float,
        Meta(ge=0, le=1),
        labelled(
            "Maximum load of the interrupt's CPU",
            "Above it, the process itself not counted, CPUs at a greater distance are used.",
            unit="%",
            scale=100,
        ),
    ] = 0.8
    max_distance: Annotated[
        Reach,
        labelled(
            "Maximum distance",
            "How far from the interrupt's CPU a process may be placed.",
            options={
                "cpu": "the same CPU",
                "smt": "the same core",
                "l2": "CPUs that share its L2 cache",
                "l3": "CPUs that share its L3 cache",
                "numa": "the same NUMA node",
            },
        ),
    ] = Reach.L3
    smt: Annotated[
        Smt,
        labelled(
            "SMT siblings",
            "When the other hardware threads of the interrupt's core are used.",
            options={"last": "after other cores", "first": "before other cores"},
        ),
    ] = Smt.LAST
    move_irq: Annotated[
        bool,
        labelled(
            "Move the interrupt of a pinned process",
            "A process that may not move keeps its CPUs; the interrupt of its packets moves to them.",
        ),
    ] = False
    allow_isolated: Annotated[bool, ALLOW_ISOLATED] = False


class Placed(Struct, frozen=True, gc=False):
    """A setting that the policy wants for a process: its affinity, or that of its interrupt.

    original: before the policy. stands: as last looked at, the original until the policy's value was written.
    value: what the policy wants. last_s: view time when the process communicated last.
    """

    key: str
    pid: int
    started_ticks: int
    original: str
    stands: str
    value: str
    last_s: float


class NetworkProcessMemory(Struct, frozen=True, tag="network-process"):
    """What a round leaves for the next: what is placed, for whoever communicated last at the end."""

    placed: list[Placed] = []


def decide(view: View, spec: NetworkProcess, scope: Scope, memory: NetworkProcessMemory) -> Decision:
    """Where each process that communicates should run."""
    return _Round(view, spec, scope, memory).decide()


def _is_ours(placed: Placed, found: str) -> bool:
    """The setting stands as the policy wants it, or as it did the round before."""
    return found in (placed.value, placed.stands) and found != placed.original


def _seen(was: Placed, found: str, last_s: float, *, ours: bool) -> Placed:
    """What is placed after a look at the setting."""
    stands = found if ours else was.original
    return Placed(was.key, was.pid, was.started_ticks, was.original, stands, was.value, last_s)


class _Round:
    """One round while it is decided."""

    def __init__(self, view: View, spec: NetworkProcess, scope: Scope, memory: NetworkProcessMemory) -> None:
        self.view, self.spec, self.scope = view, spec, scope
        self.online = view.topology.online()
        self.isolated_cpus = view.topology.isolated_cpus
        self.least = rate(spec.min_bytes_per_s)
        self.usable = self.online if spec.allow_isolated else self.online - self.isolated_cpus
        self.seats = Seats(rings(view.topology, spec.smt), spec.max_distance, self.usable, spec.max_load)
        self.before = {placed.key: placed for placed in memory.placed}
        self.kept: list[Placed] = []
        self.restores: list[Proposal] = []
        self.staying = Staying(_name)
        self.talkers: list[Talker] = []
        self.fixed: list[tuple[NetTask, Reason | str]] = []
        """Processes that may not move, each with why."""
        self.active_s: dict[tuple[int, int], float] = {}
        """When the processes that still communicate did so last."""
        self.covers = _netdev_filter(view, scope)
        self._allowed: dict[str, tuple[frozenset[int] | None, frozenset[int]]] = {}

    def decide(self) -> Decision:
        """The whole round."""
        for task in self.view.tasks:
            self._look_at(task)
        proposals = self._place()
        moves = self._move_irqs()
        self._give_back_absent()
        self.kept.sort(key=lambda placed: placed.last_s)
        proposals = [*self.restores, *proposals, *moves]
        sentence = (
            f"{len(self.talkers) + len(self.fixed)} of {len(self.view.tasks)} processes with sockets communicate at "
            f"{self.least} or more; {len(proposals) - len(self.restores)} to move, "
            f"{len(self.restores)} to return."
        )
        memory = NetworkProcessMemory(self.kept)
        return Decision(sentence, memory, proposals, self.staying.told(), frozenset(p.key for p in self.restores))

    # Who communicates

    def _look_at(self, task: NetTask) -> None:
        """Sort a process: to be placed, to get its affinity back, or to be left alone with a reason."""
        key, now, spec = f"task/{task.pid}/affinity", self.view.time_s, self.spec
        was = self.before.pop(key, None)
        if was is not None and was.started_ticks != task.started_ticks:
            was = None
        ours = was is not None and _is_ours(was, task.affinity)
        tasks, cgroups = self.scope.tasks, self.scope.cgroups
        in_scope = not (tasks or cgroups) or (_matches(task.name, tasks) and _matches(task.cgroup or "", cgroups))
        per_s, arriving = self._traffic(task) if in_scope else (0.0, {})
        least = spec.min_bytes_per_s * (_KEEP_RATE if ours else 1.0)
        if in_scope and per_s >= least:
            last_s = now - task.idle_s
        else:
            last_s = now - spec.idle_s - 1.0 if was is None else was.last_s
        placed = None if was is None else _seen(was, task.affinity, last_s, ours=ours)
        silent_s = now - last_s
        if silent_s > spec.idle_s or not in_scope:
            if ours and placed is not None:
                why = f"Silent for {silent_s:.0f} s, over {spec.idle_s:.0f} s" if in_scope else "No longer in scope"
                self._give_back(placed, _subject(task), why, parse_cpu_list(task.allowed))
            elif in_scope:
                self._leave(task, self._quiet(task, per_s))
            return
        self.active_s[task.pid, task.started_ticks] = last_s
        known = sum(arriving.values())
        if per_s < least or known < per_s * KNOWN_SHARE or not known:
            self._keep(placed)
            unknown = Reason(_UNKNOWN, ((per_s - known) / (per_s or 1) * 100, per_s))
            self._leave(task, unknown if per_s >= max(least, 1.0) else self._quiet(task, per_s))
            return
        allowed, free = self._freedom(task.allowed)
        affinity = parse_cpu_list(task.affinity)
        if not ours and (task.bound or not affinity >= free):
            self._keep(placed)
            who = "The kernel" if task.bound else "Somebody"
            self.fixed.append((task, Reason(_BOUND, (affinity, len(free)), (who,))))
            return
        self._keep(placed)
        cpus = sorted(arriving, key=lambda cpu: (-arriving[cpu], cpu)) if len(arriving) > 1 else list(arriving)
        flow = Flow(tuple(cpus), tuple([arriving[cpu] / known for cpu in cpus]))
        talker = Talker(task, per_s, flow, 1.0 - known / per_s, allowed)
        if ours:
            talker.cpus = tuple(sorted(affinity))
        elif placed is not None:
            talker.favoured = tuple(sorted(parse_cpu_list(placed.value)))
        self.talkers.append(talker)

    def _traffic(self, task: NetTask) -> tuple[float, dict[int, float]]:
        """Bytes per second of a process in scope: all, and by the CPU that handles them where that is known."""
        per_s, arriving = 0.0, dict[int, float]()
        covers, online = self.covers, self.online
        for rx_placement in task.rx_placements:
            bytes_per_s = rx_placement.rx_bytes_per_s + rx_placement.tx_bytes_per_s
            if bytes_per_s > 0.0 and (covers is None or covers(rx_placement.netdev)):
                per_s += bytes_per_s
                cpu = rx_placement.cpu
                if cpu is not None and cpu in online:
                    arriving[cpu] = arriving.get(cpu, 0.0) + bytes_per_s
        return per_s, arriving

    def _freedom(self, allowed_text: str) -> tuple[frozenset[int] | None, frozenset[int]]:
        """Of a cpuset: its CPUs, None when it has every usable one; and what an unbound process in it has."""
        known = self._allowed.get(allowed_text)
        if known is None:
            allowed = parse_cpu_list(allowed_text)
            free = (allowed & self.online) - self.isolated_cpus
            known = self._allowed[allowed_text] = (None if self.usable <= allowed else allowed, free)
        return known

    def _quiet(self, task: NetTask, per_s: float) -> Reason:
        if per_s >= self.spec.min_bytes_per_s:
            return Reason(_SILENT, (task.idle_s,), (f"{self.spec.idle_s:.0f}",))
        return Reason(_SLOW, (per_s,), (self.least,))

    # What becomes of it

    def _place(self) -> list[Proposal]:
        """Proposals for the processes to be placed; memory of them is kept already where they were placed before."""
        kept = {placed.key: index for index, placed in enumerate(self.kept)}
        proposals = []
        for verdict in Placing(self.seats, self.view.load, self.talkers).verdicts():
            talker, task = verdict.talker, verdict.talker.task
            key = f"task/{task.pid}/affinity"
            index = kept.get(key)
            if not verdict.cpus and talker.cpus and index is not None:
                self._give_back(
                    self.kept[index], _subject(task), str(verdict.why).rstrip("."), parse_cpu_list(task.allowed)
                )
                continue
            if not verdict.cpus or verdict.cpus == talker.cpus:
                if verdict.stuck:
                    self.fixed.append((task, verdict.why))
                else:
                    self._leave(task, verdict.why)
                continue
            value = format_cpu_list(verdict.cpus)
            if value == task.affinity:
                self._leave(task, f"May run on {name_cpus(verdict.cpus)} only. {verdict.why}")
                continue
            proposals.append(Proposal(key, value, _subject(task), str(verdict.why)))
            if index is not None:
                self.kept[index] = replace(self.kept[index], value=value)
            else:
                last_s = self.active_s[task.pid, task.started_ticks]
                original = task.affinity
                self.kept.append(Placed(key, task.pid, task.started_ticks, original, original, value, last_s))
        return proposals

    def _move_irqs(self) -> list[Proposal]:
        """Proposals for the interrupts of processes that may not move; all others of those are left with a reason."""
        moves = IrqMoves(self.view, self.seats)
        proposals = []
        for task, why in self.fixed:
            if not self.spec.move_irq:
                self._leave(task, why)
                continue
            placed = self._placed_irq(task)
            found = moves.bring(task, self.covers, None if placed is None else parse_cpu_list(placed.value))
            if isinstance(found, str):
                self._leave(task, f"{why} {found}")
                continue
            irq, cpu, reason = found
            key, value = f"irq/{irq.irq}/affinity", str(cpu)
            last_s = self.active_s[task.pid, task.started_ticks]
            original = irq.requested or ""
            if placed is None or placed.key != key:
                placed = Placed(key, task.pid, task.started_ticks, original, original, value, last_s)
            self.before[key] = replace(placed, value=value)
            proposals.append(Proposal(key, value, f"IRQ {irq.irq} ({irq.name})", f"{why} {reason}"))
        return proposals

    def _placed_irq(self, task: NetTask) -> Placed | None:
        who = (task.pid, task.started_ticks)
        irqs = (placed for key, placed in self.before.items() if key.startswith("irq/"))
        return next((placed for placed in irqs if (placed.pid, placed.started_ticks) == who), None)

    def _give_back_absent(self) -> None:
        """What is left of the round before: interrupts, and processes that have no sockets any more."""
        now, idle_s = self.view.time_s, self.spec.idle_s
        for key, was in self.before.items():
            last_s = self.active_s.get((was.pid, was.started_ticks), was.last_s)
            placed = was
            if key.startswith("irq/"):
                irq = self.view.inventory.irq(int(key.split("/")[1]))
                if irq is None or irq.requested is None:
                    continue
                gone = not _is_ours(was, irq.requested)
                placed = _seen(was, irq.requested, last_s, ours=not gone)
                subject = f"IRQ {irq.irq} ({irq.name})"
            else:
                subject = f"process {was.pid}"
                gone = now - last_s > idle_s + _FORGET_S
            if now - last_s <= idle_s:
                self.kept.append(placed)
            elif not gone:
                self._give_back(placed, subject, f"Its process has been silent for {now - last_s:.0f} s", self.online)

    def _give_back(self, placed: Placed, subject: str, why: str, allowed: frozenset[int]) -> None:
        """The original again, as far as it can be had now; remembered until it stands so."""
        self.kept.append(placed)
        original = parse_cpu_list(placed.original)
        value = format_cpu_list(original & allowed & self.online or allowed & self.online)
        if value:
            reason = f"{why}: back to {name_cpus(sorted(parse_cpu_list(value)))}, as before."
            self.restores.append(Proposal(placed.key, value, subject, reason))

    def _keep(self, placed: Placed | None) -> None:
        if placed is not None:
            self.kept.append(placed)

    def _leave(self, task: NetTask, why: Reason | str) -> None:
        self.staying.add(task.name, task.pid, why)


def _subject(task: NetTask) -> str:
    return _name([(task.name, task.pid)])


def _name(tasks: list[tuple[str, int]]) -> str:
    """Processes in a sentence: ``nginx (812)``, ``nginx (812-815), redis (77)``."""
    numbers: dict[str, list[int]] = {}
    for name, pid in tasks:
        numbers.setdefault(name, []).append(pid)
    return ", ".join(f"{name} ({format_cpu_list(pids)})" for name, pids in numbers.items())


def _matches(name: str, patterns: list[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _netdev_filter(view: View, scope: Scope) -> Callable[[str], bool] | None:
    """Whether a netdev is in scope; None when all are."""
    if not scope.netdevs and not scope.drivers:
        return None
    drivers = {netdev.name: netdev.driver or "" for netdev in view.inventory.netdevs}

    def covers(name: str) -> bool:
        return _matches(name, scope.netdevs) and _matches(drivers.get(name, ""), scope.drivers)

    return covers


KIND = PolicyKind(NetworkProcess, NetworkProcessMemory, decide)
