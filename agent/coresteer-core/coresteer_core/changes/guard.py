"""What no plan may do, and what a person should know first. Checked in preview and again before each write."""

from msgspec import Struct

from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.inventory import Netdev
from coresteer_core.node.nic import Timer, timer_of
from coresteer_core.node.view import View
from coresteer_core.settings import Channels, IrqAffinity, NetdevParam, QueueParam, Setting, parse_setting
from coresteer_core.settings.base import say_cpus

_LONG_WAIT_US = 1000

MAX_MOVES = 64
"""Actions in one plan: enough for every queue of a large NIC, too few for a runaway program."""


class Refusal(Struct, frozen=True):
    """Why a setting is not written.

    code: invalid, unknown, unsupported, offline, isolated, managed, cpuset, bound, kernel, realtime, queue, channels,
    bounds, learned, too_many.
    """

    code: str
    key: str
    sentence: str


class PlanWarning(Struct, frozen=True):
    """What somebody should know.

    code: other_numa_node, smt_sibling, isolated, management, one_core, restart, latency, adaptive, controller.
    """

    code: str
    key: str
    sentence: str


def refusals(view: View, wanted: list[tuple[str, str]], *, allow_isolated: bool) -> list[Refusal]:
    """Reasons against writing (key, canonical value) pairs on a node; empty when they may be written."""
    found: list[Refusal] = []
    if len(wanted) > MAX_MOVES:
        found.append(
            Refusal(
                "too_many",
                "",
                f"{len(wanted)} settings at once are more than the {MAX_MOVES} one plan may change.",
            )
        )
    online = view.topology.online()
    isolated = view.topology.isolated_cpus
    for key, value in wanted:
        setting = parse_setting(key)
        cpus = setting.cpus(value)
        found += [Refusal(code, key, sentence) for code, sentence in setting.against(view, value)]
        if away := cpus - online:
            found.append(
                Refusal(
                    "offline",
                    key,
                    f"{say_cpus(away)} {_is(away)} not online on this node; "
                    + (f"it has {say_cpus(online)}." if online else "which CPUs it has could not be read."),
                )
            )
        if (touched := cpus & isolated) and not allow_isolated:
            found.append(
                Refusal(
                    "isolated",
                    key,
                    f"{say_cpus(touched)} {_is(touched)} kept free by isolcpus or nohz_full; "
                    "allow isolated CPUs in this plan if that is what you want.",
                )
            )
    return found


def warnings(view: View, wanted: list[tuple[str, str]], *, allow_isolated: bool) -> list[PlanWarning]:
    """What a person should know before writing (key, canonical value) pairs."""
    found: list[PlanWarning] = []
    isolated = view.topology.isolated_cpus
    known = [(s, value) for key, value in wanted if (s := parse_setting(key)).absent(view) is None]
    after = {setting.irq: setting.cpus(value) for setting, value in known if isinstance(setting, IrqAffinity)}
    for setting, value in known:
        cpus = setting.cpus(value)
        if allow_isolated and (touched := cpus & isolated):
            found.append(
                PlanWarning(
                    "isolated", setting.key, f"{say_cpus(touched)} {_is(touched)} kept free by isolcpus or nohz_full."
                )
            )
        found += _placement(view, setting, cpus, after)
        if isinstance(setting, Channels):
            sentence = (
                f"{setting.netdev} restarts for it: packets are lost for a moment, "
                "and its queues and interrupts begin anew, RPS and affinity included."
            )
            found.append(PlanWarning("restart", setting.key, sentence))
        if isinstance(setting, NetdevParam) and setting.param.startswith("ring/"):
            sentence = f"{setting.netdev} may restart for it: packets are lost for a moment."
            found.append(PlanWarning("restart", setting.key, sentence))
    found += _waits(view, [(s, value) for s, value in known if isinstance(s, NetdevParam | QueueParam)])
    told: set[str] = set()
    for setting, _ in known:
        netdev = _netdev_of(view, setting)
        if netdev is not None and netdev.name not in told:
            told.add(netdev.name)
            found += _netdev(view, setting.key, netdev, after)
    if after and view.inventory.controllers:
        who = view.inventory.controllers
        runs = "runs" if len(who) == 1 else "run"
        what = "the interrupt" if len(after) == 1 else "the interrupts"
        sentence = f"{' and '.join(who)} {runs} on this node and may move {what} again."
        found.append(PlanWarning("controller", IrqAffinity(next(iter(after))).key, sentence))
    return found


def _placement(
    view: View, setting: Setting, cpus: frozenset[int], after: dict[int, frozenset[int]]
) -> list[PlanWarning]:
    """What is to be said of the CPUs of one setting."""
    found: list[PlanWarning] = []
    netdev = _netdev_of(view, setting)
    irq = view.inventory.irq(setting.irq) if isinstance(setting, IrqAffinity) else None
    home = netdev.numa_node if netdev is not None else None
    if home is None and irq is not None:
        home = irq.numa_node
    if home is not None and len(view.topology.numa_nodes) > 1:
        foreign = {c.cpu for c in view.topology.cpus if c.cpu in cpus and c.numa_node not in (None, home)}
        if foreign:
            device = setting.about(view) or f"{setting.describe()}'s device"
            found.append(
                PlanWarning(
                    "other_numa_node",
                    setting.key,
                    f"{say_cpus(foreign)} {_is(foreign)} on another NUMA node than {device} (node {home}).",
                )
            )
    if netdev is None or irq is None:
        return found
    others = _lands(view, netdev.name, after, but=irq.irq)
    if shared := {cpu for cpu in _siblings(view, cpus) - cpus if any(cpu in o for o in others)}:
        one = len(shared) == 1
        found.append(
            PlanWarning(
                "smt_sibling",
                setting.key,
                f"{say_cpus(shared)} {'shares a core' if one else 'share cores'} with {say_cpus(cpus)} "
                f"and {'serves another queue' if one else 'serve other queues'} of {netdev.name}.",
            )
        )
    return found


