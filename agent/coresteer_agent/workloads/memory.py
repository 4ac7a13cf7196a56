"""Program that runs computing and memory processes with a fixed amount of work and prints their run times.

python -m coresteer_agent.workloads.memory CONFIG         (MemoryConfig as JSON)

The work of a process is a fixed number of steps, about one nominal second's for each second of ``work_s``:

- computing: modular powers of numbers that stay in the CPU's registers and first cache.
- stream: copies of one half of its memory to the other, which need bandwidth.
- chase: reads, each of the address that the one before returned, in an order that neither caches nor prefetchers
  foresee: one 8-byte word of each line of 64 bytes, on a random cycle through all lines.

All processes touch their memory first and then start together. The run times begin with that start.
"""

import ctypes
import os
import random
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from statistics import fmean

import msgspec
import psutil
from msgspec import Struct

from coresteer_agent.collect.cgroup_memory import read_headroom
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import list_numbered, read_bytes
from coresteer_agent.collect.numa_maps import parse_numa_maps
from coresteer_agent.workloads.process_control import end_with_parent, pin_to_cpu
from coresteer_agent.workloads.traffic_protocol import exit_with_error, parse_cpus, print_line
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.experiments.model import Memory

POWERS_PER_S = 200
COPIED_BYTES_PER_S = 4 << 30
READS_PER_S = 4_000_000
"""Work of a nominal second: about what a core of 3 GHz does alone with local memory."""
_MOST_MEMORY = 0.5
"""Share of the available memory, also of the agent's own cgroup, that all processes together may use."""
_PRIME = (1 << 1279) - 1
_LINE_WORDS, _LINE_BYTES = 8, 64
_NODES = "sys/devices/system/node"
_MIB = 1 << 20


class MemoryConfig(Struct):
    """Configuration of the program. parent: PID of the process with which it ends."""

    parent: int
    workload: Memory


class Finished(Struct):
    """Result of a process. end_s: monotonic. remote_share: of its memory, None on one NUMA node or if unreadable."""

    is_memory: bool
    end_s: float
    remote_share: float | None = None


def main() -> None:
    """Run the processes of the workload once and print its metrics as JSON."""
    config = msgspec.json.decode(sys.argv[1], type=MemoryConfig)
    end_with_parent(config.parent)
    workload = config.workload
    needed = workload.memory_processes * workload.mib * _MIB
    available = min(psutil.virtual_memory().available, read_headroom(Path("/")))
    if needed > _MOST_MEMORY * available:
        exit_with_error(
            f"The memory processes need {needed >> 20} MiB, over half of the {available >> 20} MiB that are available."
        )
    start_s, finished = run(workload)
    print_line(msgspec.json.encode(figures(start_s, finished)).decode())


def figures(start_s: float, finished: list[Finished]) -> dict[str, float]:
    """Return metrics by name from the results of all processes."""
    found = {"makespan_s": max(each.end_s for each in finished) - start_s}
    for name, is_memory in (("memory_run_s", True), ("compute_run_s", False)):
        times = [each.end_s - start_s for each in finished if each.is_memory == is_memory]
        found |= {name: fmean(times)} if times else {}
    shares = [each.remote_share for each in finished if each.remote_share is not None]
    return found | ({"remote_numa_share": fmean(shares)} if shares else {})


def run(workload: Memory) -> tuple[float, list[Finished]]:
    """Fork the processes, let them start together, and return that time (monotonic) and their results."""
    own = os.getpid()
    ready, is_ready = os.pipe()
    start, starts = os.pipe()
    results, result = os.pipe()
    count = workload.compute_processes + workload.memory_processes
    for index in range(count):
        if os.fork() == 0:
            for unused in (ready, starts, results):
                os.close(unused)
            _process(own, workload, index, is_ready, start, result)
    for unused in (is_ready, start, result):
        os.close(unused)
    _await_all(ready, count)
    start_s = time.monotonic()
    os.close(starts)  # all read its end at once
    decoder = msgspec.json.Decoder(Finished)
    finished = [decoder.decode(line) for line in _read_all(results).splitlines()]
    for _ in range(count):
        _, status = os.wait()
        if status:
            sys.exit(1)  # the process has printed why
    return start_s, finished


def _await_all(ready: int, count: int) -> None:
    """Wait for a byte of each process. Exits where one ended before: it has printed why."""
    seen = 0
    while seen < count:
        received = os.read(ready, count)
        if not received:
            sys.exit(1)
        seen += len(received)


def _read_all(results: int) -> bytes:
    with open(results, "rb") as pipe:
        return pipe.read()


