"""Predict what a plan changes on a node (CPU load, interrupt rate, latency) from the rates of its last minute.

Load of CPUs as ranges; interrupt rate and added latency of a netdev by the model of its NIC.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec import Struct

from coresteer_core.changes.plan import Plan
from coresteer_core.cpuset import format_cpu_list
from coresteer_core.node.inventory import Netdev
from coresteer_core.node.load import Load, mean_load
from coresteer_core.node.nic import interrupt_timer, max_added_wait_us, product_bound_us
from coresteer_core.node.nic_model import TimerParams
from coresteer_core.node.rates import ABSENT_SHARE, SHARES_PER_UNIT, Rates, decode_irq_id, unpack_column
from coresteer_core.node.receive import ReceivedTraffic, predict_received, received_traffic, timer_params
from coresteer_core.node.view import View
from coresteer_core.settings import parse_setting
from coresteer_core.settings.plan_effect import PlanEffect

MIN_BASE_S = 5.0
"""Shortest time in seconds that rates must cover before an effect is predicted from them."""
SATURATED_PERCENT = 98.0
"""A CPU this busy has a queue of work, which replaces the load that moves away."""


INTERRUPT_SPREAD = 1.5
"""How much more than its part an interrupt may need: it may stand for more packets than others, and on a CPU with time
to spare it occurs more often, as the kernel polls less."""
_BACKLOG = 2.5
"""How much more than now the work of a saturated CPU may need elsewhere: packets that it drops or delays now arrive."""


def gain_range(part: float, origin_percent: float, spread: float = INTERRUPT_SPREAD) -> tuple[float, float]:
    """Return the range of percentage points that a CPU gains by work that used a part of another one.

    part: percentage points of the CPU that it leaves, which was origin_percent busy. spread: what it may need at most,
    relative to that part, where that CPU was not saturated.
    """
    return part / 2, part * (_BACKLOG if origin_percent >= SATURATED_PERCENT else spread)


def loss_range(part: float, origin_percent: float, spread: float = INTERRUPT_SPREAD) -> tuple[float, float]:
    """Return the range of percentage points that a CPU loses with such work; a saturated one may stay as busy."""
    return (0.0, part) if origin_percent >= SATURATED_PERCENT else (part / 2, part * spread)


class _Base(Struct):
    """Mean load before the plan: percent by CPU (busy; in interrupts), and interrupts by IRQ and CPU (cells)."""

    busy: dict[int, float]
    interrupts: dict[int, float]
    cells: dict[tuple[int, int], int]


class _Shift(Struct):
    """Range of the percentage points that the load of a CPU changes by; negative where it falls."""

    least: float = 0.0
    most: float = 0.0


def predict_effect(plan: Plan, view: View, rates: Sequence[Rates]) -> list[str]:
    """Return sentences that predict a plan's effect on the load of CPUs and on interrupt rate and latency of netdevs.

    view: the node before the plan; its load is not used, rates are.
    """
    effect = PlanEffect()
    for action in plan.actions:
        parse_setting(action.key).add_effect(effect, action.becomes)
    return _moved(effect.irqs, rates) + _coalesced(effect.coalescing, view, rates)


def _moved(moves: list[tuple[int, frozenset[int]]], rates: Sequence[Rates]) -> list[str]:
    """Return a sentence with the range of the new load for each CPU whose interrupts change; none without known load.

    Only interrupts have one: the load that a task or a queue moves is not in Rates.

    An interrupt's part of its CPU's irq and softirq time is its part of that CPU's device interrupts. At least half of
    it moves, as softirq time also belongs to timers; gain_range() and loss_range() say why it may be more than all.
    """
    base = _observe(_since_moved(rates, {irq for irq, _ in moves})) if moves else None
    if base is None:
        return []
    shifts: dict[int, _Shift] = defaultdict(_Shift)
    open_ended: list[str] = []
    quiet: list[int] = []
    for number, targets in moves:
        moving = _moving(base, number, targets)
        if not any(irq == number for irq, _ in base.cells):
            quiet.append(number)
        if not moving:
            continue
        total = _Shift()
        for cpu, part in moving.items():
            busy = base.busy.get(cpu, 0.0)
            lost, gained = loss_range(part, busy), gain_range(part, busy)
            shifts[cpu].least -= lost[0]
            shifts[cpu].most = max(shifts[cpu].most - lost[1], -base.interrupts[cpu])
            total.least += gained[0]
            total.most += gained[1]
        if len(targets) == 1:
            (target,) = targets
            shifts[target].least += total.least
            shifts[target].most += total.most
        else:
            open_ended.append(
                f"One of CPUs {format_cpu_list(targets)} takes over {_range(total.least, total.most)} % of a CPU "
                f"from IRQ {number}; the kernel chooses which."
            )
    sentences = [
        sentence for cpu, shift in sorted(shifts.items()) if (sentence := _sentence(base, cpu, shift)) is not None
    ]
    if quiet:
        many = len(quiet) > 1
        numbers = ", ".join(str(irq) for irq in quiet)
        sentences.append(
            f"IRQ{'s' if many else ''} {numbers} {'were' if many else 'was'} quiet; no load moves with "
            f"{'them' if many else 'it'}."
        )
    return sentences + open_ended


def _coalesced(changes: dict[tuple[str, str | None], dict[str, str]], view: View, rates: Sequence[Rates]) -> list[str]:
    """Return a sentence for each netdev or queue whose interrupt coalescing changes."""
    load = mean_load(rates) if changes else Load()
    found: list[str] = []
    for (name, queue_name), changed in changes.items():
        netdev = view.inventory.netdev(name)
        queue = next((q for q in netdev.queues if q.name == queue_name), None) if netdev is not None else None
        if netdev is None or (queue is None and queue_name is not None):
            continue
        before = netdev.params | (queue.params if queue is not None else {})
        measured = load.seconds >= MIN_BASE_S and (queue is None or queue.irq is not None)
        traffic = (
            received_traffic(view.inventory, load, netdev, queue.irq if queue is not None else None)
            if measured
            else None
        )
        label = name if queue_name is None else f"{name} {queue_name}"
        found.append(f"{label}: {_wait_sentence(netdev, before, before | changed, traffic)}")
    return found


def _wait_sentence(
    netdev: Netdev, before: dict[str, str], after: dict[str, str], traffic: ReceivedTraffic | None
) -> str:
    wait = timer_params(netdev.driver, after)
    if wait is None:
        return "the driver adapts the delay to the load, so its effect is not predicted."
    parts = [] if traffic is None else [_prediction(netdev, timer_params(netdev.driver, before), wait, traffic)]
    timer, why = interrupt_timer(netdev.driver, after)
    bound = max_added_wait_us(timer, wait.rx_usecs, wait.rx_frames)
    product = product_bound_us(wait.rx_usecs, wait.rx_frames)
    product_text = f" (rx-usecs × rx-frames is {product:,.0f} µs)" if product is not None else ""
    if math.isfinite(bound):
        parts.append(f"a packet waits {bound:,.0f} µs at most{product_text}.")
    else:
        parts.append(f"the delay of a packet is unbounded{product_text}.")
    return " ".join([*parts, *([why] if timer is None else [])])


def _prediction(netdev: Netdev, was: TimerParams | None, wait: TimerParams, traffic: ReceivedTraffic) -> str:
    old, new = None if was is None else predict_received(netdev, traffic, was), predict_received(netdev, traffic, wait)
    if old is not None:
        before = [f"{figure:,.0f} → " for figure in (old.interrupts_per_s, old.added_mean_us, old.added_worst_us)]
    elif traffic.interrupts_per_s is not None:
        before = [f"{traffic.interrupts_per_s:,.0f} (measured) → ", "", ""]
    else:
        before = ["", "", ""]
    dropped = f"; {new.dropped_share:.1%} of the packets are dropped" if new.dropped_share else ""
    return (
        f"for its {traffic.packets_per_s:,.0f} packets/s of {traffic.frame_bytes:,.0f} B the NIC model predicts "
        f"{before[0]}{new.interrupts_per_s:,.0f} interrupts/s, added latency {before[1]}{new.added_mean_us:,.0f} µs "
        f"in the mean and {before[2]}{new.added_worst_us:,.0f} µs at worst{dropped};"
    )


def _moving(base: _Base, irq: int, targets: frozenset[int]) -> dict[int, float]:
    """Return, for each CPU that an interrupt leaves, the percent of that CPU's time that moves with it.

    The kernel leaves a vector where it is while that CPU remains allowed (kernel: arch/x86/kernel/apic/vector.c).
    """
    all_there: dict[int, int] = defaultdict(int)
    for (_, cpu), count in base.cells.items():
        all_there[cpu] += count
    return {
        cpu: base.interrupts[cpu] * count / all_there[cpu]
        for (number, cpu), count in base.cells.items()
        if number == irq and cpu not in targets and cpu in base.interrupts
    }


def _sentence(base: _Base, cpu: int, shift: _Shift) -> str | None:
    busy = base.busy.get(cpu)
    if busy is None:
        return None
    low, high = sorted((busy + shift.least, busy + shift.most))
    return f"CPU {cpu} {busy:.0f} → {_range(low, high)} % busy."


def _range(low: float, high: float) -> str:
    first, last = (min(100, max(0, round(value))) for value in (low, high))
    return f"{first}" if first == last else f"{first}…{last}"


def _since_moved(rates: Sequence[Rates], irqs: set[int]) -> Sequence[Rates]:
    """Return the intervals since these interrupts last moved to another CPU."""
    first = len(rates)
    newest: dict[int, set[int]] = {}
    for each in reversed(rates):
        where: dict[int, set[int]] = defaultdict(set)
        for irq, cpu, count in _cells(each):
            if irq in irqs and count:
                where[irq].add(cpu)
        if any(not cpus <= newest.setdefault(irq, cpus) for irq, cpus in where.items()):
            break
        first -= 1
    return rates[first:]


def _cells(rates: Rates) -> Iterator[tuple[int, int, int]]:
    """Yield (irq_id, CPU, interrupts) of an interval; nothing where interrupts were not read."""
    if rates.irq_ids is not None and rates.irq_cpus is not None and rates.irq_counts is not None:
        yield from zip(
            unpack_column(rates.irq_ids, "I"),
            unpack_column(rates.irq_cpus, "H"),
            unpack_column(rates.irq_counts, "I"),
            strict=False,
        )


def _observe(rates: Sequence[Rates]) -> _Base | None:
    """Return the mean load of the CPUs over the intervals; None when less than MIN_BASE_S of them is known."""
    seconds = 0.0
    sums: dict[str, dict[int, float]] = {name: defaultdict(float) for name in ("busy", "irq", "softirq")}
    known: dict[str, dict[int, float]] = {name: defaultdict(float) for name in ("busy", "irq", "softirq")}
    cells: dict[tuple[int, int], int] = defaultdict(int)
    for each in rates:
        columns = {name: each.shares.get(name) for name in sums}
        if each.irq_ids is None or columns["softirq"] is None:
            continue
        seconds += each.duration_s
        for name, column in columns.items():
            for cpu, share in enumerate(column or b""):
                if share != ABSENT_SHARE:
                    sums[name][cpu] += share * each.duration_s
                    known[name][cpu] += each.duration_s
        for irq_id, cpu, count in _cells(each):
            if count and decode_irq_id(irq_id).isdecimal():  # a device's interrupt, not a row such as LOC
                cells[irq_id, cpu] += count
    if seconds < MIN_BASE_S:
        return None
    percent = {
        name: {cpu: total / known[name][cpu] * 100 / SHARES_PER_UNIT for cpu, total in column.items()}
        for name, column in sums.items()
    }
    interrupts = {cpu: share + percent["irq"].get(cpu, 0.0) for cpu, share in percent["softirq"].items()}
    return _Base(percent["busy"], interrupts, dict(cells))
