"""Match processes and accepted connections to service classes."""

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from coresteer_core.node.tasks import NetTask
from coresteer_core.schema import labelled

Address: TypeAlias = IPv4Address | IPv6Address

_Patterns = Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=32)]


class Match(Struct, frozen=True):
    """Patterns of the processes and connections of a service class; every non-empty list must have one that matches.

    Without any list only requests that name the class belong to it. cgroups: paths. units: of systemd. users: names, or
    numbers of those without one in /etc/passwd. commands: the first word without its folder. listens: TCP ports.
    clients: networks in CIDR notation, of the other end of a connection; a process belongs only if all of its clients
    do, as one weight is for all of them.
    """

    commands: Annotated[
        _Patterns,
        labelled("Commands", "Names of programs without their path, for example nginx postgres*.", placeholder="any"),
    ] = []
    listens: Annotated[
        list[Annotated[int, Meta(ge=1, le=65_535)]],
        Meta(max_length=32),
        labelled("Listening ports", "TCP ports on which the processes listen, for example 80 443.", placeholder="any"),
    ] = []
    units: Annotated[
        _Patterns, labelled("Units", "Units of systemd, for example nginx.service web@*.", placeholder="any")
    ] = []
    cgroups: Annotated[
        _Patterns, labelled("Cgroups", "Paths of cgroups, for example /kubepods/*.", placeholder="any")
    ] = []
    users: Annotated[
        _Patterns,
        labelled(
            "Users", "Names of users, or numeric ids missing in /etc/passwd, for example www-data.", placeholder="any"
        ),
    ] = []
    clients: Annotated[
        _Patterns,
        labelled("Client networks", "Networks of the clients' addresses, for example 10.1.0.0/16.", placeholder="any"),
    ] = []

    def __post_init__(self) -> None:
        """Raises ValueError for a client that is no network."""
        for client in self.clients:
            try:
                _network(client)
            except ValueError:
                raise ValueError(f"“{client[:60]}” is not a network; write for example 10.0.0.0/8.") from None

    @property
    def needs_process(self) -> bool:
        """Return whether a match depends on the process (command, unit, cgroup, user), not only on the connection."""
        return bool(self.cgroups or self.units or self.users or self.commands)

    def matches_task(self, task: NetTask) -> bool:
        """Return whether a process belongs to the service class."""
        return self._matches(task, [address for text in task.clients if (address := _address(text))], task.listens)

    def matches_connection(self, client: Address, port: int, task: NetTask | None) -> bool:
        """Return whether a client's connection to a local port belongs to the class. task: server, None if unknown."""
        return self._matches(task, [client], [port])

    def _matches(self, task: NetTask | None, clients: Sequence[Address], ports: Collection[int]) -> bool:
        if not (self.needs_process or self.listens or self.clients):
            return False
        if self.listens and not any(port in ports for port in self.listens):
            return False
        if self.clients and not (clients and all(self._has_client(client) for client in clients)):
            return False
        return not self.needs_process or (task is not None and self._matches_process(task))

    def _has_client(self, client: Address) -> bool:
        return any(client in _network(network) for network in self.clients)

    def _matches_process(self, task: NetTask) -> bool:
        groups = [path.lstrip("/") for path in (task.cgroup, task.cpu_cgroup) if path is not None]
        return (
            _any([pattern.lstrip("/") for pattern in self.cgroups], groups)
            and _any(self.units, [task.unit])
            and _any(self.users, [task.user])
            and _any(self.commands, [task.command])
        )


def _any(patterns: Sequence[str], values: Sequence[str | None]) -> bool:
    if not patterns:
        return True
    return any(fnmatchcase(value, pattern) for value in values if value is not None for pattern in patterns)


@lru_cache(maxsize=512)
def _network(text: str) -> IPv4Network | IPv6Network:
    return ip_network(text, strict=False)


@lru_cache(maxsize=1024)
def _address(text: str) -> Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
