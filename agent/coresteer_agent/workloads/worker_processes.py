"""Worker processes of one end of a traffic workload."""

import gc
import os
import traceback
from collections.abc import Callable
from typing import TypeAlias

from coresteer_agent.workloads.process_control import end_with_parent, minimize_timer_slack
from coresteer_agent.workloads.traffic_protocol import READY, exit_with_error, print_line

SignalReady: TypeAlias = Callable[[], None]
"""Called once by each process, when it is ready."""


def run_processes(parent: int, size: int, work: Callable[[int, SignalReady], None]) -> None:
    """Fork a worker process for each index below size, print READY when all are ready, and never return.

    Exits with the parent, and when one of the processes ends, which prints its reason; all processes end with this one.
    """
    end_with_parent(parent)
    ready_reader, ready_writer = os.pipe()
    gc.freeze()  # avoids copies of pages by the garbage collector
    gc.disable()
    own = os.getpid()
    for index in range(size):
        if os.fork() == 0:
            _work(own, index, ready_writer, work)
    os.close(ready_writer)
    ready = 0
    while ready < size and (received := os.read(ready_reader, size)):
        ready += len(received)
    if ready == size:
        print_line(READY)
    os.wait()
    os._exit(1)


def _work(parent: int, index: int, ready_writer: int, work: Callable[[int, SignalReady], None]) -> None:
    try:
        end_with_parent(parent)
        minimize_timer_slack()
        work(index, lambda: _signal_ready(ready_writer))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        exit_with_error(f"Process {index} of the traffic workload failed: {reason}.")
    except Exception:
        traceback.print_exc()
    os._exit(1)


def _signal_ready(ready_writer: int) -> None:
    os.write(ready_writer, b"r")
    os.close(ready_writer)
