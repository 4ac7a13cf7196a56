"""RFS: switch it on where it is worth its estimated cost, measure that, and switch it off where CPU time rises.

Kernel: Documentation/networking/scaling.rst. The number of flows of a NIC's queues add up to the entries of the socket
flow table; all are powers of two.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.inventory import Netdev
from coresteer_core.policies.flow_steering.memory import RfsMemory
from coresteer_core.policies.flow_steering.traffic import NEAR, Traffic
from coresteer_core.policies.skipped import name_tasks
from coresteer_core.settings.base import format_cpus

ENTRIES_KEY = "kernel/rps_sock_flow_entries"
_COUNT = "rps_flow_cnt"
_ENTRIES, _MOST_ENTRIES = 32_768, 1 << 20
"""scaling.rst: 32,768 for a moderately loaded server. The second is the bound of both settings."""
MIN_FIGURES, MAX_FIGURES = 8, 12
"""Rounds of 5 s with and without RFS: the least for a comparison, and the number after which it ends."""
_SETTLING = 2
"""Rounds after the last write that are not measured: their means cover time before it."""
_WORTH, _STILL_WORTH = 1.25, 0.75
"""How much RFS must save, in multiples of its cost, to be switched on, and to stay on."""
_QUIET_S, _REJECTED_S = 60.0, 3600.0
_LEAST_RISE = 0.05
"""A rise of the mean CPU time per gigabit by less is accepted."""
_SIGMAS = 2.0
_MOST_NAMED = 3
"""Most processes that a sentence names."""
_MOVED_SHARE = 0.1
"""Share of the bytes that rules and RSS entries bring to other queues, above which a comparison begins anew."""


class Saving(Struct, frozen=True):
    """Bytes/s of the processes in a round, by what RFS does for them, and the estimated CPU time in ns per second.

    near: protocol work next to the process without RFS.
    """

    bytes_per_s: float
    near: float
    saved_ns: float
    cost_ns: float


class RfsRound(Struct, frozen=True):
    """What a round decides about RFS: memory, values wanted, present, and to be restored by key, a sentence or none."""

    memory: RfsMemory
    values: dict[str, str] = {}
    present: dict[str, str] = {}
    originals: dict[str, str] = {}
    sentence: str = ""


def decide_rfs(traffic: Traffic, was: RfsMemory, restoring: Mapping[str, str]) -> RfsRound:
    """Return what to do about RFS in this round. restoring: originals of settings that are not restored yet."""
    found = _decide(traffic, was, restoring)
    if not found.values or not traffic.isolated:
        return found
    work = _to_isolated(traffic)
    if traffic.spec.rfs == "on":
        return replace(found, sentence=f"{found.sentence} It brings {work}.")
    if was.values:
        why = f"RFS is off for an hour, as it would bring {work}."
        return _restored(was, {}, RfsMemory(until_s=traffic.now + _REJECTED_S, why=why), why)
    return RfsRound(RfsMemory(before=found.memory.before), sentence=f"RFS is not used: it would bring {work}.")


def _decide(  # noqa: PLR0911 - one return for each state
    traffic: Traffic, was: RfsMemory, restoring: Mapping[str, str]
) -> RfsRound:
    spec, now = traffic.spec, traffic.now
    saving = _saving(traffic)
    worth = spec.rfs != "off" and saving.saved_ns > saving.cost_ns * (_STILL_WORTH if was.values else _WORTH)
    if worth or (was.values and spec.rfs != "off" and _is_unknown(traffic)):
        was = replace(was, quiet_since_s=None)
    elif was.quiet_since_s is None:
        was = replace(was, quiet_since_s=now)
    quiet_s = 0.0 if was.quiet_since_s is None else now - was.quiet_since_s
    rejected = spec.rfs == "try" and now < was.until_s
    wanted = worth and not rejected
    present = _present(traffic, was)
    untried = spec.rfs == "try" and len(was.before) < MIN_FIGURES  # it was switched on without a comparison
    if was.values and (spec.rfs == "off" or quiet_s > _QUIET_S or untried):
        anew = f"RFS is off until {MIN_FIGURES} rounds without it are measured."
        return _restored(was, present, RfsMemory(), anew if untried else "RFS is no longer worth its cost.")
    if not was.values and not wanted:
        return RfsRound(was if rejected else RfsMemory(before=was.before), sentence=was.why if rejected else "")
    values = _wanted_values(traffic, was, present)
    if not values:
        return RfsRound(was, sentence="RFS is not used: the kernel or the network devices have no settings for it.")
    present = {key: present[key] for key in values}
    if not was.values and present == values:
        return RfsRound(was, sentence="RFS is on; this policy did not switch it on.")
    per_gigabit = cpu_s_per_gigabit(traffic)
    if sum(abs(consumer.moved) for consumer in traffic.consumers) > _MOVED_SHARE * traffic.bytes_per_s:
        was = replace(was, before=was.before if was.values else [], after=[], settling=0)  # it changes the cost, too
    if not any(present[key] == values[key] != was.originals.get(key, values[key]) for key in values):
        was = replace(was, before=_appended(was.before, per_gigabit))  # nothing of it is written yet
    if spec.rfs == "try" and len(was.before) < MIN_FIGURES and not was.values:
        measured = f"{len(was.before)} of {MIN_FIGURES} rounds without it are measured"
        why = "the CPU time is not known" if per_gigabit is None else measured
        return RfsRound(was, sentence=f"RFS: {_estimate(saving)}; {why}.")
    memory = replace(was, originals={**present, **restoring, **was.originals}, values=values)
    memory = replace(memory, originals={key: memory.originals[key] for key in values})
    left = {key: original for key, original in was.originals.items() if key not in values}
    if present != values or left:
        memory = replace(memory, settling=0)
        return RfsRound(memory, values, present, left, f"RFS: {_estimate(saving)}.")
    if spec.rfs == "on" or memory.judged:
        return RfsRound(memory, values, present, sentence=memory.why or "RFS is on.")
    if memory.settling < _SETTLING:
        memory = replace(memory, settling=memory.settling + 1)
        return RfsRound(memory, values, present, sentence="RFS is on trial.")
    return _judged(replace(memory, after=_appended(memory.after, per_gigabit)), present, now)


def _judged(memory: RfsMemory, present: dict[str, str], now: float) -> RfsRound:
    before, after = memory.before, memory.after
    if len(after) < MIN_FIGURES:
        sentence = f"RFS is on trial, {len(after)} of {MIN_FIGURES} rounds are measured."
        return RfsRound(memory, memory.values, present, sentence=sentence)
    from statistics import fmean, variance  # noqa: PLC0415 - memory that few agents need

    old, new = fmean(before), fmean(after)
    figures = f"{old:.3f} → {new:.3f} s of CPU time per gigabit received ({len(before)} and {len(after)} rounds)"
    is_last = len(after) >= MAX_FIGURES
    noise = _SIGMAS * (variance(before) / len(before) + variance(after) / len(after)) ** 0.5
    # at the end doubt counts against RFS: without it nothing is lost that the node had before
    if new - old > max(0.0 if is_last else noise, _LEAST_RISE * old):
        found = "RFS cost more than it saved" if new - old > noise else "It is not clear that RFS saves CPU time"
        why = f"{found} here, {figures}, so it is off for an hour."
        return _restored(memory, present, RfsMemory(until_s=now + _REJECTED_S, why=why), why)
    memory = replace(memory, judged=is_last, why=f"RFS is on: {figures}.")
    return RfsRound(memory, memory.values, present, sentence=memory.why)


def _restored(was: RfsMemory, present: dict[str, str], after: RfsMemory, why: str) -> RfsRound:
    return RfsRound(after, {}, present, was.originals, why)


def _saving(traffic: Traffic) -> Saving:
    """Return what RFS saves for the processes that receive much; their protocol work moves to their own CPU."""
    sums = [consumer.without_rfs for consumer in traffic.consumers]
    total, near, by_distance = (sum(column) for column in zip((0.0, 0.0, 0.0), *sums, _unplaced(traffic), strict=True))
    return Saving(total, near, traffic.costs.distance_ns(by_distance, 1.0), traffic.costs.rfs_ns(total - near))


def _unplaced(traffic: Traffic) -> tuple[float, float, float]:
    """Return bytes/s of which the queue is unknown, those near their process, and the sum of bytes/s × distance.

    The NICs' hash is taken to spread them evenly over all queues.
    """
    cpus = [cpu for name, at in traffic.queues.items() if name in traffic.receiving for cpu in at.values()]
    total = near = by_distance = 0.0
    for cpu, per_s in traffic.unplaced:
        if cpus and cpu < traffic.distances.cpu_count:
            row = [traffic.distances.rows[cpu][at] for at in cpus]
            total += per_s
            near += per_s * sum(distance <= NEAR for distance in row) / len(row)
            by_distance += per_s * sum(row) / len(row)
    return total, near, by_distance


def _is_unknown(traffic: Traffic) -> bool:
    """Return whether RFS hides where packets are polled, and so what it saves: accelerated RFS, virtual netdevs."""
    return any(
        each.rfs and each.cpu is None and each.rx_bytes_per_s > 0
        for consumer in traffic.consumers
        for each in consumer.task.rx_placements
    )


def _to_isolated(traffic: Traffic) -> str:
    """Return which isolated CPUs RFS brings work to, and whose it is, for a sentence."""
    tasks = traffic.isolated
    cpus = frozenset[int]().union(*(parse_cpu_list(task.affinity) for task in tasks))
    names = name_tasks([(task.name, task.pid) for task in tasks[:_MOST_NAMED]])
    more = f" and {len(tasks) - _MOST_NAMED} more" if len(tasks) > _MOST_NAMED else ""
    where = format_cpus(cpus & traffic.view.topology.isolated_cpus)
    return f"protocol work to isolated {where}, where {names}{more} {'reads' if len(tasks) == 1 else 'read'}"


def _estimate(saving: Saving) -> str:
    share = 100 * saving.near / saving.bytes_per_s if saving.bytes_per_s else 0.0
    return (
        f"protocol work within the L2 of its process {share:.0f} % → 100 % of the bytes, about "
        f"{saving.saved_ns / 1e6:.2f} ms/s of CPU time for {saving.cost_ns / 1e6:.2f} ms/s"
    )


def _present(traffic: Traffic, was: RfsMemory) -> dict[str, str]:
    """Return the present values of the settings of RFS by key, of those that the node has."""
    entries = traffic.view.inventory.settings.get(ENTRIES_KEY)
    found = {ENTRIES_KEY: entries} if entries is not None and _is_number(entries) else {}
    for netdev in _concerned(traffic, {key.split("/")[1] for key in was.values if key != ENTRIES_KEY}):
        for queue in netdev.queues:
            if (count := queue.params.get(_COUNT)) is not None and _is_number(count):
                found[f"netdev/{netdev.name}/{queue.name}/{_COUNT}"] = count
    return found


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdecimal() and len(value) < 20


def _wanted_values(traffic: Traffic, was: RfsMemory, present: dict[str, str]) -> dict[str, str]:
    """Return the values that switch RFS on; a larger table stays, so that what is steered already is not lost."""
    if ENTRIES_KEY not in present:
        return {}
    sockets = sum(consumer.sockets for consumer in traffic.consumers)
    least = max(_ENTRIES, min(_MOST_ENTRIES, _power_of_two(2 * sockets)))
    entries = max(int(was.values.get(ENTRIES_KEY, 0)), least, int(present[ENTRIES_KEY]))
    counts: dict[str, int] = {}
    for key in present:
        if key != ENTRIES_KEY:
            counts[key.split("/")[1]] = counts.get(key.split("/")[1], 0) + 1
    values = {key: str(_share(entries, counts[key.split("/")[1]])) for key in present if key != ENTRIES_KEY}
    return values | {ENTRIES_KEY: str(entries)} if values else {}


def _share(entries: int, queues: int) -> int:
    """Return the largest power of two of which these queues together have no more than the entries; 1 to 2^20."""
    return min(_MOST_ENTRIES, 1 << max(0, (entries // queues).bit_length() - 1))


def _concerned(traffic: Traffic, held: set[str]) -> list[Netdev]:
    """Return the netdevs whose queues need RFS: those by which processes receive, and those that have it."""
    used = traffic.receiving | held
    return [netdev for name, netdev in traffic.netdevs.items() if name != "lo" and name in used]


def cpu_s_per_gigabit(traffic: Traffic) -> float | None:
    """Return the system and softirq time of all CPUs per 10⁹ bits that the node received; None where unknown."""
    load = traffic.view.load
    received = sum(each.rx_bytes_per_s for each in load.netdevs if each.name in traffic.receiving and each.name != "lo")
    times = [*load.system, *load.softirq]
    if not received or not any(time is not None for time in load.system):
        return None
    return sum(time for time in times if time is not None) / (received * 8 / 1e9)


def _appended(figures: list[float], figure: float | None) -> list[float]:
    return figures if figure is None else [*figures, figure][-MAX_FIGURES:]


def _power_of_two(number: int) -> int:
    """Return the least power of two that is not below a number."""
    return 1 << max(0, number - 1).bit_length()
