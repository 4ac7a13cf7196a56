"""Place processes and their memory on NUMA nodes (Lim, Eom: a user-space NUMA-aware scheduler, UNAS).

The paper's parts: a monitor (the agent's collectors), a reporter with three triggers (triggers.py) and two factors
(factors.py), and a scheduler (scheduler.py) that honors static pins first, places processes by their speed-up factor
and scatters those that contend. Ours: the policy measures each of its moves and rolls back those that do not pay off.

Stability: a process is moved for a speed-up of ``gain``, and moved back only for twice the gain above 1.
"""

from collections.abc import Sequence
from math import inf

from msgspec.structs import replace

from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.numa import NUMA_TASK_CRITERION, PAGE_COST_S, NumaState, NumaTask
from coresteer_core.node.view import View
from coresteer_core.policies.base import Decision, PolicyKind, Proposal, Scope
from coresteer_core.policies.numa import memory as past
from coresteer_core.policies.numa.assignment import Assignment
from coresteer_core.policies.numa.eligibility import why_fixed
from coresteer_core.policies.numa.explain import reason_of
from coresteer_core.policies.numa.factors import Process
from coresteer_core.policies.numa.machine import machine_of, process_of, rule_for
from coresteer_core.policies.numa.memory import NumaMemory, PastMove
from coresteer_core.policies.numa.scheduler import MIN_FREE_SHARE, Candidate, Limits, Move, Room, Scheduler
from coresteer_core.policies.numa.spec import Numa
from coresteer_core.policies.numa.triggers import behavior_of, changed_behavior, idle_powerful_core, unbalanced
from coresteer_core.policies.scope import in_scope
from coresteer_core.policies.skipped import SkippedGroups, name_tasks
from coresteer_core.settings import TaskAffinity, TaskMemoryNodes

_MOST_MEMORY = 0.5
"""Pages have moved where more than this share of a process's memory is on the node."""


def decide(view: View, spec: Numa, scope: Scope, memory: NumaMemory) -> Decision:
    """Return where processes should run and have their pages."""
    if len(view.topology.numa_nodes) < 2:
        return Decision("Nothing is moved: this node has a single NUMA node.", memory)
    if view.numa is None:
        return Decision("Nothing is moved: the memory of its NUMA nodes and processes could not be read.", memory)
    if not view.numa.tasks:
        return Decision(f"Nothing is moved: no process {NUMA_TASK_CRITERION}, or none can be read.", memory)
    return _Round(view, view.numa, spec, scope, memory).decide()


