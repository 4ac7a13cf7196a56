"""Simulated machines: their NICs, queues, interrupts and faults."""

from collections.abc import Iterator
from enum import StrEnum
from itertools import count

from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.simulate.coalescing import DEFAULT_PARAMS, PARAM_MAXIMA
from coresteer_agent.simulate.topology import make_topology
from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.inventory import FlowRule, FlowRuleTable, Inventory, Irq, Netdev, Queue
from coresteer_core.node.topology import NumaNode, Topology
from coresteer_core.settings import MACHINE_SETTINGS
from coresteer_core.settings.kernel import kernel_controllers

ADDRESS = "198.18.0.1"
"""Of the netdev by which the load of experiments arrives (RFC 2544)."""
_GBIT = 1_000_000_000
_FIRST_MSI = 24
_ROLES = ("web", "cache", "storage", "db")
_NODES_PER_RACK = 20
_KINDS = 12
_CONDITIONS = {"governor": "performance", "idle driver": "intel_idle", "smt": "on", "vulnerable": "none"}
_TWO_TICKS_US = 2000
"""Default of netdev_budget_usecs in a kernel with 1,000 ticks a second."""


class Fault(StrEnum):
    """Fault of a simulated node, so that the fleet has hot spots."""

    NONE = "none"
    HOT_QUEUE = "hot_queue"
    FAILING_NIC = "failing_nic"
    MANAGED_NIC = "managed_nic"


class Nic(Struct, frozen=True):
    """A model of NIC. queue_name, other_name: names of its interrupts. max_packets_per_s: at full load.

    firmware: its version; older_firmware: that of a failing one. flow_rules: its table, None where it has none.
    """

    netdev: str
    driver: str
    speed_bits_per_s: int
    max_queues: int
    max_packets_per_s: float
    queue_name: str
    other_name: str
    firmware: str
    older_firmware: str
    flow_rules: FlowRuleTable | None = None


IGB = Nic(
    "eno1",
    "igb",
    _GBIT,
    8,
    160_000,
    "eno1-TxRx-{}",
    "eno1",
    "1.63, 0x800009fa",
    "1.52, 0x80000765",
    FlowRuleTable(16),
)
MLX5 = Nic(
    "enp59s0f0np0",
    "mlx5_core",
    100 * _GBIT,
    63,
    6_000_000,
    "mlx5_comp{}@pci:0000:3b:00.0",
    "mlx5_async0@pci:0000:3b:00.0",
    "22.41.1000 (MT_0000000359)",
    "22.31.1014 (MT_0000000359)",
    FlowRuleTable(64, [FlowRule(63, "flow-type udp4 dst-port 319 action 0")]),  # another program's: a PTP daemon's
)
ENA = Nic("ens5", "ena", 25 * _GBIT, 8, 2_500_000, "ens5-Tx-Rx-{}", "ena-mgmnt@pci:0000:00:05.0", "0.9.2", "0.9.1")
NICS = (MLX5, IGB, ENA)


class Machine(Struct, frozen=True):
    """Hardware that many simulated nodes share. The first of inventory.netdevs carries the load."""

    seed: str
    nic: Nic
    fault: Fault
    topology: Topology
    inventory: Inventory


def fault_of(index: int) -> Fault:
    """Return the fault of a node by its index in the fleet; the first three nodes have one."""
    return (Fault.HOT_QUEUE, Fault.FAILING_NIC, Fault.MANAGED_NIC)[index] if index < 3 else Fault.NONE


def kind_of(index: int) -> int:
    """Return the kind of machine of a node by its index; a node with a fault has the NIC that shows it best."""
    return (2, 1, 0)[index] if index < 3 else index % _KINDS


def labels_of(index: int) -> dict[str, str]:
    """Return the labels rack and role of a node by its index in the fleet."""
    return {"rack": f"r{index // _NODES_PER_RACK + 1:02}", "role": _ROLES[index % len(_ROLES)]}


