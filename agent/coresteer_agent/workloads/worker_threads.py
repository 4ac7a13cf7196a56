"""The processes of one end of a traffic workload."""

import gc
import os
import traceback
from collections.abc import Callable
from typing import TypeAlias

from coresteer_agent.workloads.process_control import end_with_parent, wake_exactly
from coresteer_agent.workloads.traffic import READY, give_up, say

Ready: TypeAlias = Callable[[], None]
"""To be called once by each process, when it has what it needs."""


def run_team(parent: int, size: int, work: Callable[[int, Ready], None]) -> None:
    """Fork a process for each number below size, say when all are ready, and never return.

    Ends with the parent, and when one of them ends, which says why; all of them end with this one.
    """
    end_with_parent(parent)
    told, tells = os.pipe()
    gc.freeze()  # collects nothing, so that no page is copied
    gc.disable()
    own = os.getpid()
    for turn in range(size):
        if os.fork() == 0:
            _work(own, turn, tells, work)
    os.close(tells)
    ready = 0
    while ready < size and (heard := os.read(told, size)):
        ready += len(heard)
    if ready == size:
        say(READY)
    os.wait()
    os._exit(1)


def _work(parent: int, turn: int, tells: int, work: Callable[[int, Ready], None]) -> None:
    try:
        end_with_parent(parent)
        wake_exactly()
        work(turn, lambda: _tell(tells))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        give_up(f"Process {turn} of the traffic gave up: {reason}.")
    except Exception:
        traceback.print_exc()
    os._exit(1)


def _tell(tells: int) -> None:
    os.write(tells, b"r")
    os.close(tells)
