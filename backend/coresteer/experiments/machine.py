"""Description of the machine under test for reports. Pure."""

from typing import Any

from coresteer.nodes import service as nodes
from coresteer.nodes.tables import NodeRow


def describe_machine(node: NodeRow) -> dict[str, Any]:  # Any: JSON of facts that reports print as they are
    """Return facts about a node (CPUs, kernel, NICs) by the names that reports print; empty or None where unknown."""
    topology, inventory, _ = nodes.reported_state(node)
    hello = node.hello or {}
    return {
        "name": node.name,
        "simulated": node.simulated,
        "emulated": bool(hello.get("emulated")),
        "hostname": hello.get("hostname"),
        "kernel": hello.get("kernel"),
        "agent_version": hello.get("agent_version"),
        "cpus": node.cpus,
        "packages": node.packages,
        "numa_nodes": node.numa_nodes,
        "isolated": "" if topology is None else topology.isolated,
        "nohz_full": "" if topology is None else topology.nohz_full,
        "controllers": [] if inventory is None else inventory.controllers,
        "netdevs": []
        if inventory is None
        else [
            {
                "name": netdev.name,
                "driver": netdev.driver,
                "speed_bits_per_s": netdev.speed_bits_per_s,
                "numa_node": netdev.numa_node,
                "queues": len([queue for queue in netdev.queues if queue.name.startswith("rx-")]),
            }
            for netdev in inventory.netdevs
        ],
    }
