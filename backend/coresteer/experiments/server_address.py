"""Whether the address that a node states for a load's server is its own, as far as the backend knows. Pure."""

from ipaddress import ip_address

from coresteer_core.node.inventory import Inventory
from coresteer_core.node.limits import parse_host
from coresteer_core.protocol import ExperimentMessage


def address_refusal(name: str, ready: ExperimentMessage, inventory: Inventory, connection_host: str) -> str | None:
    """Return why no other node may send a load to the server of a node, as a sentence; None if it may.

    ready: the server's. connection_host: the address from which the node's agent is connected. The inventory, too, is
    the node's own statement: in addition the client sends nothing before the server has answered at that address.
    """
    if not ready.receipts_port:
        return f"{name} does not answer for the load that it receives; upgrade its agent."
    host = parse_host(ready.address)
    known = [address for netdev in inventory.netdevs for address in netdev.addresses]
    if any(str(host) == address for address in (*known, _normal(connection_host))):
        return None
    return (
        f"{name} states the address {host} for the load, which is neither that of its connection nor of one of its "
        "network devices, so no load is sent there."
    )


def _normal(host: str) -> str:
    """Return an address as Python writes it, IPv4 also where it was mapped to IPv6; a name as it is."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    return str(getattr(address, "ipv4_mapped", None) or address)
