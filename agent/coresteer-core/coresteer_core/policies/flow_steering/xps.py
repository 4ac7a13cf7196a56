"""XPS: each CPU sends by the transmit queue whose interrupt is nearest, so that completions arrive near the sender."""

from msgspec import Struct
from msgspec.structs import replace

from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.inventory import Netdev
from coresteer_core.policies.base import Scope
from coresteer_core.policies.flow_steering.memory import FlowSteeringMemory, HeldXps
from coresteer_core.policies.flow_steering.rules import DesiredValue
from coresteer_core.policies.flow_steering.traffic import Traffic
from coresteer_core.policies.scope import in_scope
from coresteer_core.settings import Xps
from coresteer_core.settings.base import format_cpus
from coresteer_core.settings.queue import NO_CPUS

_HELD_RATE = 0.5
"""Share of min_bytes_per_s from which on a netdev keeps its XPS."""


class XpsRound(Struct):
    """What a round decides about XPS."""

    held: dict[str, HeldXps]
    desired: list[DesiredValue]
    restores: list[DesiredValue]


def decide_xps(traffic: Traffic, scope: Scope, memory: FlowSteeringMemory) -> XpsRound:
    """Return the XPS CPUs of the transmit queues of netdevs over which processes in scope transfer enough."""
    found, now, dwell_s = XpsRound({}, [], []), traffic.now, traffic.spec.dwell_s
    heaviest: dict[str, float] = {}
    if traffic.spec.xps:
        for task in traffic.view.tasks:
            if in_scope(scope, task.name, task.cgroup):
                by_netdev: dict[str, float] = {}
                for each in task.rx_placements:
                    by_netdev[each.netdev] = by_netdev.get(each.netdev, 0.0) + each.bytes_per_s
                heaviest |= {name: max(per_s, heaviest.get(name, 0.0)) for name, per_s in by_netdev.items()}
    for name, netdev in traffic.netdevs.items():
        was = memory.xps.get(name)
        present = {
            Xps(name, int(queue.name[3:])).key: queue.xps or NO_CPUS
            for queue in netdev.queues
            if queue.name.startswith("tx-") and queue.xps is not None
        }
        least = max(1.0, traffic.spec.min_bytes_per_s * (_HELD_RATE if was is not None else 1.0))
        if heaviest.get(name, 0.0) >= least:
            cpus = _irq_cpus(traffic, netdev)
            values = _nearest(traffic, cpus) if cpus.keys() == present.keys() else {}
            if was is not None and values != was.values and (not values or now - was.moved_s < dwell_s):
                values = was.values  # an interrupt that just moved may move again, and one of a reset has no CPU
            if not values:
                continue
            moved_s = was.moved_s if was is not None and was.values == values else now
            originals = {key: memory.restoring.get(key, value) for key, value in present.items()}
            found.held[name] = HeldXps(originals | (was.originals if was is not None else {}), values, moved_s)
            for key, value in values.items():
                if key in present and value != present[key]:
                    where = f"of {key.split('/')[2]}, on CPU {cpus[key]}" if key in cpus else "of its queue"
                    why = f"The interrupt {where}, is the nearest of {name} for {format_cpus(Xps(name, 0).cpus(value))}"
                    found.desired.append(DesiredValue(key, value, None, why))
        elif was is not None and traffic.spec.xps and (was.gone_s is None or now - was.gone_s <= dwell_s):
            found.held[name] = was if was.gone_s is not None else replace(was, gone_s=now)
        elif was is not None:
            why = (
                "No process in scope transfers much over it"
                if traffic.spec.xps
                else "The policy does not set XPS any more"
            )
            found.restores += [
                DesiredValue(key, value, None, f"{why}.") for key, value in was.originals.items() if key in present
            ]
    found.restores += [
        DesiredValue(key, value, None, f"{name} is not in the policy's scope any more.")
        for name, held in memory.xps.items()
        if name not in traffic.netdevs  # those of a netdev that is gone cannot be restored
        for key, value in held.originals.items()
    ]
    return found


def _irq_cpus(traffic: Traffic, netdev: Netdev) -> dict[str, int]:
    """Return the CPU of each transmit queue's interrupt by the key of its XPS, without those that are not known."""
    found: dict[str, int] = {}
    for queue in netdev.queues:
        irq = traffic.view.inventory.irq(queue.irq) if queue.irq is not None else None
        cpus = parse_cpu_list(irq.effective or irq.requested or "") if irq is not None else ()
        if queue.name.startswith("tx-") and queue.xps is not None and len(cpus) == 1:
            cpu = min(cpus)
            if cpu < traffic.distances.cpu_count:
                found[Xps(netdev.name, int(queue.name[3:])).key] = cpu
    return found


def _nearest(traffic: Traffic, irq_cpus: dict[str, int]) -> dict[str, str]:
    """Return the CPUs of each queue: every one in the queue with the nearest interrupt, ties evenly split.

    Isolated and reserved ones, too: their processes send, by any queue if none is given. Those off limits stay out.
    """
    members: dict[str, list[int]] = {key: [] for key in irq_cpus}
    cpus = traffic.view.topology.online() - traffic.view.inventory.limits.settings.closed_cpus
    for cpu in sorted(cpus) if members else ():
        row = traffic.distances.rows[cpu]
        nearest = min(irq_cpus, key=lambda key: (row[irq_cpus[key]], len(members[key])))
        members[nearest].append(cpu)
    return {key: format_cpu_list(found) or NO_CPUS for key, found in members.items()}