def _waits(view: View, wanted: list[tuple[NetdevParam | QueueParam, str]]) -> list[PlanWarning]:
    """What is to be said of how long packets wait, once for each netdev or queue and direction."""
    found: dict[tuple[str, str], PlanWarning] = {}
    after: dict[str, dict[str, str]] = {}
    for setting, value in wanted:
        after.setdefault(setting.whose, {})[setting.param] = value
    for setting, _ in wanted:
        netdev, way = _netdev_of(view, setting), setting.way
        if netdev is None or way is None:
            continue
        stands = setting.beside(view) | after[setting.whose]
        timer, _ = timer_of(netdev.driver, netdev.params | stands)
        for code, sentence in _waiting(timer, stands, way):
            told = f"{setting.whose}: {sentence}"
            found.setdefault((code, told), PlanWarning(code, setting.key, told))
    return list(found.values())


def _waiting(timer: Timer | None, params: dict[str, str], way: str) -> list[tuple[str, str]]:
    """Codes of PlanWarning with a sentence. way: ``rx`` or ``tx``."""
    found = []
    usecs, frames = (int(params.get(f"coalesce/{way}-{unit}", 0)) for unit in ("usecs", "frames"))
    product = usecs * frames if timer in (None, Timer.RESTARTING) else 0
    if product > max(usecs, _LONG_WAIT_US):
        why = f"({way}-usecs {usecs} × {way}-frames {frames})"
        anew = f"may wait {_ms(product)} for its interrupt, as the timer begins anew with each packet {why}."
        unsure = f"may wait {_ms(product)} for its interrupt if the timer begins anew with each packet {why}, "
        found.append(("latency", f"a packet {anew if timer is not None else f'{unsure}which is not known.'}"))
    elif usecs > _LONG_WAIT_US:
        found.append(("latency", f"a packet may wait {_ms(usecs)} for its interrupt ({way}-usecs)."))
    elif usecs == 0 and frames > 1 and f"coalesce/{way}-usecs" in params:
        sentence = f"with {way}-usecs 0 a packet may wait for its interrupt until {frames} have come, however long."
        found.append(("latency", sentence))
    flush_us = int(params.get("gro_flush_timeout", 0)) / 1000 if way == "rx" else 0
    if flush_us > _LONG_WAIT_US:
        found.append(("latency", f"a packet may wait {_ms(flush_us)} until the kernel polls (gro_flush_timeout)."))
    if params.get(f"coalesce/adaptive-{way}") == "on":
        found.append(("adaptive", f"adaptive-{way} is on, so the driver itself changes {way}-usecs."))
    return found


def _ms(us: float) -> str:
    return f"{us / 1000:.3g} ms"


def _netdev_of(view: View, setting: Setting) -> Netdev | None:
    return view.inventory.netdev(setting.about(view))


def _netdev(view: View, key: str, netdev: Netdev, after: dict[int, frozenset[int]]) -> list[PlanWarning]:
    """What is to be said of a netdev once, however many of its settings a plan changes."""
    found: list[PlanWarning] = []
    if netdev.management:
        found.append(
            PlanWarning(
                "management",
                key,
                f"{netdev.name} carries this node's management connection; the change undoes itself if it is lost.",
            )
        )
    moves = any(irq.netdev == netdev.name and irq.irq in after for irq in view.inventory.irqs)
    lands = _lands(view, netdev.name, after) if moves else []
    cpus = frozenset[int]().union(*lands)
    core = min(cpus, default=-1)
    if len(lands) > 1 and cpus <= _siblings(view, frozenset([core])) | {core}:
        whom = f"{say_cpus(cpus)} alone" if len(cpus) == 1 else f"{say_cpus(cpus)}, which are one core,"
        sentence = f"All {len(lands)} interrupts of {netdev.name} would be served by {whom}"
        found.append(PlanWarning("one_core", key, sentence.rstrip(",") + "."))
    return found


def _lands(
    view: View, netdev: str, after: dict[int, frozenset[int]], *, but: int | None = None
) -> list[frozenset[int]]:
    """Where the netdev's queue interrupts, and those that a plan moves, are once it is applied."""
    lands = []
    for irq in view.inventory.irqs:
        if irq.netdev != netdev or irq.irq == but:
            continue
        if irq.irq in after:
            lands.append(after[irq.irq])
        elif irq.queues and (where := irq.effective or irq.requested):
            lands.append(parse_cpu_list(where))
    return lands


def _siblings(view: View, cpus: frozenset[int]) -> frozenset[int]:
    return frozenset().union(*(parse_cpu_list(c.siblings) for c in view.topology.cpus if c.cpu in cpus))


def _is(cpus: frozenset[int] | set[int]) -> str:
    return "are" if len(cpus) > 1 else "is"
