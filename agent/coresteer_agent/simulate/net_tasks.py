"""Simulated processes that use the network, with their traffic and RX placements."""

from collections.abc import Mapping

from coresteer_agent.simulate.load import (
    ANSWERS_PER_PACKET,
    BYTES_PER_PACKET,
    LOAD_LEVELS,
    busiest_tasks,
    peak_packets_per_s,
)
from coresteer_agent.simulate.machine import ADDRESS, Machine
from coresteer_agent.simulate.seeded_random import seeded_random
from coresteer_core.cpuset import format_cpu_list, parse_cpu_list
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.tasks import HeavyFlow, NetTask, RxPlacement

_NETWORK_PROGRAMS = frozenset(("nginx", "memcached", "postgres", "envoy", "java"))
_MAX_QUEUES = 3
_FIRST_PEER_PORT = 40_000
_PORTS = {"nginx": [80, 443], "memcached": [11211], "postgres": [5432], "envoy": [10000], "java": [8080]}
_USERS = {"nginx": "www-data", "memcached": "memcache", "postgres": "postgres"}


def cgroup_of(name: str) -> str:
    """Return the cgroup path of a program as /proc/PID/cgroup shows it."""
    return f"/system.slice/{name}.service"


def net_tasks(
    machine: Machine,
    inventory: Inventory,
    affinities: Mapping[int, str],
    level: int,
    *,
    params: Mapping[int, Mapping[str, str]],
) -> list[NetTask]:
    """Return the processes that use the network at a load level, the busiest first.

    Each uses a few fixed queues of the first NIC, with half of the bytes in one flow. affinities: by PID, all online
    CPUs where missing. params: values by PID and name that differ from the defaults.
    """
    queues = [irq for irq in inventory.irqs if irq.netdev == machine.nic.netdev and irq.queues]
    if not queues:
        return []
    cpus = format_cpu_list(machine.topology.online())
    packets_per_s = peak_packets_per_s(machine, len(queues)) * level / (LOAD_LEVELS - 1)
    programs = [task for task in busiest_tasks(machine, LOAD_LEVELS - 1) if task.name in _NETWORK_PROGRAMS]
    total_share = sum(task.cpu_share for task in programs)
    tasks = []
    for task in programs:
        its_queues = seeded_random("talker", machine.seed, task.pid).sample(queues, min(_MAX_QUEUES, len(queues)))
        rx_bytes_per_s = packets_per_s * task.cpu_share / total_share * BYTES_PER_PACKET / len(its_queues)
        affinity = affinities.get(task.pid, cpus)
        allowed = sorted(parse_cpu_list(affinity))
        tasks.append(
            NetTask(
                pid=task.pid,
                started_ticks=task.pid,
                name=task.name,
                cgroup=cgroup_of(task.name),
                threads=1,
                affinity=affinity,
                allowed=cpus,
                cpu=task.cpu if task.cpu in allowed else allowed[0],
                cpu_share=round(task.cpu_share * level / (LOAD_LEVELS - 1), 3),
                idle_s=0.0 if level else 5.0,
                rx_placements=[
                    RxPlacement(
                        netdev=machine.nic.netdev,
                        queue=irq.queues[0],
                        irq=irq.irq,
                        cpu=min(parse_cpu_list(irq.effective or "0")),
                        how="rss",
                        sockets=1 + level,
                        rx_bytes_per_s=rx_bytes_per_s,
                        tx_bytes_per_s=rx_bytes_per_s * ANSWERS_PER_PACKET,
                    )
                    for irq in its_queues
                ],
                user=_USERS.get(task.name, "app"),
                command=task.name,
                unit=f"{task.name}.service",
                listens=_PORTS[task.name],
                clients=[f"10.{place}.0.{1 + task.pid % 250}" for place in range(2)],
                params={"nice": "0", **params.get(task.pid, {})},
                flows=[
                    HeavyFlow(
                        protocol="tcp",
                        local=ADDRESS,
                        local_port=_PORTS[task.name][0],
                        peer=f"10.0.0.{1 + task.pid % 250}",
                        peer_port=_FIRST_PEER_PORT + place,
                        netdev=machine.nic.netdev,
                        queue=irq.queues[0],
                        cpu=min(parse_cpu_list(irq.effective or "0")),
                        rss_entry=None,
                        rx_bytes_per_s=rx_bytes_per_s / 2,
                    )
                    for place, irq in enumerate(its_queues)
                ],
            )
        )
    return tasks
