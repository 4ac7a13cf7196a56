"""The scheduler of a node: its ready queue, whom it dispatches, whom it raises, and when it preempts.

A context switch is charged whenever another process than the last one is dispatched.
"""

from coresteer.simulation.compiled import compiled
from coresteer.simulation.machine import INFINITE, WEIGHT, charge, cut, proceed
from coresteer.simulation.solaris import HIGHEST, QUANTUM_S
from coresteer.simulation.state import BUSY, IDLE, OVERHEAD, READY, RECEIVE, RUNNING, SPIN, SWITCHING
from coresteer_core.policies.coscheduling import reorder

rebase = compiled(reorder.rebase)
expected_run_time = compiled(reorder.expected_run_time)
first_to_run = compiled(reorder.first_to_run)


@compiled
def enqueue(node, p, level):
    """Put a process at the tail of a level, with a new quantum."""
    p.state, p.level, p.waited = READY, level, 0
    p.quantum_s = QUANTUM_S[level]
    node.orders += 1
    p.order = node.orders


@compiled
def put_back(node, p):
    """Put a preempted process at the head of its level, with the rest of its quantum."""
    p.state = READY
    node.fronts -= 1
    p.order = node.fronts


@compiled
def ert_of(c, m, slot, now):
    """Return the least expected run time over the pending messages of a process; rebases what it knows of senders."""
    least, n = INFINITE, slot // c.mpl
    for other in range(c.nodes):
        sender = m.senders[slot, other]
        if sender.pending > 0:
            peer = m.peers[n, other]
            sender.enp, sender.heard_s = rebase(sender.enp, sender.heard_s, peer.heard_s, peer.ts_s)
            least = min(least, expected_run_time(sender.enp, sender.heard_s, peer.ts_s, now, c.sign))
    return least


@compiled
def first_pending(c, m, n, now):
    """Return the ready process with pending messages that should run first, by ERT; −1 without one.

    Charges the reordering where there is a choice.
    """
    begin, end = n * c.mpl, (n + 1) * c.mpl
    pending, found, only = 0, 0, -1
    for slot in range(begin, end):
        p = m.process[slot]
        p.ert_s = INFINITE
        if p.state == READY and p.pending > 0:
            found, only = found + 1, slot
            pending += p.pending
    if found <= 1:
        return only
    for slot in range(begin, end):
        p = m.process[slot]
        if p.state == READY and p.pending > 0:
            p.ert_s = ert_of(c, m, slot, now)
    charge(m.node[n], now, c.reorder_s + c.reorder_message_s * pending)
    own = m.process[begin:end]
    return begin + first_to_run(own["ert_s"], own["level"], own["oldest_s"], own["order"], c.mpl)


@compiled
def oldest_pending(c, m, n):
    """Return the ready process with pending messages of the highest level, with the oldest message; −1 without one."""
    best = -1
    for slot in range(n * c.mpl, (n + 1) * c.mpl):
        p = m.process[slot]
        if p.state != READY or p.pending == 0:
            continue
        if best < 0:
            best = slot
            continue
        b = m.process[best]
        if p.level > b.level or (p.level == b.level and (p.oldest_s, p.order) < (b.oldest_s, b.order)):
            best = slot
    return best


@compiled
def highest_ready(c, m, n):
    """Return the ready process at the head of the highest level; −1 without one."""
    best = -1
    for slot in range(n * c.mpl, (n + 1) * c.mpl):
        p = m.process[slot]
        if p.state != READY:
            continue
        if (
            best < 0
            or p.level > m.process[best].level
            or (p.level == m.process[best].level and p.order < m.process[best].order)
        ):
            best = slot
    return best


@compiled
def choose(c, m, n, now):
    """Return the process to dispatch, −1 without one.

    With reordering, those with pending messages count as one group, with the level of its highest member.
    """
    head = highest_ready(c, m, n)
    if not c.reorder or head < 0:
        return head
    level = -1
    for slot in range(n * c.mpl, (n + 1) * c.mpl):
        p = m.process[slot]
        if p.state == READY and p.pending > 0:
            level = max(level, p.level)
    if level < m.process[head].level:
        return head
    return first_pending(c, m, n, now)


