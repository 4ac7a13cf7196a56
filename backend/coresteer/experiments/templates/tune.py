"""Template: search the settings of the network path that a node has for the least CPU time per gigabit. Pure."""

from coresteer.experiments.arm_config import NETDEV_PLACEHOLDER
from coresteer.experiments.spec import Factor, Level, Spec, Tune
from coresteer.experiments.templates.coalescing import ADAPTIVE, FRAMES, USECS, key_of, nic_with, supports
from coresteer.experiments.templates.declaration import TemplateKind
from coresteer.experiments.templates.parts import NodeFacts, traffic_sentence
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.cpuset import format_cpu_list
from coresteer_core.experiments.model import Observe, TcpRequest, Workload
from coresteer_core.node.inventory import Netdev

_LIMIT_US = 2000.0
_CONNECTIONS = 16
_RESPONSE_BYTES = 16_384
_RING = "ring/rx"
_SEARCHED = {
    USECS: (8, 16, 32, 64, 125, 250, 500),
    FRAMES: (8, 16, 32, 64, 128),
    _RING: (256, 1024, 4096),
}
_UNITS = {USECS: "µs", FRAMES: "frames", _RING: "descriptors"}
_FLUSH_US = (10, 20, 50, 100, 200)
_MOST_CPUS = 4
"""CPUs that are tried by themselves for the server."""


def _make(facts: NodeFacts, kind: TemplateKind) -> tuple[Spec, list[str]]:
    """Return a tune of the NIC's waiting times and ring, or of polling and RPS at a veth pair and the server's CPU."""
    nic = nic_with(facts, USECS)
    requests = TcpRequest(connections=_CONNECTIONS, response_bytes=_RESPONSE_BYTES)
    workload: Workload = Observe() if nic is not None and facts.peer_id is None else requests
    factors = _of_veth(facts) if nic is None else _of_nic(facts, nic)
    spec = kind.spec(facts, workload, factors, primary="cpu_s_per_gbit", tune=Tune(limit=_LIMIT_US))
    searched = ", ".join(factor.name for factor in factors)
    return spec, [
        traffic_sentence(facts, workload),
        f"It searches the combinations of {searched}; RTT p99 stays below {_LIMIT_US / 1000:g} ms.",
    ]


def _of_nic(facts: NodeFacts, nic: Netdev) -> list[Factor]:
    factors = []
    for name, values in _SEARCHED.items():
        if supports(facts, nic, name):
            most = int(nic.params_max.get(name, values[-1]))
            found = [value for value in values if value <= most and str(value) != nic.params[name]]
            factors.append(_numbers(facts, nic, name, found))
    return [factor for factor in factors if len(factor.levels) > 1]


def _numbers(facts: NodeFacts, nic: Netdev, name: str, values: list[int]) -> Factor:
    """Return the node as it is, and values of one parameter; waiting times turn adaptive coalescing off."""
    adaptive = nic.params.get(ADAPTIVE) == "on" and name != _RING
    off = [DesiredValue(key_of(facts, nic, ADAPTIVE), "off")] if adaptive and name == USECS else []
    current = nic.params[name]
    as_it_is = Level("current settings", value=float(current) if current.isdecimal() and not adaptive else None)
    title, unit = name.rpartition("/")[2] if name != _RING else "rx ring", _UNITS[name]
    levels = [
        Level(f"{title} {value}", [*off, DesiredValue(key_of(facts, nic, name), str(value))], value=float(value))
        for value in values
    ]
    return Factor(title, [as_it_is, *levels], unit)


def _of_veth(facts: NodeFacts) -> list[Factor]:
    """Return when the kernel polls the veth pair, on which CPU packets are processed, and where the server runs."""
    near = facts.usable_cpus[:_MOST_CPUS]
    polls = [
        Level(
            f"gro_flush_timeout {usecs} µs",
            [
                DesiredValue(f"netdev/{NETDEV_PLACEHOLDER}/napi_defer_hard_irqs", "1"),
                DesiredValue(f"netdev/{NETDEV_PLACEHOLDER}/gro_flush_timeout", str(usecs * 1000)),
            ],
            value=float(usecs),
        )
        for usecs in _FLUSH_US
    ]
    steering = [
        Level(f"RPS on CPU {cpus}", [DesiredValue(f"netdev/{NETDEV_PLACEHOLDER}/rx-0/rps", cpus)])
        for cpus in dict.fromkeys([*map(str, near), format_cpu_list(facts.usable_cpus)])
    ]
    servers = [Level(f"server on CPU {cpu}", workload={"server_cpus": str(cpu)}) for cpu in near]
    found = [("gro_flush_timeout", polls, "µs"), ("RPS", steering, ""), ("server CPUs", servers, "")]
    if facts.peer_id is not None:
        found = found[:1]
    return [Factor(name, [Level("current settings"), *levels], unit) for name, levels, unit in found if len(levels) > 1]


_NAMES_KO = {
    "Tune: the best setting under this load": "튜닝: 이 부하에 가장 좋은 설정",
    "current settings": "그대로",
    "frames": "프레임",
    "descriptors": "디스크립터",
    "rx ring": "수신 링",
    "rx ring {n}": "수신 링 {n}",
    "RPS on CPU {cpus}": "CPU {cpus}에서 RPS",
    "server CPUs": "서버 CPU",
    "server on CPU {n}": "CPU {n}의 서버",
}
"""Names of the experiment, its factors, units and levels, in Korean."""


TUNE = TemplateKind(
    "tune",
    "Tune: the best setting under this load",
    "Which settings of the network path need the least CPU time under this load?",
    "Settings are searched for the least CPU time per gigabit while response times stay below a limit. Few of all"
    " combinations are measured: poor ones are eliminated early. Load, factors and limit can be changed.",
    "No other machine: without a peer, the node generates the traffic itself.",
    _make,
    names_ko=_NAMES_KO,
)
