"""Runs one program of any kind so that it and all that it starts end with the agent.

python -m coresteer_agent.workloads.supervisor ORDERS               (Orders; SIGTERM ends it all)
"""

import os
import signal
import sys
from contextlib import suppress

import msgspec
import psutil
from msgspec import Struct

from coresteer_agent.workloads.process_control import adopt_orphans, end_with_parent, enter_network
from coresteer_agent.workloads.traffic import give_up


class Orders(Struct):
    """parent: its process id. name: of the program, for sentences. network: a namespace's path, empty for this one."""

    parent: int
    argv: list[str]
    name: str
    network: str = ""
    cpus: list[int] = []


def main() -> None:
    """Run it and end as it ends."""
    orders = msgspec.json.decode(sys.argv[1], type=Orders)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        end_with_parent(orders.parent, signal.SIGTERM)
        adopt_orphans()
        enter_network(orders.network)
        if orders.cpus:
            os.sched_setaffinity(0, orders.cpus)
    except OSError as error:
        give_up(f"{orders.name} could not be started: {error.strerror}.")
    try:
        sys.exit(_run(orders))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end_descendants()


def _run(orders: Orders) -> int:
    own, child = os.getpid(), os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            end_with_parent(own)
            os.execvp(orders.argv[0], orders.argv)  # noqa: S606 - the operator's own command, without a shell
        except OSError as error:
            give_up(f"{orders.name} could not be started: {error.strerror} ({orders.argv[0]}).")
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _end_descendants() -> None:
    """What has lost its parent has become a child of this one, so that in the end nothing is left."""
    while True:
        for child in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):
                child.kill()
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()