def make_machine(*, cpus: int, irqs: int, kind: int, seed: int, fault: Fault = Fault.NONE) -> Machine:
    """Return a machine with this number of CPUs and IRQs. kind: selects its NIC and the spread of its load."""
    topology = make_topology(cpus)
    nic = NICS[kind % len(NICS)]
    netdevs: list[Netdev] = []
    rows: list[Irq] = []
    numbers = count(_FIRST_MSI)
    for place, each in enumerate((nic, IGB) if nic is MLX5 else (nic,)):
        room = irqs - len(rows)
        if room < 1 + place:
            break
        home = topology.numa_nodes[place % len(topology.numa_nodes)]
        netdev, its_rows = _nic(each, numbers=numbers, room=room, cpus=cpus, home=home, fault=fault)
        netdevs.append(netdev)
        rows += its_rows
    netdevs[0] = replace(netdevs[0], addresses=[ADDRESS])
    for name, queue in _nvme(cpus):
        if len(rows) == irqs:
            break
        rows.append(_nvme_irq(next(numbers), name, queue, cpus))
    settings = {key: str(setting.schema.get("default", _TWO_TICKS_US)) for key, setting in MACHINE_SETTINGS.items()}
    if len(topology.numa_nodes) < 2:
        settings["kernel/numa_balancing"] = "0"  # the kernel turns it on at boot only with several NUMA nodes
    inventory = Inventory(netdevs, rows, kernel_controllers(settings), settings, _CONDITIONS)
    return Machine(f"{seed}/{kind}", nic, fault, topology, inventory)


def _nic(
    nic: Nic, *, numbers: Iterator[int], room: int, cpus: int, home: NumaNode, fault: Fault
) -> tuple[Netdev, list[Irq]]:
    queues = max(1, min(nic.max_queues, cpus, room - 1))
    order = sorted(parse_cpu_list(home.cpus))
    managed = fault is Fault.MANAGED_NIC
    rows = []
    if room > 1:
        rows.append(
            Irq(
                next(numbers),
                nic.other_name,
                "PCI-MSI",
                f"0-{cpus - 1}",
                str(order[0]),
                home.id,
                True,
                None,
                nic.netdev,
            )
        )
    mine = [next(numbers) for _ in range(queues)]
    for queue, number in enumerate(mine):
        cpu = order[-1] if fault is Fault.HOT_QUEUE else order[queue % len(order)]
        rows.append(
            Irq(
                irq=number,
                name=nic.queue_name.format(queue),
                chip="PCI-MSI",
                requested=str(cpu),
                effective=str(cpu),
                numa_node=home.id,
                movable=not managed,
                locked_reason=f"The kernel manages the interrupts of {nic.netdev} and refuses writes."
                if managed
                else None,
                netdev=nic.netdev,
                queues=[f"rx-{queue}", f"tx-{queue}"],
            )
        )
    netdev = Netdev(
        name=nic.netdev,
        driver=nic.driver,
        speed_bits_per_s=nic.speed_bits_per_s,
        mtu=1500,
        numa_node=home.id,
        up=True,
        virtual=False,
        management=False,
        queues=[
            Queue(f"rx-{queue}", number, "msi_irqs", None, "", None, {"rps_flow_cnt": "0"})
            if way == "rx"
            else Queue(f"tx-{queue}", number, "msi_irqs", None, None, "")
            for way in ("rx", "tx")
            for queue, number in enumerate(mine)
        ],
        params=DEFAULT_PARAMS[nic.driver],
        params_max=PARAM_MAXIMA[nic.driver],
        flow_rules=nic.flow_rules,
        firmware=nic.older_firmware if fault is Fault.FAILING_NIC else nic.firmware,
    )
    return netdev, rows


def _nvme(cpus: int) -> Iterator[tuple[str, int]]:
    """Yield name and queue of NVMe interrupts: per drive an admin queue, then a managed queue per CPU up to 64."""
    for drive in count():
        for queue in range(min(cpus, 64) + 1):
            yield f"nvme{drive}q{queue}", queue


def _nvme_irq(number: int, name: str, queue: int, cpus: int) -> Irq:
    if queue == 0:
        return Irq(number, name, "PCI-MSI", f"0-{cpus - 1}", "0", 0, True)
    served = frozenset(range(queue - 1, cpus, min(cpus, 64)))
    return Irq(
        number,
        name,
        "PCI-MSI",
        format_cpu_list(served),
        str(min(served)),
        0,
        False,
        "The kernel manages the interrupts of NVMe queues and refuses writes.",
    )