def _process(  # noqa: PLR0917 - pipes, each once
    parent: int, workload: Memory, index: int, is_ready: int, start: int, result: int
) -> None:
    """Be one of the processes; never returns. The first ones compute, the others use memory."""
    code, place = 1, index - workload.compute_processes
    try:
        end_with_parent(parent)
        if place < 0:
            pin_to_cpu(parse_cpus(workload.compute_cpus), index)
            work = partial(compute, round(workload.work_s * POWERS_PER_S))
        else:
            work = prepare_memory(workload, place)
        os.write(is_ready, b"r")
        os.close(is_ready)
        os.read(start, 1)
        work()
        end_s = time.monotonic()
        share = remote_share() if place >= 0 else None
        os.write(result, msgspec.json.encode(Finished(place >= 0, end_s, share)) + b"\n")
        code = 0
    except BrokenPipeError:
        pass  # the workload's own process has ended, because another one failed and said why
    except (OSError, ValueError, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        exit_with_error(f"Process {index} of the memory workload failed: {reason or 'no memory is left'}.")
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


def prepare_memory(workload: Memory, place: int) -> partial[None]:
    """Allocate and touch a process's memory, pin the process and return its work. Raises OSError and ValueError.

    place: of the process among the memory processes.
    """
    everywhere, cpus = os.sched_getaffinity(0), parse_cpus(workload.memory_cpus)
    if workload.first_touch == "lowest":
        os.sched_setaffinity(0, _lowest_node(everywhere))
    else:
        pin_to_cpu(cpus, place)
    memory = memoryview(bytearray(workload.mib * _MIB))
    words = memory.cast("Q")
    if workload.access == "chase":
        link_lines(words, random.Random(f"{workload.seed} {place}"))  # noqa: S311 - no secret
    if workload.first_touch == "lowest":
        os.sched_setaffinity(0, everywhere)
        pin_to_cpu(cpus, place)
    if workload.access == "chase":
        return partial(chase, words, round(workload.work_s * READS_PER_S))
    return partial(copy_halves, memory, round(workload.work_s * COPIED_BYTES_PER_S))


def _lowest_node(allowed: set[int]) -> frozenset[int]:
    """Return the allowed CPUs of the lowest NUMA node; all allowed ones without NUMA nodes. Raises ValueError."""
    nodes = cpus_by_node()
    if not nodes:
        return frozenset(allowed)
    cpus = nodes[min(nodes)] & allowed
    if not cpus:
        raise ValueError(f"it may not use any CPU of NUMA node {min(nodes)}, where its memory is to be")
    return cpus


def compute(powers: int) -> None:
    """Compute modular powers."""
    for exponent in range(powers):
        pow(3, (_PRIME >> 1) + exponent, _PRIME)


def copy_halves(memory: memoryview, size: int) -> None:
    """Copy one half of the memory to the other until a number of bytes is copied."""
    half = len(memory) // 2
    lower, upper = memory[:half], memory[half:]
    for _ in range(max(1, size // half)):
        upper[:] = lower


def link_lines(words: memoryview, seeded: random.Random) -> None:
    """Write the index of a next line to the first word of each line, so that they form one cycle in random order.

    Of memory that has no power of two of lines, the rest is not used. A linear congruential sequence of full period
    (Hull and Dobell, 1962) needs no table of the order.
    """
    lines = 1 << ((len(words) // _LINE_WORDS).bit_length() - 1)
    factor, offset = 4 * seeded.randrange(lines // 4) + 1, 2 * seeded.randrange(lines // 2) + 1
    for line in range(lines):
        words[line * _LINE_WORDS] = (factor * line + offset) % lines * _LINE_WORDS


def chase(words: memoryview, reads: int) -> None:
    """Read a number of words, each at the index that the last one contained."""
    at = 0
    for _ in range(reads):
        at = words[at]


def remote_share() -> float | None:
    """Return the share of this process's memory on other NUMA nodes than its CPU; None on one node or if unreadable."""
    nodes = cpus_by_node()
    if len(nodes) < 2:
        return None
    cpu = ctypes.CDLL(None).sched_getcpu()
    path = "proc/self/numa_maps"
    try:
        sizes = parse_numa_maps(read_bytes(Path("/"), path) or b"", path).bytes_by_node
    except (OSError, ParseError):
        return None
    total = sum(sizes.values())
    local = sum(size for node, size in sizes.items() if cpu in nodes.get(node, ()))
    return 1.0 - local / total if total else None


def cpus_by_node() -> dict[int, frozenset[int]]:
    """Return the CPUs of each NUMA node that has some; empty where the kernel has no NUMA support."""
    root = Path("/")
    found = {
        node: parse_cpu_list((read_bytes(root, f"{_NODES}/node{node}/cpulist") or b"").decode().strip())
        for node in list_numbered(root, _NODES, "node")
    }
    return {node: cpus for node, cpus in found.items() if cpus}


if __name__ == "__main__":
    main()
