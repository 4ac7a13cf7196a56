"""Echo server of one service class, which forks a child for each request.

    python -IS echo_server.py CONFIG          (JSON, see main; stdin: ends when it is closed)

It is run by its path and imports little, because the cost of a fork grows with the pages of the process: 0.25 ms with
its exit here. The acceptor is a real-time task where that is permitted, so that a request counts as arrived at once,
whatever else runs; its children are not. With a gate, the acceptor requests a slot as soon as a request arrives, which
increments N, and forks when the request is admitted: a waiting child would already have caused most of its page faults.
Connections to the gate are reused; the child admitted over one also releases its slot over it.
"""

import gc
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from time import monotonic, monotonic_ns
from zlib import crc32

REQUEST_BYTES = 64
WAIT_BYTES = 8
ANSWER_BYTES = WAIT_BYTES + 4 + REQUEST_BYTES
"""An answer: ns from accept until a CPU worked on the request, its checksum, the request."""
WORK = bytes(range(256)) * 64
WORK_ROUNDS = 64
"""Data whose CRC-32 is the work of a request: 1 MiB, about 0.3 ms."""
CHILD_LIFE_S = 60
_RETRY_S = 0.1
"""Delay before connecting again to a gate that was unreachable."""
_REAP_MS = 50


class GatePool:
    """Pool of connections to the gate, each used by one child at a time."""

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._enter = b"enter " + name.encode()
        self._free: list[socket.socket] = []
        self._retry_at = 0.0

    def enter(self) -> socket.socket | None:
        """Request a slot; return the connection on which the gate replies, None if there is no gate."""
        if monotonic() < self._retry_at:
            return None
        connection = None
        try:
            if self._free:
                connection = self._free.pop()
            else:
                connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                connection.connect(self._path)
            connection.send(self._enter)
        except OSError:
            for gone in (connection, *self._free):
                if gone is not None:
                    gone.close()
            self._free.clear()
            self._retry_at = monotonic() + _RETRY_S
            return None
        return connection

    def release(self, connection: socket.socket, *, left: bool) -> None:
        """Return a connection after its child ended. left: the child released its slot; else the connection closes."""
        if left:
            self._free.append(connection)
        else:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # close alone has no effect while other children have it open
            connection.close()


def answer(connection: socket.socket, gate: socket.socket | None, arrived_ns: int, *, is_killed: bool) -> None:
    """Do the work of a request in a child and answer it. is_killed: the child kills itself before it answers."""
    waited_ns = monotonic_ns() - arrived_ns
    request = connection.recv(REQUEST_BYTES, socket.MSG_WAITALL)
    checksum = crc32(request)
    for _ in range(WORK_ROUNDS):
        checksum = crc32(WORK, checksum)
    if is_killed:
        os.kill(os.getpid(), signal.SIGKILL)
    connection.sendall(waited_ns.to_bytes(WAIT_BYTES) + checksum.to_bytes(4) + request)
    if gate is not None:
        try:  # noqa: SIM105 - suppress would cost the child page faults, of its own copies
            gate.send(b"leave ok")
        except OSError:
            pass


