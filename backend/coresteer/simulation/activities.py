"""What processes do: compute, I/O, send, receive or wait; and how jobs start and end."""

from coresteer.simulation.compiled import compiled
from coresteer.simulation.machine import INFINITE, key_of, proceed, push, settle_woken
from coresteer.simulation.scheduler import (
    clear_pending,
    dispatch,
    enqueue,
    highest_ready,
    leave,
    release,
    reschedule,
    start_receiving,
)
from coresteer.simulation.schemes import Wait
from coresteer.simulation.solaris import FIRST_LEVEL, HIGHEST
from coresteer.simulation.state import (
    ARRIVED,
    COMPUTE,
    FREE,
    IO_DONE,
    READY,
    RUNNING,
    SEND,
    SLEEPS_IO,
    SLEEPS_MESSAGE,
    SPIN,
)
from coresteer_core.policies.coscheduling import reorder

BLOCK, SPIN_BLOCK, SPIN_YIELD = int(Wait.BLOCK), int(Wait.SPIN_BLOCK), int(Wait.SPIN_YIELD)
expected_processes = compiled(reorder.expected_processes)


@compiled
def factor(c, m, p, kind):
    """Return the factor of a process's computation (0) or I/O (1) in its loop."""
    return m.factors[(m.ranks[p.job, p.rank].offset + c.stride * p.loop + kind) % m.factors.shape[0]]


@compiled
def send(c, m, n, slot, now):
    """Hand the messages of a loop to the network, with the node's load."""
    node, p = m.node[n], m.process[slot]
    parity = p.loop & 1
    if c.reorder:
        head = highest_ready(c, m, n)
        level = m.process[head].level if head >= 0 else -1
        own = m.process[n * c.mpl : (n + 1) * c.mpl]
        for k in range(c.mpl):
            other = own[k]
            other.has_pending = other.state not in (FREE, RUNNING) and other.pending > 0
            other.in_highest = other.state == READY and other.level == level
        settle_woken(c, node, now)
        enp = expected_processes(own["has_pending"], own["in_highest"], c.mpl, node.woken_mean, c.is_sum)
        rank = m.ranks[p.job, p.rank]
        if parity:
            rank.ts_1, rank.enp_1 = node.ts_s, enp
        else:
            rank.ts_0, rank.enp_0 = node.ts_s, enp
    push(m, now + m.job[p.job].delay_s, key_of(m, ARRIVED, parity, p.job, p.rank))


@compiled
def next_activity(c, m, n, now):
    """Let the running process do what follows the activity that it has finished."""
    node = m.node[n]
    slot = node.current
    p = m.process[slot]
    if p.activity == COMPUTE:
        p.activity, p.need_s = SEND, p.peers * c.host_s
        if c.io_s > 0.0:
            p.state = SLEEPS_IO
            push(m, now + c.io_s * factor(c, m, p, 1), key_of(m, IO_DONE, 0, p.job, p.rank))
            leave(c, m, n, now)
            return
    elif p.activity == SPIN and c.wait == SPIN_BLOCK:
        p.state = SLEEPS_MESSAGE
        leave(c, m, n, now)
        return
    elif p.activity == SPIN and c.wait == SPIN_YIELD:
        yield_cpu(c, m, n, now)
        return
    else:
        if p.activity == SEND:
            send(c, m, n, slot, now)
        else:
            p.received_0 += p.taking_0
            p.received_1 += p.taking_1
        if not await_messages(c, m, n, slot, now):
            return
    proceed(m, node)


@compiled
def await_messages(c, m, n, slot, now):
    """Let the running process go on after it sent or received; return whether it still runs."""
    p = m.process[slot]
    parity = p.loop & 1
    received = p.received_1 if parity else p.received_0
    if received == p.peers:
        if parity:
            p.received_1 = 0
        else:
            p.received_0 = 0
        p.loop += 1
        if p.loop == m.job[p.job].loops:
            finish(c, m, n, slot, now)
            return False
        p.activity, p.need_s = COMPUTE, c.compute_s * factor(c, m, p, 0)
    elif p.pending > 0:
        start_receiving(c, m, slot)
    else:
        p.activity, p.need_s = SPIN, (c.spin_s if c.wait >= SPIN_BLOCK else INFINITE)
        if c.wait == BLOCK:
            p.state = SLEEPS_MESSAGE
            leave(c, m, n, now)
            return False
    return True


@compiled
def yield_cpu(c, m, n, now):
    """Go to the tail of the lowest level that is not empty, or spin again if no other process is ready."""
    node = m.node[n]
    slot = node.current
    p = m.process[slot]
    p.need_s = c.spin_s
    level = HIGHEST + 1
    for other in range(n * c.mpl, (n + 1) * c.mpl):
        if m.process[other].state == READY:
            level = min(level, m.process[other].level)
    if level > HIGHEST:
        proceed(m, node)
        return
    enqueue(node, p, level)
    leave(c, m, n, now)


@compiled
def finish(c, m, n, slot, now):
    """End a process, and its job with the last one; jobs that wait may start."""
    p, node = m.process[slot], m.node[n]
    p.state = FREE
    node.count -= 1
    m.job[p.job].left -= 1
    if m.job[p.job].left == 0:
        m.job[p.job].end_s = now
        m.totals[0].ended += 1
    release(node, now)
    start_jobs(c, m, now)  # before the dispatch, which may choose one of them
    dispatch(c, m, n, now)


@compiled
def start_jobs(c, m, now):
    """Start the jobs at the head of the queue for which enough nodes have a free place, on the least loaded nodes."""
    while m.totals[0].started < m.totals[0].arrived:
        job = m.totals[0].started
        size, free = m.job[job].size, 0
        for n in range(c.nodes):
            m.node[n].placed = m.node[n].count
            free += m.node[n].count < c.mpl
        if free < size:
            return
        m.totals[0].started += 1
        for rank in range(size):
            best = 0
            for n in range(1, c.nodes):
                if m.node[n].placed < m.node[best].placed:
                    best = n
            m.node[best].placed = c.mpl + 1  # one process of a job at most
            m.ranks[job, rank].slot = place(c, m, best, job, rank)
        for rank in range(size):
            slot = m.ranks[job, rank].slot
            reschedule(c, m, slot // c.mpl, slot, now)


@compiled
def place(c, m, n, job, rank):
    """Create a process in the first free place of a node; return its slot."""
    slot = n * c.mpl
    while m.process[slot].state != FREE:
        slot += 1
    p, node = m.process[slot], m.node[n]
    p.job, p.rank, p.peers, p.loop, p.pending, p.oldest_s = job, rank, m.job[job].peers, 0, 0, INFINITE
    p.arrived_0 = p.arrived_1 = p.received_0 = p.received_1 = p.taking_0 = p.taking_1 = 0
    p.activity, p.need_s = COMPUTE, c.compute_s * factor(c, m, p, 0)
    clear_pending(c, m, slot)
    node.count += 1
    enqueue(node, p, FIRST_LEVEL)
    if node.last == slot:
        node.last = -1
    return slot
