"""NUMA state of the machine: memory of nodes, and the memory by node of busy or large processes."""

import time
from math import inf
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.collect.cgroup_memory import read_only_process_memory
from coresteer_agent.collect.cpuset import read_mems_allowed
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import read_file
from coresteer_agent.collect.numa import Allocations, read_allocations, read_node_memory
from coresteer_agent.collect.numa_maps import NumaMaps, parse_numa_maps
from coresteer_agent.observe.bandwidth import BandwidthReader
from coresteer_agent.observe.net_tasks import TaskFacts, TaskReader
from coresteer_core.node.numa import MAX_NUMA_TASKS, NodeMemory, NumaState, NumaTask
from coresteer_core.node.topology import Topology

BUDGET = 0.02
"""Share of one CPU that reading numa_maps and memory traffic may take."""
MAX_READ_S = 0.25
"""Of a process whose numa_maps would take longer, only its cgroup is read: the agent does nothing else meanwhile."""
_S_PER_BYTE = 0.012 / (1 << 30)
"""Estimate of the time of a read; each process has its own after two."""
_SLOW_FOR_S = 600.0
"""After this time, the estimate by size counts again instead of reads that were slow."""
_NO_HMAT = "The firmware does not state what the memory can transfer (HMAT)."
_MAX_CREDIT_S = 0.1
_MIN_AGAIN_S = 5.0
_PAUSED_LATER_S = 60.0
"""How much longer a process without CPU time waits for its turn than one whose memory the policy may move."""


class _Known(Struct):
    """numa_maps of a process. costs_s: of its last two reads; they count until slow_until_s.

    maps: None with the reason in unknown. from_cgroup: maps has the anonymous memory that its cgroup counts.
    """

    started_ticks: int
    read_s: float = 0.0
    costs_s: tuple[float, ...] = ()
    slow_until_s: float = inf
    maps: NumaMaps | None = None
    unknown: str | None = None
    from_cgroup: bool = False


