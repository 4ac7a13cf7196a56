"""The load of an experiment's runs on this node: what they share, and each run's processes.

Nothing here waits: who runs an experiment looks at ready, failed and done again and again. Everything ends with the
process that started it, however that ends. Both classes are for the main thread (see child.Child).
"""

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import psutil

from coresteer_agent.linux.addresses import Addresses
from coresteer_agent.linux.netns import HolderOrders
from coresteer_agent.workloads.child import Child
from coresteer_agent.workloads.iperf3 import Iperf3Load
from coresteer_agent.workloads.program_load import ProgramLoad, classes_program, command_program
from coresteer_agent.workloads.traffic import FAILED, READY, join_address, open_sockets
from coresteer_agent.workloads.traffic_load import GeneratedLoad
from coresteer_core.experiments.model import Classes, Command, Iperf3, Observe, Role, Traffic, Workload

_ANYWHERE = "192.0.2.1"
"""Of the range for documentation: no packet is sent there, it only asks for the way out."""


class Prepared:
    """What the runs of an experiment share here: the server's address and, alone, the client's network namespace.

    ready: the rest may be used. failed: why it never will be, as a sentence. address: of the server as HOST:PORT, and
    netdev, on which it is reached; empty without a server here. network: the client's namespace as a path, empty for
    this one. sockets: the server's.
    """

    def __init__(self, workload: Workload, role: Role, wires: Sequence[str] = ()) -> None:
        """wires: the netdevs by which another node's traffic should come, the best first."""
        self.address = ""
        self.netdev = ""
        self.network = ""
        self.sockets: list[socket.socket] = []
        self._failed: str | None = None
        self._workload = workload
        self._holder: Child | None = None
        self._is_ready = False
        if not isinstance(workload, Traffic) or role == "client":
            self._is_ready = True
        elif role == "alone":
            self._holder = Child("linux.netns", HolderOrders(os.getpid()))
        else:
            self._listen(_own_address(wires))

    @property
    def ready(self) -> bool:
        """Also looks whether it has become so."""
        return self.failed is None and self._is_ready

    @property
    def failed(self) -> str | None:
        """Also looks whether the namespace is still there."""
        if self._holder is not None and self._failed is None:
            self._look(self._holder)
        return self._failed

    def close(self) -> None:
        """Take it all away. Again does nothing."""
        self._is_ready = False
        for one in self.sockets:
            one.close()
        self.sockets = []
        if self._holder is not None:
            self._holder.end()
            self._holder = None

    def _look(self, holder: Child) -> None:
        for line in holder.lines():
            word, _, rest = line.partition(" ")
            if word == READY:
                self.netdev, host, self.network = rest.split(" ")
                self._listen(host)
            elif line.startswith(FAILED):
                self._failed = line.removeprefix(FAILED)
        if self._failed is None and holder.code is not None:
            self._failed = f"The client's network namespace is gone: its process ended with {holder.code}."

    def _listen(self, host: str | None) -> None:
        if host is None:
            self._failed = "This node has no IPv4 address at which another one could reach it."
            return
        try:
            if isinstance(self._workload, Iperf3):
                with socket.create_server((host, 0)) as tried:
                    port = tried.getsockname()[1]
            elif isinstance(self._workload, Traffic):
                self.sockets, port = open_sockets(self._workload, host)
            self.netdev = self.netdev or Addresses().netdev(socket.inet_aton(host), b"", 0)
        except OSError as error:
            self._failed = f"The server cannot listen on {host}: {error.strerror or error}."
            return
        self.address = join_address(host, port)
        self._is_ready = True


class _Load(Protocol):
    """One kind of load. look(): whether it is ready; afterwards failed and done are of now. flows(): as Load.flows."""

    @property
    def failed(self) -> str | None: ...
    @property
    def done(self) -> bool: ...
    def look(self) -> bool: ...
    def flows(self) -> bool: ...
    def begin_window(self) -> None: ...
    def end_window(self) -> None: ...
    def figures(self) -> dict[str, float]: ...
    def end(self) -> None: ...


