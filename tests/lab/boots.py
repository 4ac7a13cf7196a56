"""Boot each machine repeatedly and count the boots that had to be repeated."""

import statistics
import sys
import time

from tests.lab.machines import MACHINES
from tests.lab.provision import provide
from tests.lab.rig import boot


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    kit = provide()
    print(f"| machine | boots | needed another try | median s | slowest s |\n|{'---|' * 5}", flush=True)
    for name, machines in MACHINES.items():
        took: list[float] = []
        retried = 0
        for _ in range(count):
            began = time.monotonic()
            with boot(kit, *machines) as guests:
                took.append(time.monotonic() - began)
                retried += any(guest.attempts > 1 for guest in guests)
        print(f"| {name} | {count} | {retried} | {statistics.median(took):.1f} | {max(took):.1f} |", flush=True)


if __name__ == "__main__":
    main()
