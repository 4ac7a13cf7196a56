"""Outliers: nodes that differ from their group in kernel, driver, firmware, NIC settings or policy versions."""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from coresteer.fleet.schemas import Outlier, Outliers, TraitDifference
from coresteer.policies import repository as policies
from coresteer.policies.in_force import EnabledPolicy
from coresteer.policies.selector import NodeAttributes, matches
from coresteer_core.policies.base import Mode

MAX_OUTLIERS = 20
"""Maximum number of nodes in an answer, which also has their total number."""
MIN_NODES = 4
"""Nodes of a group that report a trait; of fewer, none differs from the rest."""
USUAL_SHARE = 0.75
"""Share of these nodes with the same value from which it is the usual one."""
NOT_IN_FORCE = "not in force"
_PARAMS = {"ring/rx": "RX ring", "ring/tx": "TX ring"}
_COALESCING = "coalesce/"

_NODES = text("""
    SELECT id, simulated, hello->>'kernel' AS kernel, array_to_string(drivers, ', ') AS drivers, (
        SELECT jsonb_agg(jsonb_build_object(
            'channels', nic->'channels', 'params', nic->'params', 'driver', nic->'driver',
            'firmware', nic->'firmware', 'queues', jsonb_array_length(nic->'queues')))
        FROM jsonb_array_elements(inventory->'netdevs') AS nic
        WHERE nic->>'virtual' = 'false' AND nic->>'name' <> 'lo' AND nic->>'up' IS DISTINCT FROM 'false'
    ) AS nics FROM node ORDER BY name
""")


@dataclass(frozen=True)
class Traits:
    """What is compared of one node: values by trait; unknown ones are missing."""

    node_id: int
    name: str
    group: str
    values: Mapping[str, str]


def find_outliers(nodes: Iterable[Traits]) -> list[Outlier]:
    """Return the nodes that differ from a value that most of their group share, those with most differences first."""
    groups: dict[str, list[Traits]] = defaultdict(list)
    for node in nodes:
        groups[node.group].append(node)
    found = [outlier for group in groups.values() for outlier in _in_group(group)]
    return sorted(found, key=lambda outlier: (-len(outlier.differences), outlier.group, outlier.node_name))


def _in_group(nodes: Sequence[Traits]) -> Iterable[Outlier]:
    differences: dict[int, list[TraitDifference]] = defaultdict(list)
    for trait in dict.fromkeys(trait for node in nodes for trait in node.values):
        known = [node for node in nodes if trait in node.values]
        ((usual, count),) = Counter(node.values[trait] for node in known).most_common(1)
        if len(known) < MIN_NODES or count < USUAL_SHARE * len(known):
            continue
        for node in known:
            if (value := node.values[trait]) != usual:
                differences[node.node_id].append(
                    TraitDifference(trait=trait, value=value, usual=usual, usual_nodes=count, nodes=len(known))
                )
    for node in nodes:
        if node.node_id in differences:
            yield Outlier(
                node_id=node.node_id, node_name=node.name, group=node.group, differences=differences[node.node_id]
            )


async def list_outliers(session: AsyncSession, groups: Mapping[int, str], shown: Container[int]) -> Outliers:
    """Return the outliers among the nodes shown. groups: the name of each node's group.

    Each is compared with all nodes of its group; real nodes with real ones only, and of policies those that write.
    """
    attributes = {node.node_id: node for node in await policies.node_attributes(session)}
    enabled = [policy for policy in await policies.enabled_policies(session) if not _is_rolling_out(policy)]
    nodes: dict[bool, list[Traits]] = {False: [], True: []}
    for row in (await session.execute(_NODES)).mappings():
        node = attributes.get(row["id"])
        if node is not None and node.node_id in groups:
            values = nic_traits(row["nics"] or []) | _versions(enabled, node)
            values |= {name: row[key] for name, key in (("kernel", "kernel"), ("driver", "drivers")) if row[key]}
            nodes[row["simulated"]].append(Traits(node.node_id, node.name, groups[node.node_id], values))
    found = [one for one in find_outliers(nodes[False]) + find_outliers(nodes[True]) if one.node_id in shown]
    return Outliers(outliers=found[:MAX_OUTLIERS], more=max(0, len(found) - MAX_OUTLIERS))


def _is_rolling_out(policy: EnabledPolicy) -> bool:
    return policy.partial is not None and bool(policy.partial.compared)


def _versions(enabled: Iterable[EnabledPolicy], node: NodeAttributes) -> dict[str, str]:
    found = {}
    for policy in enabled:
        version = policy.version_on(node.node_id)
        applies = version is not None and matches(policy.bodies[version].selector, node)
        body = policy.bodies[version or max(policy.bodies)]
        if body.mode is not Mode.ENFORCE:
            continue
        found[f"policy {body.name}"] = f"v{version}" if applies else NOT_IN_FORCE
    return found


def nic_traits(nics: Iterable[Mapping[str, Any]]) -> dict[str, str]:  # Any: JSON of Netdev
    """Return the settings of a node's NICs and the firmware by driver; the values of several are joined."""
    found: dict[str, set[str]] = defaultdict(set)
    for nic in nics:
        if nic["driver"] and nic["firmware"]:
            found[f"{nic['driver']} firmware"].add(nic["firmware"])
        if nic["queues"]:
            found["queues"].add(nic["channels"] or str(nic["queues"]))
        for key, value in (nic["params"] or {}).items():
            if key in _PARAMS or key.startswith(_COALESCING):
                found[_PARAMS.get(key, key.removeprefix(_COALESCING))].add(value)
    return {trait: ", ".join(sorted(values)) for trait, values in found.items()}
