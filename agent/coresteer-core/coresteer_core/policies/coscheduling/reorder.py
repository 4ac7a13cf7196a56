"""Process reordering for coscheduling (PROC; Yu, Azougagh, Kim, Maeng; figure 3): which process should run first.

Every node measures TS, the mean time slice that its processes use, and ENP, the expected number of processes that run
before the current one runs again, and sends both with its messages. A receiver predicts from them when the sender of a
pending message runs again, the expected run time (ERT): the process with the least ERT has the peer that waits soonest.

Plain functions over floats and indexable arrays, each complete in itself, so that the simulation can compile them with
numba and the live policy can call them as they are. Times in seconds on the receiver's clock, one unit throughout.

The sign. The paper prints ``ERT = TS·ENP + (t − T)``; this module uses minus (``sign`` is −1; +1 is the printed form):

- TS·ENP is the time until the sender runs again, counted from T, so what remains of it shrinks as time passes.
- Line 14 of figure 3 subtracts elapsed time from ENP, and with minus that leaves ERT unchanged while TS is constant.
- With plus, an old message makes a process less urgent, and it starves.

ERT and ENP are not limited to 0: a negative ERT means that the sender probably waits already, and the longest wait
comes first.
"""

from collections.abc import Sequence

SAME_S = 1e-6
"""Run times that differ by less are equal."""
MINUS, AS_PRINTED = -1.0, 1.0


def rebase(enp: float, heard_s: float, node_heard_s: float, ts_s: float) -> tuple[float, float]:
    """Return a sender's ENP and the time it counts from, after messages it has since sent to other processes.

    enp: received with the message. heard_s: when the message arrived. node_heard_s: when the last message of its node
    to any process arrived. ts_s: the latest TS of that node, more than 0 (figure 3, lines 12 to 15).
    """
    if heard_s >= node_heard_s:
        return enp, heard_s
    return enp - (node_heard_s - heard_s) / ts_s, node_heard_s


def expected_run_time(enp: float, heard_s: float, ts_s: float, now_s: float, sign: float) -> float:
    """Return in how many seconds the sender of a message is expected to run again (figure 3, line 16)."""
    return ts_s * enp + sign * (now_s - heard_s)


def first_to_run(
    ert: Sequence[float], level: Sequence[int], oldest_s: Sequence[float], order: Sequence[int], count: int
) -> int:
    """Return the index of the process that should run first, −1 if there is none.

    ert: the least expected run time over a process's pending messages, infinite where it has none. Equal ones are
    ordered by the higher scheduling level, then by the oldest pending message, then by their place in the ready queue.
    """
    best = -1
    for k in range(count):
        if ert[k] == float("inf"):
            continue
        if best < 0 or ert[k] < ert[best] - SAME_S:
            best = k
            continue
        if ert[k] > ert[best] + SAME_S or level[k] < level[best]:
            continue
        if level[k] > level[best] or (oldest_s[k], order[k]) < (oldest_s[best], order[best]):
            best = k
    return best


def expected_processes(
    pending: Sequence[bool], highest: Sequence[bool], count: int, woken: float, is_sum: bool
) -> float:
    """Return ENP of a node: the processes that run before the current one runs again.

    pending: which processes have pending messages. highest: which are in the highest ready level that is not empty.
    Both exclude the running process. woken: mean number of processes that arriving messages wake in a period. is_sum:
    whether a process that is both counts twice; the paper leaves open whether it means the sum or the union.
    """
    found = 0
    for k in range(count):
        if is_sum:
            found += pending[k] + highest[k]
        elif pending[k] or highest[k]:
            found += 1
    return found + woken
