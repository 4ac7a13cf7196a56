"""Streams over its own memory, which is on the NUMA node of the CPUs on which it was started, from CPUs of another.

    taskset --cpu-list 0-3 python -m tests.lab.stream --run 4-7 --mib 128 --seconds 60 [--free] [--name stream]
        [--busy 0.5] [--cgroup /sys/fs/cgroup/a/b]

--free: afterwards it may run anywhere, as a process that the kernel's load balancer moved. --name: of the process.
--busy: share of the time in which it streams, 1.0 unless given; it is idle otherwise.
--cgroup: in which it runs, and which counts its memory.
Prints "ready" once all memory is touched.
"""

import argparse
import os
import time
from pathlib import Path

from coresteer_core.cpuset import parse_cpu_list


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", required=True)
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--free", action="store_true")
    parser.add_argument("--busy", type=float, default=1.0)
    parser.add_argument("--name", default="stream")
    parser.add_argument("--cgroup", type=Path)
    arguments = parser.parse_args()
    if arguments.cgroup is not None:
        (arguments.cgroup / "cgroup.procs").write_text("0")
    Path("/proc/self/comm").write_text(arguments.name)
    memory = bytearray(arguments.mib << 20)
    memory[:: os.sysconf("SC_PAGE_SIZE")] = b"\1" * (len(memory) // os.sysconf("SC_PAGE_SIZE"))
    os.sched_setaffinity(0, parse_cpu_list(arguments.run))
    if arguments.free:
        time.sleep(0.1)
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    print("ready", flush=True)
    end = time.monotonic() + arguments.seconds
    while (began := time.monotonic()) < end:
        memory.count(0)
        if arguments.busy < 1.0:
            time.sleep((time.monotonic() - began) * (1 / arguments.busy - 1))


if __name__ == "__main__":
    main()
