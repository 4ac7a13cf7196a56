"""The fast engine: the simulated machine, event by event, compiled by numba.

tests/support/coscheduling_reference.py is the readable model of the same machine on SimPy; tests compare the two time
slice by time slice. What a scheme does is written in handle_arrival (a message arrives), scheduler.boost (who is raised
to the highest level), scheduler.choose (who is dispatched) and activities.next_activity (how a process waits).
"""

from typing import Any  # a record of COSTS: numpy does not type the fields of records

from coresteer.simulation.activities import next_activity, start_jobs
from coresteer.simulation.compiled import compiled
from coresteer.simulation.machine import INFINITE, Machine, charge, cut, pop, proceed, settle_woken
from coresteer.simulation.scheduler import (
    begin,
    boost,
    dispatch,
    enqueue,
    first_pending,
    highest_ready,
    leave,
    oldest_pending,
    reschedule,
    start_receiving,
)
from coresteer.simulation.schemes import Arrival
from coresteer.simulation.solaris import EXPIRED, MAX_WAIT, SLEPT, TICK_S, WAITED
from coresteer.simulation.state import (
    ARRIVED,
    BUSY,
    IDLE,
    OVERHEAD,
    READY,
    RUNNING,
    SLEEPS_MESSAGE,
    SPIN,
    SWITCHING,
)

INTERRUPT, PERIODIC = int(Arrival.INTERRUPT_BOOST), int(Arrival.PERIODIC_BOOST)


@compiled
def handle_arrival(c, m, message, slot, now):
    """Deliver a message, which is (its sender's node, parity of the loop), to a process."""
    (sender, parity), n = message, slot // c.mpl
    p, node = m.process[slot], m.node[n]
    if p.pending == 0:
        p.oldest_s = now
    p.pending += 1
    if parity:
        p.arrived_1 += 1
    else:
        p.arrived_0 += 1
    m.senders[slot, sender].pending += 1
    if c.reorder:
        charge(node, now, c.load_update_s)
    if p.state == RUNNING:
        if p.activity == SPIN and node.state == BUSY:
            cut(m, node, now)
            start_receiving(c, m, slot)
            proceed(m, node)
        return
    if p.state == SLEEPS_MESSAGE:
        charge(node, now, c.interrupt_s)
        settle_woken(c, node, now)
        node.woken += 1
        enqueue(node, p, SLEPT[p.level])
        if c.arrival != INTERRUPT:
            reschedule(c, m, n, slot, now)
    elif c.arrival == INTERRUPT:
        charge(node, now, c.interrupt_s)
    if c.arrival == INTERRUPT and p.state == READY:
        boost(c, m, n, first_pending(c, m, n, now) if c.reorder else slot, now)


@compiled
def handle_exchange(c, m, parity, sent_by, now):
    """Deliver the messages that a process (job, rank) sent in a loop, in the order of the receivers' ranks."""
    job, rank = sent_by
    load = m.ranks[job, rank]
    sender, size = load.slot // c.mpl, m.job[job].size
    for other in range(size):
        if other == rank or (c.ring and other != (rank + 1) % size and rank != (other + 1) % size):
            continue
        slot = m.ranks[job, other].slot
        n = slot // c.mpl
        if c.reorder:
            known, peer = m.senders[slot, sender], m.peers[n, sender]
            known.enp = load.enp_1 if parity else load.enp_0
            peer.ts_s = load.ts_1 if parity else load.ts_0
            known.heard_s = peer.heard_s = now
        handle_arrival(c, m, (sender, parity), slot, now)
        m.totals[0].messages += 1


@compiled
def handle_io(c, m, job, rank, now):
    """Wake a process whose I/O is done."""
    slot = m.ranks[job, rank].slot
    n = slot // c.mpl
    p, node = m.process[slot], m.node[n]
    charge(node, now, c.interrupt_s)
    enqueue(node, p, SLEPT[p.level])
    reschedule(c, m, n, slot, now)


@compiled
def handle_cpu(c, m, n, now):
    """End overhead, a context switch, an activity or a quantum of a node."""
    node = m.node[n]
    if node.state == OVERHEAD:
        dispatch(c, m, n, now)
    elif node.state == SWITCHING:
        begin(c, m, n, now)
    else:
        p = m.process[node.current]
        ends = p.need_s <= p.quantum_s
        cut(m, node, now)
        if ends:
            next_activity(c, m, n, now)
        else:
            enqueue(node, p, EXPIRED[p.level])
            leave(c, m, n, now)


@compiled
def tick(c, m, now):
    """Raise the ready processes that have waited for too long."""
    for n in range(c.nodes):
        raised = False
        for slot in range(n * c.mpl, (n + 1) * c.mpl):
            p = m.process[slot]
            if p.state == READY:
                p.waited += 1
                if p.waited > MAX_WAIT[p.level]:
                    enqueue(m.node[n], p, WAITED[p.level])
                    raised = True
        if raised:
            reschedule(c, m, n, highest_ready(c, m, n), now)


@compiled
def scan(c, m, now):
    """Run the kernel thread of periodic boost on every node with processes."""
    for n in range(c.nodes):
        node = m.node[n]
        if node.count:
            charge(node, now, c.interrupt_s)
            boost(c, m, n, first_pending(c, m, n, now) if c.reorder else oldest_pending(c, m, n), now)


@compiled
def next_cpu(c, m):
    """Return the node whose CPU has the next event."""
    first = 0
    for n in range(1, c.nodes):
        if m.node[n].next_s < m.node[first].next_s:
            first = n
    return first


@compiled
def simulate(c: Any, m: Machine) -> tuple[int, float]:  # noqa: ANN401 - see the import
    """Run all jobs to their end; return the number of events and when the last job ended."""
    jobs, width = m.ranks.shape
    events, now, ticks, scans = 0, 0.0, 1, 1
    while m.totals[0].ended < jobs:
        events += 1
        arrival_s = m.job[m.totals[0].arrived].arrival_s if m.totals[0].arrived < jobs else INFINITE
        timer_s = min(arrival_s, ticks * TICK_S)
        if c.arrival == PERIODIC:
            timer_s = min(timer_s, scans * c.boost_period_s)
        event_s = m.heap[0].time_s if m.totals[0].heap else INFINITE
        first = next_cpu(c, m)
        now = min(timer_s, event_s, m.node[first].next_s)
        if now == arrival_s:
            m.totals[0].arrived += 1
            start_jobs(c, m, now)
        elif now == ticks * TICK_S:
            ticks += 1
            tick(c, m, now)
        elif now == timer_s:
            scans += 1
            scan(c, m, now)
        elif now == event_s:
            key = pop(m)
            rank, job, kind = key % width, key // width % jobs, key // width // jobs
            if kind < 2 * ARRIVED:
                handle_io(c, m, job, rank, now)
            else:
                handle_exchange(c, m, kind & 1, (job, rank), now)
        else:
            handle_cpu(c, m, first, now)
    for n in range(c.nodes):
        node = m.node[n]
        if node.state == IDLE:
            node.idle_s += now - node.since_s
        node.overhead_s -= max(0.0, node.free_s - now)
    return events, now
