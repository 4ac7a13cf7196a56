"""Policy ``network-process``: run processes near the CPUs that handle their packets (Jang, Jin, Kim, 2009).

The algorithm of the paper: a list of the communicating processes, ordered by their last traffic. From its head, silent
processes get their original affinity again; the others run on the CPU that handles their packets if its load without
them permits, else on one that shares a cache with it. Decisions that the paper leaves open:

- Several interrupts or NICs: the CPU with the least mean distance to all of a process's packets, weighted by bytes.
  Packets handled on unknown CPUs are mentioned and not counted.
- Several threads: a process that needs more than one CPU, or has threads and packets on several, gets that many CPUs,
  each near one of those that handle its packets.
- A process that must not move: with move_irq, the interrupt that receives all of its packets moves to it.

Stability: placed processes keep their CPUs before others choose (thresholds: explain.py, capacity.py), and a placed
process counts as silent only below half of the rate at which it is placed.
"""

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.distance import Locality, Smt, cpu_distances
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.policies.base import (
    ALLOW_ISOLATED_FIELD,
    Decision,
    PolicyKind,
    PolicySpec,
    Proposal,
    Scope,
)
from coresteer_core.policies.network_process.capacity import CpuCapacity, PacketShares
from coresteer_core.policies.network_process.explain import Candidate, name_cpus
from coresteer_core.policies.network_process.memory import (
    NetworkProcessMemory,
    PlacedAffinity,
    is_ours,
    updated,
)
from coresteer_core.policies.network_process.move_irq import IrqMover
from coresteer_core.policies.network_process.placement import PlacementRound
from coresteer_core.policies.scope import in_scope, matches
from coresteer_core.policies.skipped import Reason, ReasonText, SkippedGroups, format_rate, name_tasks
from coresteer_core.schema import labelled
from coresteer_core.settings import parse_setting

MIN_KNOWN_SHARE = 0.5
"""Least share of a process's bytes handled on known CPUs; below it the process is skipped."""
_PLACED_RATE = 0.5
"""Share of min_bytes_per_s below which a placed process counts as silent."""
_FORGET_S = 60.0
"""Seconds after idle_s for which a process without sockets is remembered, to restore its affinity."""


_SILENT = ReasonText("Silent for {0:.0f} s, over {1} s.", "Silent for {0:.0f} s, over {1} s.")
_SLOW = ReasonText("Its {0:rate} are under {1}.", "Each has {0:rate}, under {1}.")
_UNKNOWN = ReasonText(
    "{0:.0f} % of its {1:rate} are handled on unknown CPUs.",
    "{0:.0f} % of the {1:rate} of each are handled on unknown CPUs.",
)
_BOUND = ReasonText(
    "{2} bound it to {0:cpus}; its cpuset has {1} CPUs.",
    "{2} bound each of them, in all to {0:cpus}; the cpuset of each has {1} CPUs.",
)
_THREADS_BOUND = ReasonText(
    "Another program bound its threads to different CPUs, in all to {0:cpus}.",
    "Another program bound their threads to different CPUs, in all to {0:cpus}.",
)
_NEVER_MOVED = ReasonText("It stays on {0:cpus}: {1} are not moved.", "They stay on {0:cpus}: {1} are not moved.")


class NetworkProcess(PolicySpec, frozen=True, tag="network-process"):
    """Parameters of the policy that runs processes near the CPUs that handle their packets."""

    label = "Place network processes"
    summary = "Moves processes that use the network near the CPUs that handle their packets."

    min_bytes_per_s: Annotated[
        float,
        Meta(ge=0, le=1e15),
        labelled("Minimum traffic", "Processes with less network traffic are skipped.", unit="bytes/s"),
    ] = 100_000.0
    idle_s: Annotated[
        float,
        Meta(ge=1, le=86_400),
        labelled(
            "Idle timeout",
            "The original affinity of a process is restored after this time without traffic.",
            unit="s",
            group="advanced",
        ),
    ] = 10.0
    max_load: Annotated[
        float,
        Meta(ge=0, le=1),
        labelled(
            "Maximum load of the interrupt's CPU",
            "If other work loads this CPU more than that, the process is placed on a more distant CPU.",
            unit="%",
            scale=100,
        ),
    ] = 0.8
    max_distance: Annotated[
        Locality,
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
    ] = Locality.L3
    smt: Annotated[
        Smt,
        labelled(
            "SMT siblings",
            "When a process is placed on another hardware thread of the interrupt's core.",
            group="advanced",
            options={"last": "after other cores", "first": "before other cores"},
        ),
    ] = Smt.LAST
    move_irq: Annotated[
        bool,
        labelled(
            "Move the interrupt of a pinned process",
            "If a process is pinned to CPUs, move the interrupt of its packets to these CPUs instead.",
            group="advanced",
        ),
    ] = False
    allow_isolated: Annotated[bool, ALLOW_ISOLATED_FIELD] = False

    @property
    def places_processes(self) -> bool:
        """Return True: the policy binds processes to CPUs near their packets."""
        return True


