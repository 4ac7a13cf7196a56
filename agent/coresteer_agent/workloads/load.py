"""Load of an experiment's runs on this node: what all runs share, and the processes of each run.

Nothing here blocks: callers poll ready, failed and done. All processes end with the process that started them, even if
it is killed. Both classes are for the main thread (see child_process.Child).
"""

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import psutil

from coresteer_agent.linux.addresses import Addresses
from coresteer_agent.workloads.child_process import Child
from coresteer_agent.workloads.iperf3 import Iperf3Load
from coresteer_agent.workloads.netns import NetnsConfig
from coresteer_agent.workloads.program_load import ProgramLoad, start_command, start_jobs, start_program
from coresteer_agent.workloads.traffic_load import TrafficLoad
from coresteer_agent.workloads.traffic_protocol import (
    FAILED,
    READY,
    Give,
    ReceiptsPart,
    Require,
    join_address,
    open_sockets,
    split_address,
)
from coresteer_core.experiments.model import (
    Classes,
    Command,
    Iperf3,
    Memory,
    Observe,
    Receipts,
    Role,
    Traffic,
    Workload,
    has_client,
)
from coresteer_core.experiments.parallel_jobs import Bsp

_ANYWHERE = "192.0.2.1"
"""An address of the documentation range; used for a route lookup, no packet is sent to it."""


class Prepared:
    """State that all runs of an experiment share on a node: server sockets, and the client's network namespace.

    The namespace exists if client and server are both on this node (role alone). address: of the server as HOST:PORT,
    and netdev, by which it is reached; empty without a server on this node. network: path of the client's network
    namespace, empty for this one. sockets: the server's. receipts: a UDP socket at the server's address, for a client
    on another node. Valid once ready.
    """

    def __init__(self, workload: Workload, role: Role, netdevs: Sequence[str] = (), address: str = "") -> None:
        """netdevs: by which another node's traffic should arrive, the best first. address: of Bsp's server, if given.

        Raises ValueError for an address without port.
        """
        self.address = ""
        self.netdev = ""
        self.network = ""
        self.sockets: list[socket.socket] = []
        self.receipts: socket.socket | None = None
        self._failed: str | None = None
        self._workload = workload
        self._netns_process: Child | None = None
        self._is_ready = False
        if not has_client(workload) or role == "client":
            self._is_ready = True
        elif role == "alone":
            self._netns_process = Child("workloads.netns", NetnsConfig(os.getpid()))
        elif address:
            self._listen(*split_address(address))
        else:
            self._listen(_server_address(netdevs))

    @property
    def ready(self) -> bool:
        """Return whether sockets and network namespace are prepared; polls the namespace's process."""
        return self.failed is None and self._is_ready

    @property
    def failed(self) -> str | None:
        """Return why the preparation failed, as a sentence, or None; polls the namespace's process."""
        if self._netns_process is not None and self._failed is None:
            self._poll(self._netns_process)
        return self._failed

    def close(self) -> None:
        """Close the server's sockets and end the network namespace; idempotent."""
        self._is_ready = False
        for one in (*self.sockets, *([] if self.receipts is None else [self.receipts])):
            one.close()
        self.sockets, self.receipts = [], None
        if self._netns_process is not None:
            self._netns_process.end()
            self._netns_process = None

    def _poll(self, holder: Child) -> None:
        for line in holder.lines():
            word, _, rest = line.partition(" ")
            if word == READY:
                self.netdev, host, self.network = rest.split(" ")
                self._listen(host)
            elif line.startswith(FAILED):
                self._failed = line.removeprefix(FAILED)
        if self._failed is None and holder.code is not None:
            self._failed = (
                f"The client's network namespace was removed: its process ended with exit code {holder.code}."
            )

    def _listen(self, host: str | None, port: int = 0) -> None:
        if host is None:
            self._failed = "This node has no IPv4 address by which another node could reach it."
            return
        try:
            if isinstance(self._workload, Iperf3):
                with socket.create_server((host, 0)) as probe:
                    port = probe.getsockname()[1]
            elif isinstance(self._workload, Bsp):
                self.sockets = [socket.create_server((host, port))]
                port = self.sockets[0].getsockname()[1]
            elif isinstance(self._workload, Traffic):
                self.sockets, port = open_sockets(self._workload, host)
            if self._netns_process is None:
                self.receipts = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                self.receipts.bind((host, 0))
            self.netdev = self.netdev or Addresses().netdev(socket.inet_aton(host), b"", 0)
        except OSError as error:
            self._failed = f"The server cannot listen on {host}: {error.strerror or error}."
            return
        self.address = join_address(host, port)
        self._is_ready = True


class _Load(Protocol):
    """Interface of a kind of load. poll(): update failed and done, return whether it is ready."""

    @property
    def failed(self) -> str | None: ...
    @property
    def done(self) -> bool: ...
    def poll(self) -> bool: ...
    def has_traffic(self) -> bool: ...
    def begin_window(self) -> None: ...
    def end_window(self) -> None: ...
    def figures(self) -> dict[str, float]: ...
    def end(self) -> None: ...