class _Round:
    """One round of the policy."""

    def __init__(self, view: View, numa: NumaState, spec: Numa, scope: Scope, memory: NumaMemory) -> None:
        self.view, self.numa, self.spec, self.scope, self.memory = view, numa, spec, scope, memory
        self.usable, self.unbound = view.usable_cpus(allow_isolated=spec.allow_isolated), view.unbound_cpus()
        self.machine, self.cpus = machine_of(view, self.usable)
        self.index_of = {node: index for index, node in enumerate(self.machine.nodes)}
        self.skipped = SkippedGroups(name_tasks)
        self.tasks: list[NumaTask] = []
        """Those with a predicted run time, in the order of the Assignment."""
        self.candidates: list[Candidate] = []
        self._same_gains = (spec.gain,) * len(self.machine.nodes)
        self._nodes_by_cpuset: dict[tuple[str, str], tuple[int, ...]] = {}
        """Indexes of the NUMA nodes by allowed CPUs and allowed memory nodes: few cpusets hold many processes."""
        self.past = {(move.pid, move.started_ticks): move for move in memory.moves if move.node in self.index_of}

    def decide(self) -> Decision:
        """Return the decision of the whole round."""
        self._classify()
        assignment = self.assignment
        self._measure(assignment)
        reverts = self._reverts()
        scheduler = Scheduler(assignment, self.candidates, self._room(), self._limits())
        gaining = {move.node for move in scheduler.ideal.values()}
        triggers = self._triggers(gaining)
        pinned = any(candidate.pinned is not None for candidate in self.candidates)
        moves = scheduler.run() if triggers or pinned or self.memory.pending else []
        proposals = [proposal for move in moves for proposal in self._propose(move)]
        self._explain_others({move.index for move in moves}, scheduler.no_room, triggers)
        behaviors = [behavior_of(task) for task in self.numa.tasks] if triggers else self.memory.behaviors
        sentence = self._sentence(moves, reverts, triggers)
        now = self.view.time_s
        remembered = [m for m in self.past.values() if now - m.seen_s < past.FORGET_S]
        return Decision(
            sentence,
            NumaMemory(behaviors, remembered, pending=bool(moves)),
            [*reverts, *proposals],
            self.skipped.skipped(),
            reverts=frozenset(proposal.key for proposal in reverts),
        )

    # Monitor and reporter

    def _classify(self) -> None:
        """Sort the processes: candidates, and those that are skipped with a reason."""
        processes: list[Process] = []
        for task in self.numa.tasks:
            process = process_of(task, self.machine, rule_for(task, self.spec.weights) or 1.0)
            if process is None:
                self._skip(task, task.why_unpredicted)
                continue
            index = len(processes)
            processes.append(process)
            self.tasks.append(task)
            pin = rule_for(task, self.spec.pins)
            static = pin is not None or self._is_ours(task)
            why = self._out_of_scope(task) or why_fixed(task, self.spec, self.unbound, bound_by_us=static)
            if why is not None:
                self._skip(task, why)
                continue
            pinned = self._pinned_node(task, pin)
            if pin is not None and pinned is None:
                self._skip(task, f"Its static pin names node {pin}, which this node does not have or it may not use.")
                continue
            nodes = self._allowed_nodes(task)
            home = process.cpus.index(max(process.cpus))
            sizes = task.bytes_by_node or {}
            self.candidates.append(
                Candidate(
                    index, process, home, nodes,
                    bytes_by_node=tuple([sizes.get(node, 0) for node in self.machine.nodes]),
                    gains=self._gains(task), pinned=pinned,
                    movable=task.mempolicy is None and not task.from_cgroup,
                    bound=self._is_bound(task, pinned),
                )
            )  # fmt: skip
        self.assignment = Assignment(self.machine, processes)

    def _out_of_scope(self, task: NumaTask) -> str | None:
        return None if in_scope(self.scope, task.name, task.cgroup) else "Out of scope."

    def _is_ours(self, task: NumaTask) -> bool:
        if _affinity(task) in self.view.held:
            return True
        move = self.past.get((task.pid, task.started_ticks))
        return move is not None and move.values.get(_affinity(task)) == task.affinity

    def _pinned_node(self, task: NumaTask, pin: str | None) -> int | None:
        """Return the index of the first node of a static pin that the process may use."""
        if pin is None:
            return None
        allowed = self._allowed_nodes(task)
        return next((i for node in sorted(parse_cpu_list(pin)) if (i := self.index_of.get(node)) in allowed), None)

    def _is_bound(self, task: NumaTask, pinned: int | None) -> bool:
        """Return whether the affinity of a process lets it run on no other node than the one of its static pin."""
        nodes = self.view.topology.nodes
        return pinned is not None and {nodes.get(cpu) for cpu in parse_cpu_list(task.affinity)} == {
            self.machine.nodes[pinned]
        }

    def _allowed_nodes(self, task: NumaTask) -> tuple[int, ...]:
        key = task.allowed, task.mems_allowed
        if (known := self._nodes_by_cpuset.get(key)) is not None:
            return known
        cpus = parse_cpu_list(task.allowed)
        mems = parse_cpu_list(task.mems_allowed) if task.mems_allowed else frozenset(self.machine.nodes)
        found = tuple(at for at, node in enumerate(self.machine.nodes) if node in mems and self.cpus[at] & cpus)
        self._nodes_by_cpuset[key] = found
        return found

    def _gains(self, task: NumaTask) -> tuple[float, ...]:
        """Return the least speed-up factor by node index: higher for the node that the process left."""
        move, gain, now = self.past.get((task.pid, task.started_ticks)), self.spec.gain, self.view.time_s
        if move is None:
            return self._same_gains
        gains = list(self._same_gains)
        is_applied = move.applied or _is_applied(move, task)
        if is_applied and (index := self.index_of.get(move.origin)) is not None:
            gains[index] = 1.0 + 2.0 * (gain - 1.0)
        if move.rejected_s is not None and now - move.rejected_s < past.REJECTED_S:
            gains[self.index_of[move.node]] = inf
        return tuple(gains)

    def _loads(self) -> list[float]:
        """Return the load of each node's usable CPUs, in CPUs."""
        busy = self.view.load.busy
        return [sum((busy[cpu] or 0.0) if cpu < len(busy) else 0.0 for cpu in cpus) for cpus in self.cpus]

    def _room(self) -> Room:
        free_bytes = {
            each.node: int(each.free_bytes - MIN_FREE_SHARE * each.total_bytes)
            for each in self.numa.nodes
            if each.free_bytes is not None and each.total_bytes is not None
        }
        free = [free_bytes.get(node, 0) for node in self.machine.nodes]
        loads = self._loads()
        return Room(
            [len(cpus) - self.spec.reserve_cores - load for cpus, load in zip(self.cpus, loads, strict=True)], free
        )

    def _limits(self) -> Limits:
        spec = self.spec
        return Limits(spec.move_pages, spec.max_page_move_bytes, PAGE_COST_S, spec.contention)

    def _triggers(self, gaining: set[int]) -> list[str]:
        """Return the sentences of the triggers that are met."""
        loads = {
            node: load / len(cpus)
            for node, load, cpus in zip(self.machine.nodes, self._loads(), self.cpus, strict=True)
            if cpus
        }
        siblings = self.view.topology.cores
        cores = {self.machine.nodes[at]: sorted({siblings[cpu] for cpu in self.cpus[at]}, key=min) for at in gaining}
        found = (
            unbalanced(loads, self.numa.nodes, self.spec.max_node_gap),
            changed_behavior(
                self.numa.tasks, {each.pid: each for each in self.memory.behaviors}, self.spec.behavior_change
            ),
            idle_powerful_core(cores, self.view.load.busy),
        )
        return [sentence for sentence in found if sentence is not None]

    # Scheduler

    def _propose(self, move: Move) -> list[Proposal]:
        """Return a move's proposals, affinity first: later page faults follow the CPU."""
        task, node = self.tasks[move.index], self.machine.nodes[move.node]
        allowed = parse_cpu_list(task.allowed)
        cpus = format_cpu_list(self.cpus[move.node] & allowed)
        reason = reason_of(task, move, node, self.assignment.contention(move.index))
        values, was = {}, {}
        if cpus != task.affinity and not (move.pinned and self._is_bound(task, move.node)):
            values[_affinity(task)], was[_affinity(task)] = cpus, task.affinity
        memory = TaskMemoryNodes(task.pid)
        if move.with_pages and (now := memory.current(self.view)) is not None:
            values[memory.key], was[memory.key] = str(node), now
        origin = max(task.cpu_nodes, key=lambda each: task.cpu_nodes[each])
        before = self.past.get((task.pid, task.started_ticks))
        if before is None or before.values != values or before.rejected_s is not None:
            self.past[task.pid, task.started_ticks] = PastMove(
                task.pid, task.started_ticks, node, origin, values, was, move.was, move.run_time, move.with_pages,
                self.view.time_s,
            )  # fmt: skip
        subject = name_tasks([(task.name, task.pid)])
        return [Proposal(key, value, subject, reason) for key, value in values.items()]

    # Evaluation of its own moves

    def _measure(self, assignment: Assignment) -> None:
        """Add this round's run time to moves that the View shows."""
        for index, task in enumerate(self.tasks):
            move = self.past.get((task.pid, task.started_ticks))
            if move is None:
                continue
            applied = _is_applied(move, task)
            since_s = (move.since_s if move.since_s is not None else self.view.time_s) if applied else None
            measured = move.measured if applied else []
            if applied and len(measured) < past.EVALUATION_ROUNDS:
                measured = [*measured, assignment.run_time(index)]
            self.past[task.pid, task.started_ticks] = replace(
                move, seen_s=self.view.time_s, since_s=since_s, measured=measured
            )

    def _reverts(self) -> list[Proposal]:
        """Return proposals that roll back moves that did not pay off, until the View shows that they are."""
        found = []
        for index, task in enumerate(self.tasks):
            key = (task.pid, task.started_ticks)
            move = self.past.get(key)
            if move is None or move.pays_off() is not False:
                continue
            if rule_for(task, self.spec.pins) is not None:
                continue  # it stays, whatever it costs
            self.past[key] = replace(move, rejected_s=self.view.time_s)
            mean = sum(move.measured) / len(move.measured)
            reason = (
                f"Its predicted run time went from {move.before:.2f} to {mean:.2f} instead of {move.predicted:.2f} "
                f"(1.00 is all memory local); the move to node {move.node} is rolled back."
            )
            subject = name_tasks([(task.name, task.pid)])
            found += [Proposal(key, value, subject, reason) for key, value in reversed(move.was.items())]
            self.candidates = [candidate for candidate in self.candidates if candidate.index != index]
        return found

    # Sentences

    def _explain_others(self, moved: set[int], no_room: set[int], triggers: Sequence[str]) -> None:
        for candidate in self.candidates:
            if candidate.index in moved:
                continue
            task = self.tasks[candidate.index]
            if candidate.index in no_room:
                self._skip(task, "It would gain, but no node that is nearer to its memory has the CPUs free.")
            elif triggers:
                self._skip(task, f"No place is predicted to be {self.spec.gain:g} times as fast.")

    def _sentence(self, moves: Sequence[Move], reverts: Sequence[Proposal], triggers: Sequence[str]) -> str:
        head = f"{len(self.candidates)} of {len(self.numa.tasks)} processes may be moved: {len(moves)} to move"
        head += f", {len(reverts)} to roll back." if reverts else "."
        if self.numa.bandwidth_unknown is not None:
            alone = all(task.memory_bound is None for task in self.numa.tasks)
            head += " By distance alone, as memory bandwidth is unknown." if alone else " Contention is unknown."
        if not triggers and moves:
            return f"{head} They are pending since an earlier round."
        if not triggers:
            return f"{head} Load is balanced, no behavior changed, and no idle core would make a process faster."
        why = "; ".join(triggers)
        return f"{head} {why[0].upper()}{why[1:]}."

    def _skip(self, task: NumaTask, why: str) -> None:
        self.skipped.add(task.name, task.pid, why)


def _is_applied(move: PastMove, task: NumaTask) -> bool:
    """Return whether the View shows a move: the affinity, and most of the memory where its pages were to move."""
    sizes = task.bytes_by_node or {}
    moved = not move.pages or sizes.get(move.node, 0) > _MOST_MEMORY * sum(sizes.values())
    return moved and move.values.get(_affinity(task), task.affinity) == task.affinity


def _affinity(task: NumaTask) -> str:
    return TaskAffinity(task.pid).key


KIND = PolicyKind(Numa, NumaMemory, decide)