def decide(view: View, spec: NetworkProcess, scope: Scope, memory: NetworkProcessMemory) -> Decision:
    """Return proposals for processes to move near their packets or be restored, and why each other is skipped."""
    return _Round(view, spec, scope, memory).decide()


class _Round:
    """One evaluation round of the policy."""

    def __init__(self, view: View, spec: NetworkProcess, scope: Scope, memory: NetworkProcessMemory) -> None:
        self.view, self.spec, self.scope = view, spec, scope
        self.online = view.topology.online()
        self.unbound = view.unbound_cpus()
        self.least = format_rate(spec.min_bytes_per_s)
        self.usable = view.usable_cpus(allow_isolated=spec.allow_isolated)
        self.capacity = CpuCapacity(
            cpu_distances(view.topology, spec.smt), spec.max_distance, self.usable, spec.max_load
        )
        self.before = {placed.key: placed for placed in memory.placed}
        self.placed: list[PlacedAffinity] = []
        self.restores: list[Proposal] = []
        self.skipped = SkippedGroups(name_tasks)
        self.candidates: list[Candidate] = []
        self.fixed: list[tuple[NetTask, Reason | str]] = []
        """Processes that must not move to other CPUs, each with the reason."""
        self.active_s: dict[tuple[int, int], float] = {}
        """View time of the last traffic of communicating processes, by PID and started_ticks."""
        self.covers = _netdev_filter(view, scope)
        self.following = _following_rules(view)
        self._allowed: dict[str, tuple[frozenset[int] | None, frozenset[int]]] = {}

    def decide(self) -> Decision:
        """Return the policy's decision in this round."""
        for task in self.view.tasks:
            self._classify(task)
        proposals = self._place()
        moves = self._move_irqs()
        self._restore_absent()
        self.placed.sort(key=lambda placed: placed.last_s)
        proposals = [*self.restores, *proposals, *moves]
        sentence = (
            f"{len(self.candidates) + len(self.fixed)} of {len(self.view.tasks)} processes with sockets communicate at "
            f"{self.least} or more: {len(proposals) - len(self.restores)} to move, "
            f"{len(self.restores)} to restore."
        )
        memory = NetworkProcessMemory(self.placed)
        return Decision(sentence, memory, proposals, self.skipped.skipped(), frozenset(p.key for p in self.restores))

    # Which processes communicate

    def _classify(self, task: NetTask) -> None:
        """Sort a process: to be placed, to be restored, or to be skipped with a reason."""
        key, now, spec = f"task/{task.pid}/affinity", self.view.time_s, self.spec
        was = self.before.pop(key, None)
        if was is not None and was.started_ticks != task.started_ticks:
            was = None
        ours = was is not None and is_ours(was, task.affinity)
        included = in_scope(self.scope, task.name, task.cgroup)
        per_s, by_cpu = self._bytes_per_s(task) if included else (0.0, {})
        least = spec.min_bytes_per_s * (_PLACED_RATE if ours else 1.0)
        if included and per_s >= least:
            last_s = now - task.idle_s
        else:
            last_s = now - spec.idle_s - 1.0 if was is None else was.last_s
        placed = None if was is None else updated(was, task.affinity, last_s, ours=ours)
        silent_s = now - last_s
        if silent_s > spec.idle_s or not included:
            if ours and placed is not None:
                why = f"Silent for {silent_s:.0f} s, over {spec.idle_s:.0f} s" if included else "No longer in scope"
                self._restore(placed, _subject(task), why, parse_cpu_list(task.allowed))
            elif included:
                self._skip(task, self._below_rate(task, per_s))
            return
        self.active_s[task.pid, task.started_ticks] = last_s
        known = sum(by_cpu.values())
        if per_s < least or known < per_s * MIN_KNOWN_SHARE or not known:
            self._remember(placed)
            unknown = Reason(_UNKNOWN, ((per_s - known) / (per_s or 1) * 100, per_s))
            self._skip(task, unknown if per_s >= max(least, 1.0) else self._below_rate(task, per_s))
            return
        allowed, free = self._allowed_cpus(task.allowed)
        affinity = parse_cpu_list(task.affinity)
        if not ours and (task.bound or task.threads_differ or not affinity >= free):
            self._remember(placed)
            source = "The kernel" if task.bound else "Another program or policy"
            bound = Reason(_BOUND, (affinity, len(free)), (source,))
            self.fixed.append((task, Reason(_THREADS_BOUND, (affinity,)) if task.threads_differ else bound))
            return
        self._remember(placed)
        if not ours and (task.kernel or task.realtime):
            kind = "kernel threads" if task.kernel else "real-time processes"
            self._skip(task, Reason(_NEVER_MOVED, (affinity,), (kind,)))
            return
        cpus = sorted(by_cpu, key=lambda cpu: (-by_cpu[cpu], cpu)) if len(by_cpu) > 1 else list(by_cpu)
        flow = PacketShares(tuple(cpus), tuple([by_cpu[cpu] / known for cpu in cpus]))
        candidate = Candidate(task, per_s, flow, 1.0 - known / per_s, allowed)
        if ours:
            candidate.cpus = tuple(sorted(affinity))
        elif placed is not None:
            candidate.preferred = tuple(sorted(parse_cpu_list(placed.value)))
        self.candidates.append(candidate)

    def _bytes_per_s(self, task: NetTask) -> tuple[float, dict[int, float]]:
        """Return a process's bytes/s on netdevs in scope: the total, and by each known CPU that handles them.

        Packets that a rule of flow-steering brings to the process follow it, so they count where it runs.
        """
        per_s, by_cpu = 0.0, dict[int, float]()
        covers, online = self.covers, self.online
        for rx_placement in task.rx_placements:
            bytes_per_s = rx_placement.rx_bytes_per_s + rx_placement.tx_bytes_per_s
            if bytes_per_s > 0.0 and (covers is None or covers(rx_placement.netdev)):
                per_s += bytes_per_s
                cpu = rx_placement.cpu
                if rx_placement.how == "rule" and rx_placement.netdev in self.following:
                    cpu = task.cpu
                if cpu is not None and cpu in online:
                    by_cpu[cpu] = by_cpu.get(cpu, 0.0) + bytes_per_s
        return per_s, by_cpu

    def _allowed_cpus(self, allowed_text: str) -> tuple[frozenset[int] | None, frozenset[int]]:
        """Return a cpuset's CPUs (None if it has every usable one), and the CPUs of an unbound process in it."""
        known = self._allowed.get(allowed_text)
        if known is None:
            allowed = parse_cpu_list(allowed_text)
            free = allowed & self.unbound
            known = self._allowed[allowed_text] = (None if self.usable <= allowed else allowed, free)
        return known

    def _below_rate(self, task: NetTask, per_s: float) -> Reason:
        if per_s >= self.spec.min_bytes_per_s:
            return Reason(_SILENT, (task.idle_s,), (f"{self.spec.idle_s:.0f}",))
        return Reason(_SLOW, (per_s,), (self.least,))

    # Proposals

    def _place(self) -> list[Proposal]:
        """Return proposals for the processes to be placed, and remember the affinities."""
        indexes = {placed.key: index for index, placed in enumerate(self.placed)}
        proposals = []
        for placement in PlacementRound(self.capacity, self.view.load, self.candidates).place_all():
            candidate, task = placement.candidate, placement.candidate.task
            key = f"task/{task.pid}/affinity"
            index = indexes.get(key)
            if not placement.cpus and candidate.cpus and index is not None:
                self._restore(
                    self.placed[index], _subject(task), str(placement.why).rstrip("."), parse_cpu_list(task.allowed)
                )
                continue
            if not placement.cpus or placement.cpus == candidate.cpus:
                if placement.excluded:
                    self.fixed.append((task, placement.why))
                else:
                    self._skip(task, placement.why)
                continue
            value = format_cpu_list(placement.cpus)
            if value == task.affinity:
                self._skip(task, f"May run on {name_cpus(placement.cpus)} only. {placement.why}")
                continue
            proposals.append(Proposal(key, value, _subject(task), str(placement.why)))
            if index is not None:
                self.placed[index] = replace(self.placed[index], value=value)
            else:
                last_s = self.active_s[task.pid, task.started_ticks]
                original = task.affinity
                self.placed.append(PlacedAffinity(key, task.pid, task.started_ticks, original, original, value, last_s))
        return proposals

    def _move_irqs(self) -> list[Proposal]:
        """Return proposals for the interrupts of processes that must not move; skip the other processes."""
        mover = IrqMover(self.view, self.capacity, self.before)
        proposals = []
        for task, why in self.fixed:
            if not self.spec.move_irq:
                self._skip(task, why)
                continue
            found = mover.propose(task, self.covers, self.active_s[task.pid, task.started_ticks])
            if isinstance(found, str):
                self._skip(task, f"{why} {found}")
                continue
            proposal, placed = found
            self.before[placed.key] = placed
            proposals.append(replace(proposal, reason=f"{why} {proposal.reason}"))
        return proposals

    def _restore_absent(self) -> None:
        """Restore or remember affinities of interrupts, and of processes that have no sockets any more."""
        now, idle_s = self.view.time_s, self.spec.idle_s
        for key, was in self.before.items():
            last_s = self.active_s.get((was.pid, was.started_ticks), was.last_s)
            placed = was
            if (number := parse_setting(key).interrupt) is not None:
                irq = self.view.inventory.irq(number)
                if irq is None or irq.requested is None:
                    continue
                gone = not is_ours(was, irq.requested)
                placed = updated(was, irq.requested, last_s, ours=not gone)
                subject = f"IRQ {irq.irq} ({irq.name})"
            else:
                subject = f"process {was.pid}"
                gone = now - last_s > idle_s + _FORGET_S
            if now - last_s <= idle_s:
                self.placed.append(placed)
            elif not gone:
                self._restore(placed, subject, f"Its process has been silent for {now - last_s:.0f} s", self.online)

    def _restore(self, placed: PlacedAffinity, subject: str, why: str, allowed: frozenset[int]) -> None:
        """Propose an original affinity as far as its CPUs may be used now; remember it until it is set."""
        self.placed.append(placed)
        original = parse_cpu_list(placed.original)
        value = format_cpu_list(original & allowed & self.online or allowed & self.online)
        if value:
            reason = f"{why}: {name_cpus(sorted(parse_cpu_list(value)))} as before the policy."
            self.restores.append(Proposal(placed.key, value, subject, reason))

    def _remember(self, placed: PlacedAffinity | None) -> None:
        if placed is not None:
            self.placed.append(placed)

    def _skip(self, task: NetTask, why: Reason | str) -> None:
        self.skipped.add(task.name, task.pid, why)


def _subject(task: NetTask) -> str:
    return name_tasks([(task.name, task.pid)])


def _following_rules(view: View) -> frozenset[str]:
    """Return the netdevs whose flow rules are all Coresteer's: packets that these steer follow their process."""
    return frozenset(
        netdev.name
        for netdev in view.inventory.netdevs
        if netdev.flow_rules is not None and all(rule.ours for rule in netdev.flow_rules.rules)
    )


def _netdev_filter(view: View, scope: Scope) -> Callable[[str], bool] | None:
    """Return a function that returns whether a netdev is in scope; None when all are."""
    if not scope.netdevs and not scope.drivers:
        return None
    drivers = {netdev.name: netdev.driver or "" for netdev in view.inventory.netdevs}

    def covers(name: str) -> bool:
        return matches(name, scope.netdevs) and matches(drivers.get(name, ""), scope.drivers)

    return covers


KIND = PolicyKind(NetworkProcess, NetworkProcessMemory, decide)