class Server:
    """Accepts connections and forks a child for each request."""

    def __init__(
        self, *, listener: int, counts: int, offset: int, nice: int, killed_request: int | None, gate: GatePool | None
    ) -> None:
        """listener, counts: descriptors of a listening socket and of a file. killed_request: number, from 1, or None.

        At offset in the file are the requests that arrived, ended, and succeeded, as little-endian 64-bit numbers.
        """
        self._listener = socket.socket(fileno=listener)
        self._counts = counts
        self._offset = offset
        self._nice = nice
        self._killed_request = killed_request
        self._gate = gate
        self._children: dict[int, socket.socket | None] = {}
        self._waiting: dict[int, tuple[socket.socket, socket.socket, int, int]] = {}
        """By the descriptor of the gate's answer: the request's connection, the gate's, its number and arrival time."""
        self._poll = select.poll()
        self._arrived = self._ended = self._completed = 0

    def run(self) -> None:
        """Serve requests until stdin is closed."""
        listener = self._listener.fileno()
        self._poll.register(listener, select.POLLIN)
        self._poll.register(0, select.POLLHUP)
        ended = False
        while not ended:
            for descriptor, _ in self._poll.poll(_REAP_MS if self._children else None):
                if descriptor == listener:
                    self._accept()
                elif descriptor == 0:
                    ended = True
                else:
                    self._admit(descriptor)
            self._reap(os.WNOHANG)
        for child in self._children:
            os.kill(child, signal.SIGKILL)
        self._reap(0)

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        arrived_ns = monotonic_ns()
        self._arrived += 1
        gate = self._gate.enter() if self._gate else None
        if gate is None:
            self._fork(connection, None, self._arrived, arrived_ns)
        else:
            self._waiting[gate.fileno()] = (connection, gate, self._arrived, arrived_ns)
            self._poll.register(gate, select.POLLIN)
        self._publish_counts()

    def _admit(self, descriptor: int) -> None:
        """Start a request that the gate admitted, or whose gate has ended or does not know its class."""
        self._poll.unregister(descriptor)
        connection, gate, number, arrived_ns = self._waiting.pop(descriptor)
        with suppress(OSError):
            gate.recv(64)
        self._fork(connection, gate, number, arrived_ns)

    def _fork(self, connection: socket.socket, gate: socket.socket | None, number: int, arrived_ns: int) -> None:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                signal.alarm(CHILD_LIFE_S)
                answer(connection, gate, arrived_ns, is_killed=number == self._killed_request)
                status = 0
            finally:
                os._exit(status)
        if self._nice:
            os.setpriority(os.PRIO_PROCESS, child, self._nice)
        connection.close()
        self._children[child] = gate

    def _reap(self, flags: int) -> None:
        while self._children:
            child, status = os.waitpid(-1, flags)
            if child == 0:
                break
            gate = self._children.pop(child)
            if gate is not None and self._gate is not None:
                self._gate.release(gate, left=status == 0)
            self._ended += 1
            self._completed += status == 0
        self._publish_counts()

    def _publish_counts(self) -> None:
        counts = (self._arrived, self._ended, self._completed)
        os.pwrite(self._counts, b"".join(count.to_bytes(8, "little") for count in counts), self._offset)


def main() -> None:
    """Run the echo server: move to its CPU and cgroup, report readiness, serve, and move back.

    CONFIG: cpu; cgroup to run in, or null, and home, the one to return to; gate: a path or null; name: of the class;
    the rest: see Server. Writes 1 to standard output when it is ready as a real-time task, 0 when it is ready without
    being permitted to be one.
    """
    config = json.loads(sys.argv[1])
    gate = GatePool(config["gate"], config["name"]) if config["gate"] else None
    os.sched_setaffinity(0, {config["cpu"]})
    if config["cgroup"]:
        move_to(config["cgroup"])
    try:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
            realtime = b"1"
        except PermissionError:
            realtime = b"0"
        own = {name: config[name] for name in ("listener", "counts", "offset", "nice", "killed_request")}
        server = Server(**own, gate=gate)
        gc.freeze()
        gc.disable()
        os.write(1, realtime)
        server.run()
    finally:
        if config["cgroup"]:
            move_to(config["home"])
            remove_cgroups(os.path.dirname(config["cgroup"]))  # noqa: PTH120 - as in move_to


def move_to(cgroup: str) -> None:
    """Move this process to a cgroup. Raises OSError."""
    with open(cgroup + "/cgroup.procs", "w") as procs:  # noqa: PTH123 - pathlib would make each fork more expensive
        procs.write("0")


def remove_cgroups(parent: str) -> None:
    """Remove all empty cgroups below a parent, because their creator may have been killed."""
    with suppress(OSError):
        for entry in os.scandir(parent):
            if entry.is_dir():
                with suppress(OSError):
                    os.rmdir(entry.path)  # noqa: PTH106 - as in move_to
        os.rmdir(parent)  # noqa: PTH106 - as in move_to


if __name__ == "__main__":
    main()
