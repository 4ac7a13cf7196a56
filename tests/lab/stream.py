"""Streams over its own memory, which it first touches on one NUMA node, from CPUs of another.

    python -m tests.lab.stream --touch 0-3 --run 4-7 --mib 128 --seconds 60 [--free]

--free: afterwards it may run anywhere, as a process that the kernel's load balancer moved. Prints "ready" once all
memory is touched.
"""

import argparse
import os
import time

from coresteer_core.cpuset import parse_cpu_list


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--touch", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--free", action="store_true")
    arguments = parser.parse_args()
    everything = os.sched_getaffinity(0)
    os.sched_setaffinity(0, parse_cpu_list(arguments.touch))
    memory = bytearray(arguments.mib << 20)
    memory[:: os.sysconf("SC_PAGE_SIZE")] = b"\1" * (len(memory) // os.sysconf("SC_PAGE_SIZE"))
    os.sched_setaffinity(0, parse_cpu_list(arguments.run))
    if arguments.free:
        time.sleep(0.1)
        os.sched_setaffinity(0, everything)
    print("ready", flush=True)
    end = time.monotonic() + arguments.seconds
    while time.monotonic() < end:
        memory.count(0)


if __name__ == "__main__":
    main()
