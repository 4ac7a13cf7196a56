"""Program that runs a command so that it and all its descendants end with the agent.

python -m coresteer_agent.workloads.supervisor CONFIG               (Config as JSON; SIGTERM ends everything)
"""

import os
import signal
import sys
from contextlib import suppress

import msgspec
import psutil
from msgspec import Struct

from coresteer_agent.workloads.process_control import adopt_orphans, end_with_parent, enter_network_namespace
from coresteer_agent.workloads.receipts import begin_receipts
from coresteer_agent.workloads.traffic_protocol import ReceiptsPart, exit_with_error


class Config(Struct):
    """Configuration of the supervisor. parent: PID of the process with which it ends. name: of the command.

    network: path of a network namespace, or empty.
    """

    parent: int
    argv: list[str]
    name: str
    network: str = ""
    cpus: list[int] = []
    receipts: ReceiptsPart | None = None


def main() -> None:
    """Run the command and exit with its exit code."""
    config = msgspec.json.decode(sys.argv[1], type=Config)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        end_with_parent(config.parent, signal.SIGTERM)
        adopt_orphans()
        enter_network_namespace(config.network)
        if config.cpus:
            os.sched_setaffinity(0, config.cpus)
    except OSError as error:
        exit_with_error(f"{config.name} could not be started: {error.strerror}.")
    begin_receipts(config.receipts)
    try:
        sys.exit(_run(config))
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end_descendants()


def _run(config: Config) -> int:
    own, child = os.getpid(), os.fork()
    if child == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            end_with_parent(own)
            os.execvp(config.argv[0], config.argv)  # noqa: S606 - the operator's own command, without a shell
        except OSError as error:
            exit_with_error(f"{config.name} could not be started: {error.strerror} ({config.argv[0]}).")
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _end_descendants() -> None:
    """Kill all descendants, including orphans, which this process has adopted."""
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
