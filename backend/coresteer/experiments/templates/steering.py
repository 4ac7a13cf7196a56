"""Template: the processes go to their packets, the packets to their processes (RFS), both, or neither. Pure."""

from coresteer.experiments.arm_config import NETDEV_PLACEHOLDER
from coresteer.experiments.spec import Factor, Level, Spec
from coresteer.experiments.templates.declaration import TemplateKind
from coresteer.experiments.templates.parts import (
    NodeFacts,
    TemplateUnavailable,
    receive_settings,
    tcp_stream,
    traffic_sentence,
)
from coresteer.experiments.templates.placement import client_cpus, home_cpu
from coresteer_core.changes.guard import MAX_PLAN_ACTIONS
from coresteer_core.changes.plan import DesiredValue
from coresteer_core.cpuset import format_cpu_list
from coresteer_core.settings.base import format_cpus

_ENTRIES = "kernel/rps_sock_flow_entries"
_FLOW_ENTRIES = 32_768
"""Of the whole machine, as Documentation/networking/scaling.rst suggests; the queues share them."""


def _make(facts: NodeFacts, kind: TemplateKind) -> tuple[Spec, list[str]]:
    """Return the four combinations of a fixed process and RFS. Raises TemplateUnavailable."""
    if len(facts.usable_cpus) < 2:
        raise TemplateUnavailable(f"{facts.name} has one usable CPU; packets and processes have no other.")
    if _ENTRIES not in facts.inventory.settings:
        raise TemplateUnavailable(f"The kernel of {facts.name} has no RFS (rps_sock_flow_entries).")
    home, queues = home_cpu(facts), _queues(facts)
    packets = receive_settings(facts, [home])
    if len(packets) + len(queues) >= MAX_PLAN_ACTIONS:
        raise TemplateUnavailable(
            f"RFS of {len(queues)} receive queues and their interrupts are {len(packets) + len(queues) + 1} settings; "
            f"one change has at most {MAX_PLAN_ACTIONS}."
        )
    clients = [] if facts.peer_id is not None else client_cpus(facts)
    here: dict[str, str | int | bool] = {"server_cpus": str(home)}
    off, on = (packets + _rfs(queues, entries) for entries in (0, _FLOW_ENTRIES))
    levels = [
        Level("neither", off, role="neither"),
        Level("process to packets", off, workload=here, role="process"),
        Level("packets to process", on, role="packets"),
        Level("both", on, workload=here, role="both"),
    ]
    workload = tcp_stream(facts, limited=True, client_cpus=format_cpu_list(clients))
    spec = kind.spec(facts, workload, [Factor("steering", levels)], primary="cpu_s_per_gbit")
    return spec, [
        traffic_sentence(facts, workload),
        f"The NIC's packets arrive on {format_cpus({home})} in every run. “Process to packets” runs the processes "
        "there; without it the kernel places them.",
        f"“Packets to process” is RFS with {_FLOW_ENTRIES} flows: the CPU that polls the queue hands each "
        "packet to the CPU on which its process last read, by an interrupt between CPUs. Polling remains where it is.",
    ]


def _queues(facts: NodeFacts) -> list[str]:
    """Return the receive queues that can have RFS, of the veth pair or of the NIC. Raises TemplateUnavailable."""
    if facts.peer_id is None:
        return ["rx-0"]
    wire = facts.receiving_netdev
    if wire is None:
        raise TemplateUnavailable(f"{facts.name} has no network card that is up and could receive a peer's traffic.")
    queues = [queue.name for queue in wire.queues if "rps_flow_cnt" in queue.params]
    if not queues:
        raise TemplateUnavailable(f"The receive queues of {wire.name} have no RFS (rps_flow_cnt).")
    return queues


def _rfs(queues: list[str], entries: int) -> list[DesiredValue]:
    """Return the settings of RFS with some entries in all, 0 for none; both tables are powers of two."""
    of_queue = 1 << (entries // len(queues)).bit_length() >> 1
    tables = [DesiredValue(f"netdev/{NETDEV_PLACEHOLDER}/{queue}/rps_flow_cnt", str(of_queue)) for queue in queues]
    return [DesiredValue(_ENTRIES, str(entries)), *tables]


_NAMES_KO = {
    "Steering: process to packets, packets to process": "조향: 프로세스를 패킷으로, 패킷을 프로세스로",
    "steering": "조향",
    "neither": "둘 다 사용 안 함",
    "process to packets": "프로세스를 패킷으로",
    "packets to process": "패킷을 프로세스로",
    "both": "둘 다",
}
"""Names of the experiment, its factors, units and levels, in Korean."""


STEERING = TemplateKind(
    "steering",
    "Steering: process to packets, packets to process",
    "Is it cheaper to move processes to their packets, or packets to their processes?",
    "Packets and their process meet on one CPU if the process moves to the CPU of the queue, or if RFS brings each "
    "packet's protocol work to the CPU of its process. The experiment compares both, each alone and together.",
    "Two usable CPUs. With traffic from a peer: interrupts that can be moved or queues with RPS, and queues with RFS.",
    _make,
    names_ko=_NAMES_KO,
)