class NumaReader:
    """Reads the NUMA state of a machine with at least two NUMA nodes. Not thread-safe."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._tasks = TaskReader(root)
        self._known: dict[int, _Known] = {}
        self._facts: dict[int, TaskFacts] = {}
        self._credit_s = _MAX_CREDIT_S
        self._ticked_s = time.monotonic()
        self._allocations: tuple[float, dict[int, Allocations]] | None = None
        self._bandwidth = BandwidthReader(root)

    def tick(self) -> None:
        """Read numa_maps of one process, the one that was not read for longest, if the budget permits."""
        now_s = time.monotonic()
        self._credit_s = min(_MAX_CREDIT_S, self._credit_s + BUDGET * (now_s - self._ticked_s))
        self._ticked_s = now_s
        due = [pid for pid in self._facts if pid not in self._known or now_s - self._known[pid].read_s >= _MIN_AGAIN_S]
        if self._credit_s <= 0 or not due:
            return

        def turn_s(each: int) -> float:
            if (known := self._known.get(each)) is None:
                return -inf
            return known.read_s if self._facts[each].cpu_share else known.read_s + _PAUSED_LATER_S

        pid = min(due, key=turn_s)
        self._read_maps(pid, self._facts[pid], now_s)

    def forget_memory(self, pid: int, *, moved: bool) -> None:
        """Read the memory of a process again soon. moved: its pages were, so what is known of them is out of date."""
        if (known := self._known.get(pid)) is not None:
            known.read_s = -inf
            if moved:
                known.maps, known.unknown = None, "Its memory has not been read since its pages were moved."

    def read(self, pids: list[int], topology: Topology) -> NumaState:
        """Return the state. pids: of busy or large processes; the first MAX_NUMA_TASKS are read."""
        self._tasks.begin_round()
        found = {pid: facts for pid in pids[:MAX_NUMA_TASKS] if (facts := self._tasks.read(pid)) is not None}
        for pid in self._facts.keys() - found.keys():
            self._tasks.forget(pid)
            self._known.pop(pid, None)
        self._facts = found
        tasks = [self._task(pid, facts, topology) for pid, facts in found.items() if not facts.scheduling.kernel]
        begin_s = time.thread_time()
        bandwidth = self._bandwidth.read(tasks, topology)
        self._credit_s -= time.thread_time() - begin_s
        tasks = [
            replace(task, bytes_per_s=per_s, memory_bound=bound) if per_s is not None or bound is not None else task
            for task in tasks
            for per_s, bound in [(bandwidth.bytes_per_s.get(task.pid), bandwidth.memory_bound.get(task.pid))]
        ]
        memory = [
            replace(each, local_bytes_per_s=traffic.local, remote_bytes_per_s=traffic.remote)
            if (traffic := bandwidth.nodes.get(each.node)) is not None
            else each
            for each in self._memory()
        ]
        unknown = bandwidth.unknown
        if unknown is None and all(each.bandwidth_bytes_per_s is None for each in memory):
            unknown = _NO_HMAT
        return NumaState(memory, tasks, unknown, bandwidth.traffic_unknown)

    def close(self) -> None:
        """Close the performance counters."""
        self._bandwidth.close()

    def _read_maps(self, pid: int, facts: TaskFacts, now_s: float) -> None:
        known = self._known.get(pid)
        if known is None or known.started_ticks != facts.started_ticks:
            known = _Known(facts.started_ticks)
        costs_s = known.costs_s if now_s < known.slow_until_s else ()
        estimate_s = facts.rss_bytes * _S_PER_BYTE
        # one slow read may be due to other work on the machine
        expected_s = min(costs_s) if len(costs_s) > 1 else min([estimate_s, *costs_s])
        if expected_s > MAX_READ_S:
            until_s = min(known.slow_until_s, now_s + _SLOW_FOR_S) if costs_s else inf
            self._known[pid] = _Known(facts.started_ticks, now_s, costs_s, until_s)
            self._read_cgroup(pid, facts, self._known[pid], expected_s)
            return
        path = f"proc/{pid}/numa_maps"
        maps, begin_s = None, time.thread_time()
        why: str | None = None
        try:
            maps = parse_numa_maps(read_file(self._root, path), path)
        except OSError as error:
            why = f"Its numa_maps cannot be read: {error.strerror}."
        except ParseError as error:
            why = str(error)
        cost_s = time.thread_time() - begin_s
        self._credit_s -= cost_s
        self._known[pid] = _Known(facts.started_ticks, now_s, (*costs_s, cost_s)[-2:], maps=maps, unknown=why)

    def _read_cgroup(self, pid: int, facts: TaskFacts, known: _Known, expected_s: float) -> None:
        known.unknown = f"A read of its numa_maps would take about {expected_s:.1f} s, over {MAX_READ_S:g} s."
        sizes = read_only_process_memory(self._root, facts.identity.groups.unified or "", pid)
        if sizes is not None:
            known.maps = NumaMaps(sizes, max(0, facts.rss_bytes - sum(sizes.values())), None)
            known.unknown, known.from_cgroup = None, True

    def _task(self, pid: int, facts: TaskFacts, topology: Topology) -> NumaTask:
        known = self._known.get(pid)
        if known is None or known.started_ticks != facts.started_ticks:
            known = _Known(facts.started_ticks, unknown="Its memory has not been read yet.")
        used = sum(facts.cpus.values()) or 1.0
        cpu_nodes: dict[int, float] = {}
        for cpu, share in facts.cpus.items():
            node = topology.nodes.get(cpu)
            if node is not None:
                cpu_nodes[node] = cpu_nodes.get(node, 0.0) + facts.cpu_share * share / used
        groups = facts.identity.groups
        return NumaTask(
            pid=pid,
            started_ticks=facts.started_ticks,
            name=facts.name,
            cgroup=groups.unified,
            threads=facts.threads,
            affinity=facts.affinity,
            allowed=facts.allowed,
            cpu=facts.cpu,
            cpu_share=facts.cpu_share,
            rss_bytes=facts.rss_bytes,
            age_s=facts.age_s,
            cpu_nodes=cpu_nodes,
            mems_allowed=read_mems_allowed(self._root, pid),
            bytes_by_node=known.maps.bytes_by_node if known.maps is not None else None,
            unknown=known.unknown,
            shared_bytes=known.maps.shared_bytes if known.maps is not None else 0,
            mempolicy=known.maps.mempolicy if known.maps is not None else None,
            from_cgroup=known.from_cgroup,
            bound=facts.scheduling.bound,
            user=facts.identity.user,
            command=facts.identity.command,
            unit=groups.unit,
            params={"nice": str(facts.scheduling.nice)},
            kernel=facts.scheduling.kernel,
            realtime=facts.scheduling.realtime,
            threads_differ=facts.threads_differ,
        )

    def _memory(self) -> list[NodeMemory]:
        now_s, now = time.monotonic(), read_allocations(self._root)
        before, self._allocations = self._allocations, (now_s, now)
        found = read_node_memory(self._root)
        if before is None or now_s <= before[0]:
            return found
        seconds = now_s - before[0]
        return [
            replace(
                memory,
                local_pages_per_s=max(0, after.local - was.local) / seconds,
                remote_pages_per_s=max(0, after.remote - was.remote) / seconds,
            )
            if (after := now.get(memory.node)) is not None and (was := before[1].get(memory.node)) is not None
            else memory
            for memory in found
        ]
