"""Receipts of a load between two nodes, as a backend arranges them."""

import secrets

from coresteer_agent.workloads.load import Prepared
from coresteer_core.experiments.model import Receipts


def receipts_of(server: Prepared, key: str = "") -> Receipts:
    """Return the receipts of a prepared server, as both nodes get them. key: a new one if empty."""
    assert server.receipts is not None
    return Receipts(server.receipts.getsockname()[1], key or secrets.token_hex(32))
