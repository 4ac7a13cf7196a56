"""The netdev that carries the agent's connection to the backend."""

import pytest

from coresteer_agent.runtime.identity import management_netdevs


@pytest.mark.parametrize(
    ("local", "peer"), [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("127.0.0.2", None), ("192.0.2.7", "192.0.2.7")]
)
def test_no_netdev_carries_a_connection_within_the_machine(local: str, peer: str | None) -> None:
    assert management_netdevs(local, peer) == set()


def test_the_netdev_with_the_local_address_carries_a_connection_to_another_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import psutil

    held = {"eth0": ["192.0.2.7", "fe80::7%eth0"], "eth1": ["198.51.100.9"]}
    fakes = {name: [type("Address", (), {"address": each}) for each in of] for name, of in held.items()}
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: fakes)
    assert management_netdevs("198.51.100.9", "198.51.100.1") == {"eth1"}
    assert management_netdevs("fe80::7", "fe80::1") == {"eth0"}
    assert management_netdevs("203.0.113.1", "203.0.113.2") == set()