class Load:
    """One run's load on this node. Use it once: start, until ready; begin_window, end_window; stop at any time.

    Figures of traffic cover exactly the window; those of Classes and Command, whose end is done, all of the run.
    """

    def __init__(self, prepared: Prepared, commands: Mapping[str, Sequence[str]] | None = None) -> None:
        """commands: what the operator allowed, by name, each as its arguments."""
        self._prepared = prepared
        self._commands = commands or {}
        self._load: _Load | None = None
        self._failed: str | None = None
        self._ready = False
        self._measured = False

    def start(self, workload: Workload, role: Role, address: str = "") -> None:
        """address: of the server, for a client; otherwise that of what is prepared. What goes wrong is told as failed.

        A traffic workload is of the same type as what was prepared.
        """
        try:
            self._load = self._make(workload, role, address or self._prepared.address)
        except (OSError, ValueError) as error:
            self._failed = f"The load could not be started: {error}"

    def _make(self, workload: Workload, role: Role, address: str) -> _Load | None:
        match workload:
            case Observe():
                self._ready = True
                return None
            case Classes():
                return ProgramLoad(classes_program(workload))
            case Command():
                argv = self._commands.get(workload.name)
                if argv is None:
                    self._failed = f"This node's configuration allows no command {workload.name!r}."
                    return None
                return ProgramLoad(command_program(workload, argv), own_names=True)
            case Iperf3():
                return Iperf3Load(workload, role, address, self._prepared.network)
            case _:
                return GeneratedLoad(workload, role, address, self._prepared.network, self._prepared.sockets)

    @property
    def ready(self) -> bool:
        """The load is on. Once it was, it stays so; a load that ends is failed or done."""
        self._look()
        return self._ready

    @property
    def flows(self) -> bool:
        """Something has arrived at a server whose client is elsewhere; any other load flows once it is ready."""
        return self.ready and (self._load is None or self._load.flows())

    @property
    def failed(self) -> str | None:
        """Why there is no load, or no longer, as a sentence. What comes after the window is no failure."""
        self._look()
        return self._failed

    @property
    def done(self) -> bool:
        """It ended by itself and well, which only Classes and Command do."""
        self._look()
        return self._load is not None and self._load.done

    def begin_window(self) -> None:
        """What is measured begins now."""
        if self._load is not None:
            self._load.begin_window()

    def end_window(self) -> None:
        """It ends now."""
        if self._load is not None:
            self._look()
            self._load.end_window()
        self._measured = True

    def figures(self) -> dict[str, float]:
        """By the names of METRICS and command.NAME, none without a window or result.

        Only what the workload knows itself; where the node's counters know it too, this is what the workload got.
        """
        return {} if self._load is None else self._load.figures()

    def stop(self) -> None:
        """End the load at once, and with it its figures."""
        load, self._load = self._load, None
        if load is not None:
            load.end()

    def _look(self) -> None:
        if self._load is None or self._failed is not None:
            return
        self._ready = self._load.look() or self._ready
        if not self._measured:
            self._failed = self._load.failed


def _own_address(wires: Sequence[str]) -> str | None:
    """The first of a wire, else that of the default route, else the first of a netdev that is up.

    None without any but the loopback's.
    """
    told = psutil.net_if_addrs()
    for one in (address for name in wires for address in told.get(name, ())):
        if one.family == socket.AF_INET:
            return str(one.address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent, suppress(OSError):
        unsent.connect((_ANYWHERE, 9))
        return str(unsent.getsockname()[0])
    states = psutil.net_if_stats()
    for name, addresses in told.items():
        for one in addresses:
            if one.family == socket.AF_INET and not one.address.startswith("127.") and states[name].isup:
                return str(one.address)
    return None
