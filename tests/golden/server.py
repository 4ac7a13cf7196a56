"""A server that has every kind of Setting, with one CPU offline and one isolated, for previews."""

from msgspec.structs import replace
from tests.golden.samples import made
from tests.support.views import make_topology

from coresteer_core.node.cpusets import Cpuset
from coresteer_core.node.inventory import FlowRule, FlowRuleTable, Inventory, Irq, Netdev, Queue
from coresteer_core.node.nic import DriverRecord, DriverResponse, NicKnowledge, Verdict
from coresteer_core.node.rates import Rates
from coresteer_core.node.tasks import NetTask, RxPlacement
from coresteer_core.node.view import View
from coresteer_core.settings.params import PARAMS

TOPOLOGY = make_topology(
    packages=2, nodes_per_package=1, cores_per_node=4, threads=2, offline=[15], isolated=[6], nohz_full=[6]
)
_LEARNED = NicKnowledge(
    [
        DriverRecord(
            "mlx5_core",
            "6.12",
            [
                DriverResponse("coalesce/rx-usecs", "77", Verdict.REFUSED, None, "Invalid argument", 0),
                DriverResponse("coalesce/rx-usecs", "78", Verdict.ROUNDED, "80", "", 0),
                DriverResponse("coalesce/rx-usecs", "79", Verdict.IGNORED, "8", "", 0),
            ],
        )
    ]
)


def view(controllers: tuple[str, ...] = ()) -> View:
    """The server. eth0 is an mlx5 with all parameters, eth1 an igb that carries the agent's connection."""
    params = {
        name: "off" if param.is_switch else str(min(max(8, param.least), param.most)) for name, param in PARAMS.items()
    }
    params |= {"coalesce/adaptive-rx": "on", "ring/rx": "1024", "ring/tx": "1024", "napi_defer_hard_irqs": "0"}
    whole = {name: value for name, value in params.items() if PARAMS[name].of_netdev}
    queues = [
        queue
        for n in range(4)
        for queue in (
            Queue(f"rx-{n}", 40 + n, "netlink", 100 + n, "none", None, _own(params, "rx")),
            Queue(f"tx-{n}", 40 + n, "netlink", 100 + n, None, "none", _own(params, "tx")),
        )
    ]
    rules = [
        FlowRule(2, "flow-type udp4 dst-port 53 action 1"),
        FlowRule(3, "flow-type tcp4 dst-port 22 action 0", ours=True),
    ]
    eth0 = Netdev("eth0", "mlx5_core", 10**11, 1500, 0, True, False, False, queues, "combined 4", "combined 16",
                  "0,1,2,3", whole, {"ring/rx": "8192", "ring/tx": "8192"},
                  flow_rules=FlowRuleTable(16, rules))  # fmt: skip
    eth1 = Netdev("eth1", "igb", 10**9, 1500, 1, True, False, True, [Queue("rx-0", 50, "name", None, "0-3")],
                  params={"coalesce/rx-usecs": "3", "gro_flush_timeout": "0"})  # fmt: skip
    irqs = [
        Irq(40 + n, f"mlx5_comp{n}", "PCI-MSI", str(n), str(n), 0, True, None, "eth0", [f"rx-{n}", f"tx-{n}"])
        for n in range(4)
    ]
    irqs += [
        Irq(50, "eth1", "PCI-MSI", "0-14", "9", 1, True, None, "eth1", ["rx-0"]),
        Irq(60, "nvme0q1", "PCI-MSI", "4", "4", 1, False, "The driver spreads this interrupt by itself."),
        Irq(61, "i8042", "IO-APIC", None, None, None, None),
    ]
    lands = RxPlacement("eth0", "rx-0", 40, 0, "rss", 3, 5e6, 1e5)
    nginx = NetTask(812, 8120, "nginx", "/web.slice", 2, "0-14", "0-14", 5, 0.4, 0.1, [lands], params={"nice": "0"})
    tasks = [
        nginx,
        replace(nginx, pid=813, name="redis", affinity="0-3", allowed="0-3", cgroup=None, params={"nice": "5"}),
        replace(nginx, pid=814, name="ksoftirqd/1", bound=True, kernel=True),
        replace(nginx, pid=815, name="ptp4l", realtime=True),
    ]
    cgroups = {"web.slice": {"cpu.weight": "100", "io.weight": "100"}, "docker/1": {"cpu.shares": "1024"}}
    cpusets = {
        "": Cpuset(None, None, "0-14", "0-1"),
        "web.slice": Cpuset("", "0", "0-14", "0", {0: 3 << 30, 1: 1 << 20}),
        "web.slice/nginx.service": Cpuset(),
        "small.slice": Cpuset("0-1", "", "0-1", "0-1"),
        "small.slice/1": Cpuset("1", "", "1", "0-1"),
    }
    settings = {"kernel/rps_sock_flow_entries": "0", "kernel/netdev_budget": "300"}
    inventory = Inventory([eth0, eth1], irqs, list(controllers), settings)
    return View(
        TOPOLOGY, inventory, tasks=tasks, learned=_LEARNED, cgroups=cgroups,
        cpusets=cpusets,
    )  # fmt: skip


def _own(params: dict[str, str], way: str) -> dict[str, str]:
    return {name: params[name] for name, param in PARAMS.items() if param.queue == way}


def rates() -> list[Rates]:
    """What the server did lately, as far as the effect of a plan is read from it."""
    return made()
