"""State of the machine, its pending events, and how a node's CPU spends its time.

Overhead (interrupts, load updates, reordering) is served before anything else and in order; it delays the activity in
progress.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coresteer.simulation.compiled import compiled
from coresteer.simulation.state import BUSY, IDLE, OVERHEAD, SPIN

INFINITE = np.inf
WEIGHT = 1 / 8
"""Of a new value in the mean time slice and the mean number of processes woken."""


class Machine(NamedTuple):
    """Arrays of the machine's state, see state.py.

    senders: by slot and node. peers: by node and node. ranks: by job and rank.
    """

    process: np.ndarray
    node: np.ndarray
    senders: np.ndarray
    peers: np.ndarray
    job: np.ndarray
    ranks: np.ndarray
    heap: np.ndarray
    totals: np.ndarray
    factors: NDArray[np.float64]
    trace: np.ndarray


@compiled
def push(m, time_s, key):
    """Add an event to the heap."""
    heap, at = m.heap, m.totals[0].heap
    m.totals[0].heap += 1
    while at > 0:
        parent = (at - 1) >> 1
        if heap[parent].time_s < time_s or (heap[parent].time_s == time_s and heap[parent].key < key):
            break
        heap[at].time_s, heap[at].key = heap[parent].time_s, heap[parent].key
        at = parent
    heap[at].time_s, heap[at].key = time_s, key


@compiled
def pop(m):
    """Remove and return the key of the first event."""
    heap = m.heap
    found = heap[0].key
    m.totals[0].heap -= 1
    count = m.totals[0].heap
    time_s, key = heap[count].time_s, heap[count].key
    at = 0
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        right = child + 1
        if right < count and (
            heap[right].time_s < heap[child].time_s
            or (heap[right].time_s == heap[child].time_s and heap[right].key < heap[child].key)
        ):
            child = right
        if time_s < heap[child].time_s or (time_s == heap[child].time_s and key < heap[child].key):
            break
        heap[at].time_s, heap[at].key = heap[child].time_s, heap[child].key
        at = child
    heap[at].time_s, heap[at].key = time_s, key
    return found


@compiled
def key_of(m, kind, parity, job, rank):
    """Return an event's key."""
    return ((kind * 2 + parity) * m.ranks.shape[0] + job) * m.ranks.shape[1] + rank


@compiled
def charge(node, now, cost_s):
    """Let a node's CPU spend overhead from now on, or after the overhead in progress."""
    if cost_s <= 0.0:
        return
    node.overhead_s += cost_s
    node.free_s = max(now, node.free_s) + cost_s
    if node.state == IDLE:
        node.idle_s += now - node.since_s
        node.state = OVERHEAD
        node.next_s = node.free_s
    elif node.state == BUSY:
        node.stolen_s += cost_s
        node.next_s += cost_s
    else:
        node.next_s = node.free_s


@compiled
def cut(m, node, now):
    """Account for the activity of the running process until now."""
    p = m.process[node.current]
    used = now - node.since_s - node.stolen_s + max(0.0, node.free_s - now)
    if p.activity == SPIN:
        node.spin_s += used
    else:
        node.compute_s += used
    p.need_s -= used
    p.quantum_s -= used
    node.since_s = now
    node.stolen_s = max(0.0, node.free_s - now)


@compiled
def proceed(m, node):
    """Set when the activity of the running process or its quantum ends."""
    p = m.process[node.current]
    node.next_s = node.since_s + node.stolen_s + max(0.0, min(p.need_s, p.quantum_s))


@compiled
def settle_woken(c, node, now):
    """Bring the mean number of processes woken in a period up to date."""
    window = int(now / c.wake_window_s)
    if window > node.window:
        node.woken_mean += (node.woken - node.woken_mean) * WEIGHT
        node.woken_mean *= (1.0 - WEIGHT) ** (window - node.window - 1)
        node.woken, node.window = 0, window