@compiled
def dispatch(c, m, n, now):
    """Choose the next process once no overhead is in progress; charge the switch to it."""
    node = m.node[n]
    if node.free_s > now:
        node.state, node.next_s = OVERHEAD, node.free_s
        return
    slot = choose(c, m, n, now)
    if slot < 0:
        node.state, node.current, node.since_s, node.next_s = IDLE, -1, now, INFINITE
        return
    if node.state == IDLE:
        node.idle_s += now - node.since_s
    m.process[slot].state = RUNNING
    node.current, node.again, node.state = slot, 0, SWITCHING
    if slot != node.last:
        node.last = slot
        node.switches += 1
        node.switch_s += c.switch_s
        node.free_s = max(now, node.free_s) + c.switch_s
    node.next_s = max(now, node.free_s)


@compiled
def release(node, now):
    """Take the CPU from the running process, whose activity is accounted for."""
    node.ts_s += (now - node.dispatched_s - node.ts_s) * WEIGHT
    node.state, node.current = OVERHEAD, -1


@compiled
def leave(c, m, n, now):
    """Take the CPU from the running process, whose activity is accounted for, and dispatch the next."""
    node = m.node[n]
    release(node, now)
    dispatch(c, m, n, now)


@compiled
def clear_pending(c, m, slot):
    """Forget the senders of pending messages."""
    for sender in range(c.nodes):
        m.senders[slot, sender].pending = 0


@compiled
def start_receiving(c, m, slot):
    """Receive all pending messages."""
    p = m.process[slot]
    p.activity = RECEIVE
    p.need_s = p.pending * c.host_s
    p.taking_0, p.taking_1 = p.arrived_0, p.arrived_1
    p.arrived_0 = p.arrived_1 = 0
    p.pending, p.oldest_s = 0, INFINITE
    clear_pending(c, m, slot)


@compiled
def begin(c, m, n, now):
    """Run the process that was switched to, unless a better one became ready meanwhile."""
    node = m.node[n]
    p = m.process[node.current]
    if node.again:
        put_back(node, p)
        dispatch(c, m, n, now)
        return
    node.state, node.since_s, node.stolen_s, node.dispatched_s = BUSY, now, 0.0, now
    if m.totals[0].traced < m.trace.size:
        slice_ = m.trace[m.totals[0].traced]
        slice_.time_s, slice_.node, slice_.job, slice_.rank = now, n, p.job, p.rank
        m.totals[0].traced += 1
    if p.activity == SPIN and p.pending > 0:
        start_receiving(c, m, node.current)
    proceed(m, node)


@compiled
def preempt(c, m, n, now):
    """Let the best ready process run instead of the running one."""
    node = m.node[n]
    if node.state == SWITCHING:
        node.again = 1
        return
    cut(m, node, now)
    put_back(node, m.process[node.current])
    leave(c, m, n, now)


@compiled
def precedes(c, m, n, slot, now):
    """Return whether a ready process must run instead of the running one.

    Of two boosted processes with pending messages, reordering prefers one whose ERT is less by more than a switch.
    """
    node, p = m.node[n], m.process[slot]
    current = m.process[node.current]
    if p.level != current.level or p.level < HIGHEST:
        return p.level > current.level
    if not (c.reorder and c.arrival and current.pending and p.pending):
        return False
    return ert_of(c, m, slot, now) + c.switch_s < ert_of(c, m, node.current, now)


@compiled
def reschedule(c, m, n, slot, now):
    """Dispatch after a process became ready or rose, if the CPU is idle or runs one of a lower level."""
    node = m.node[n]
    if node.state == IDLE:
        dispatch(c, m, n, now)
    elif node.state in (BUSY, SWITCHING) and precedes(c, m, n, slot, now):
        preempt(c, m, n, now)


@compiled
def boost(c, m, n, slot, now):
    """Raise a ready process to the highest level."""
    if slot >= 0:
        p = m.process[slot]
        if p.level < HIGHEST:
            enqueue(m.node[n], p, HIGHEST)
        reschedule(c, m, n, slot, now)