class Load:
    """Load of one run on this node. Use it once: start, wait until ready, begin_window, end_window, stop.

    Metrics of traffic cover exactly the window; those of Finite workloads the whole run.
    """

    def __init__(self, prepared: Prepared, commands: Mapping[str, Sequence[str]] | None = None) -> None:
        """commands: the arguments of each command that the operator allowed, by name."""
        self._prepared = prepared
        self._commands = commands or {}
        self._load: _Load | None = None
        self._failed: str | None = None
        self._ready = False
        self._measured = False

    def start(self, workload: Workload, role: Role, address: str = "", receipts: Receipts | None = None) -> None:
        """Start the load; failed reports errors. The workload has the same type as the prepared one.

        address: of the server, for a client; else the prepared one is used. receipts: those that the server gives, and
        without which its client on another node sends nothing; None only for commands on this machine's own terminal.
        """
        try:
            address = address or self._prepared.address
            self._load = self._make(workload, role, address, self._part(role, address, receipts))
        except (OSError, ValueError) as error:
            self._failed = f"The load could not be started: {error}"

    def _part(self, role: Role, address: str, receipts: Receipts | None) -> ReceiptsPart | None:
        if receipts is None or role == "alone":
            return None
        if role == "client":
            return Require(split_address(address)[0], receipts.port, receipts.key)
        return None if self._prepared.receipts is None else Give(self._prepared.receipts.fileno(), receipts.key)

    def _make(self, workload: Workload, role: Role, address: str, receipts: ReceiptsPart | None) -> _Load | None:
        match workload:
            case Observe():
                self._ready = True
                return None
            case Classes() | Memory() | Bsp():
                return ProgramLoad(self._start_program(workload, role, address, receipts))
            case Command():
                argv = self._commands.get(workload.name)
                if argv is None:
                    self._failed = f"The configuration of this node allows no command {workload.name!r}."
                    return None
                return ProgramLoad(start_command(workload, argv), custom_metrics=True)
            case Iperf3():
                return Iperf3Load(workload, role, address, self._prepared.network, receipts)
            case _:
                prepared = self._prepared
                return TrafficLoad(workload, role, address, prepared.network, prepared.sockets, receipts)

    def _start_program(
        self, workload: Classes | Memory | Bsp, role: Role, address: str, receipts: ReceiptsPart | None
    ) -> Child:
        if isinstance(workload, Bsp):
            prepared = self._prepared
            return start_jobs(workload, role, address, prepared.network, prepared.sockets, receipts)
        return start_program(workload)

    @property
    def ready(self) -> bool:
        """Return whether the load has started; it stays true after the load has ended."""
        self._poll()
        return self._ready

    @property
    def has_traffic(self) -> bool:
        """Return whether a server has received data from a client on another node; for other loads same as ready."""
        return self.ready and (self._load is None or self._load.has_traffic())

    @property
    def failed(self) -> str | None:
        """Return why the load failed, as a sentence, or None; errors after the measuring window are ignored."""
        self._poll()
        return self._failed

    @property
    def done(self) -> bool:
        """Return whether the load ended by itself without error, as only Finite workloads do."""
        self._poll()
        return self._load is not None and self._load.done

    def begin_window(self) -> None:
        """Start the measuring window of the load."""
        if self._load is not None:
            self._load.begin_window()

    def end_window(self) -> None:
        """End the measuring window of the load."""
        if self._load is not None:
            self._poll()
            self._load.end_window()
        self._measured = True

    def figures(self) -> dict[str, float]:
        """Return metrics by their names in METRICS and command.NAME; empty without a window or result.

        These are measured by the workload itself and replace those of the node's counters.
        """
        return {} if self._load is None else self._load.figures()

    def stop(self) -> None:
        """End the load at once and discard its metrics."""
        load, self._load = self._load, None
        if load is not None:
            load.end()

    def _poll(self) -> None:
        if self._load is None or self._failed is not None:
            return
        self._ready = self._load.poll() or self._ready
        if not self._measured:
            self._failed = self._load.failed


def _server_address(netdevs: Sequence[str]) -> str | None:
    """Return an IPv4 address for the server: of the given netdevs, else of the default route, else of any that is up.

    None if there is only the loopback's.
    """
    by_netdev = psutil.net_if_addrs()
    for one in (address for name in netdevs for address in by_netdev.get(name, ())):
        if one.family == socket.AF_INET:
            return str(one.address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent, suppress(OSError):
        unsent.connect((_ANYWHERE, 9))
        return str(unsent.getsockname()[0])
    states = psutil.net_if_stats()
    for name, addresses in by_netdev.items():
        for one in addresses:
            if one.family == socket.AF_INET and not one.address.startswith("127.") and states[name].isup:
                return str(one.address)
    return None
