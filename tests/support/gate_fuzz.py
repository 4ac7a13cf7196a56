"""Mutated messages of workers of several accounts at a real gate, with bounds so low that all are reached."""

import os
import random
import re
import select
import socket
import tempfile
from collections import Counter, deque
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from unittest import mock

from msgspec import Struct

from coresteer_agent.transport import gate_accounts, gate_server
from coresteer_agent.transport.gate_server import GateServer
from coresteer_core.policies.service_class.policy import ServiceClass, ServiceClasses

MESSAGES = [
    b"enter gold",
    b"enter tin",
    b"enter @10.0.0.7 80",
    b"enter @::ffff:10.0.0.7 443",
    b"leave ok",
    b"leave failed",
]
POLICIES = [
    ServiceClasses([ServiceClass("gold", 90.0), ServiceClass("tin", 50.0)], slots=3),
    ServiceClasses([ServiceClass("gold", 10.0)], window_s=1.0, slots=1),
    ServiceClasses([ServiceClass("tin", 70.0), ServiceClass("iron", 70.0)]),
    None,
]
REPLY = re.compile(
    rb"go|go [a-z]+( [026])?|no such class( any longer)?|no such message|no second request per connection"
)
ACCOUNTS = 4
WORKERS = 60
WAIT_S = 60.0


class Fuzzed(Struct):
    """How many inputs ended how, and what was wrong: replies that are none, and what remained at the end."""

    outcomes: Counter[str]
    wrong: list[str]


def fuzz_gate(inputs: int, seed: int) -> Fuzzed:
    """Send messages, half of them mutated, over connections that open and close, under changing policies."""
    chance = random.Random(seed)  # noqa: S311 - reproducible, not secret
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        mock.patch.multiple(
            gate_accounts,
            HOLD_LIMIT_S=0.004,
            MAX_IDLE=13,
            MAX_WAITING=6,
            FIRST_EXCLUSION_S=0.001,
            LONGEST_EXCLUSION_S=0.004,
        ),
        mock.patch.multiple(gate_server, CHECK_S=0.001, MAX_WORKERS=WORKERS - 10),
    ):
        server = GateServer(Path(folder) / "gate.sock")
        server.start()
        try:
            uids: deque[int] = deque()
            with mock.patch.object(gate_server, "peer_credentials", lambda _: (os.getpid(), uids.popleft())):
                return _Fuzzer(server, chance, uids).run(inputs)
        finally:
            server.stop()


class _Fuzzer:
    """Sends messages. uids: of the accounts of connections that the gate has not accepted yet, in their order.

    The probe has an account of its own, which always finds room.
    """

    def __init__(self, server: GateServer, chance: random.Random, uids: deque[int]) -> None:
        self._server = server
        self._chance = chance
        self._uids = uids
        self._workers: list[socket.socket] = []
        self._probe = self._connected(ACCOUNTS)
        self._found = Fuzzed(Counter(), [])

    def run(self, inputs: int) -> Fuzzed:
        for number in range(inputs):
            if number % 500 == 0:
                self._server.set_policy(self._chance.choice(POLICIES), self._classify)
            while len(self._workers) < WORKERS:
                self._workers.append(self._connected(self._chance.randrange(ACCOUNTS)))
            worker = self._chance.choice(self._workers)
            try:
                worker.send(self._message())
                self._await_gate()
                self._read(worker)
            except OSError:
                self._found.outcomes["connection closed by the gate"] += 1
                self._close(worker)
            if self._chance.random() < 0.02:
                self._found.outcomes["connection closed by the worker"] += 1
                self._close(self._chance.choice(self._workers))
        self._finish()
        return self._found

    def _await_gate(self) -> None:
        """Wait until the gate has handled all earlier messages: until it answers a later one."""
        while True:
            try:
                self._probe.send(b"enter nothing-of-the-kind")
                if self._probe.recv(256):
                    return
            except OSError:
                pass
            self._probe.close()
            self._probe = self._connected(ACCOUNTS)

    def _message(self) -> bytes:
        message = bytearray(self._chance.choice(MESSAGES))
        match self._chance.randrange(8):
            case 0:
                message[self._chance.randrange(len(message))] ^= 1 << self._chance.randrange(8)
            case 1:
                del message[self._chance.randrange(len(message)) :]
            case 2:
                at = self._chance.randrange(len(message))
                message[at:at] = self._chance.randbytes(self._chance.choice([1, 3, 300]))
            case 3:
                message *= 2
        return bytes(message) or b"\0"

    def _read(self, worker: socket.socket) -> None:
        """Read what the gate has answered so far. Raises OSError if it has closed the connection."""
        while select.select([worker], [], [], 0)[0]:
            reply = worker.recv(256)
            if not reply:
                raise ConnectionResetError
            self._found.outcomes[f"answered “{reply.decode(errors='replace')}”"] += 1
            if not REPLY.fullmatch(reply):
                self._found.wrong.append(f"The gate answered {reply!r}.")

    def _classify(self, client: IPv4Address | IPv6Address, port: int, pid: int) -> str | None:
        if port == 443:
            raise LookupError("a table is broken")
        return ["gold", "tin", "lead", None][(int(client) + port) % 4]

    def _connected(self, uid: int) -> socket.socket:
        worker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        worker.settimeout(WAIT_S)
        self._uids.append(uid)
        worker.connect(str(self._server.path))
        return worker

    def _close(self, worker: socket.socket) -> None:
        self._workers.remove(worker)
        worker.close()

    def _finish(self) -> None:
        """Check that nothing remains of the connections once they are closed, and that the gate works."""
        for worker in list(self._workers):
            self._close(worker)
        self._probe.close()
        self._server.set_policy(POLICIES[0])
        honest = self._admitted()  # the gate notices the ends of earlier connections before
        figures = self._server.figures()
        if honest is None:
            self._found.wrong.append("After all, the gate admits nobody.")
        elif [sum(each.active for each in figures), sum(each.waiting for each in figures)] != [1, 0]:
            self._found.wrong.append(f"Requests of closed connections remain: {figures}.")
        if self._server.ended:
            self._found.wrong.append("The gate ended.")

    def _admitted(self) -> socket.socket | None:
        """Return a connection with a slot; its account may be excluded at first."""
        for _ in range(10_000):
            worker = self._connected(self._chance.randrange(ACCOUNTS))
            worker.send(b"enter gold")
            if worker.recv(256) == b"go gold 6":
                return worker
            worker.close()
        return None
