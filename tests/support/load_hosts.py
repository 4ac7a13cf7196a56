"""Two hosts on one machine for loads on messages: cgroups whose sockets have an eBPF program each, like two agents."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from coresteer_agent.collect.cgroups import find_version_2
from coresteer_agent.linux.tcp_option import TcpOption
from coresteer_agent.transport.load_option import LoadOption

VALID_S = 0.25
"""For this long a host writes a load into its messages."""
_MOUNT = find_version_2(Path("/"))
CGROUPS = None if _MOUNT is None else Path("/") / _MOUNT
V4, V6 = socket.AF_INET, socket.AF_INET6
CLIENT = {V4: "127.0.0.2", V6: "::1"}
SERVER = {V4: "127.0.0.1", V6: "::1"}


def free_port() -> int:
    """Return a TCP port that no socket uses."""
    with socket.create_server(("", 0)) as found:
        return int(found.getsockname()[1])


class Host:
    """Sockets in a cgroup of its own. option, carrier: of its agent. Raises BpfRefusedError."""

    def __init__(self, name: str, port: int) -> None:
        assert CGROUPS is not None
        self.folder = CGROUPS / f"coresteer-test-{os.getpid()}-{name}"
        self.folder.mkdir()
        try:
            self.option = TcpOption([range(port, port + 1)], self.folder)
        except BaseException:
            self.folder.rmdir()
            raise
        self.carrier = LoadOption(self.option, VALID_S)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Sockets that this process makes meanwhile are the host's."""
        assert CGROUPS is not None
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        home = next(line for line in lines if line.startswith("0::/")).removeprefix("0::/")
        (self.folder / "cgroup.procs").write_text("0")
        try:
            yield
        finally:
            (CGROUPS / home / "cgroup.procs").write_text("0")

    def close(self) -> None:
        """Remove the program and the cgroup, which no process is in."""
        self.option.close()
        self.folder.rmdir()


class Pair:
    """Two hosts, whose messages on one port carry loads, and connections between them. Raises BpfRefusedError."""

    def __init__(self) -> None:
        self.port = free_port()
        self._cleanup = ExitStack()
        self.here, self.there = (self._host(name) for name in ("here", "there"))

    def connect(
        self, family: socket.AddressFamily = V4, port: int | None = None, segment_bytes: int | None = None
    ) -> tuple[socket.socket, socket.socket]:
        """Return the ends of a new connection from here to there."""
        with self.there.inside():
            server = socket.create_server((SERVER[family], self.port if port is None else port), family=family)
        with self.here.inside():
            client = socket.socket(family)
        with server:
            if segment_bytes is not None:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment_bytes)
            client.bind((CLIENT[family], 0))
            client.connect(server.getsockname())
            accepted, _ = server.accept()
        for each in (client, accepted):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.settimeout(30)
            self._cleanup.callback(each.close)
        return client, accepted

    def close(self) -> None:
        """Close all connections and remove the hosts."""
        self._cleanup.close()

    def _host(self, name: str) -> Host:
        try:
            host = Host(name, self.port)
        except BaseException:
            self.close()
            raise
        self._cleanup.callback(host.close)
        return host
