"""Server of the gate: a local socket at which workers request admission of requests (docs/GATE.md).

It has its own thread. If that fails for any reason, its connections close, and workers go on without the gate.
"""

import errno
import logging
import os
import resource
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.policies.service_class.gate import Gate
from coresteer_core.policies.service_class.policy import ServiceClasses

log = logging.getLogger("coresteer.gate")

Address: TypeAlias = IPv4Address | IPv6Address
Classify: TypeAlias = Callable[[Address, int, int], str | None]
"""Returns the class of a request by client address, local port and server PID; None for none."""

MAX_WORKERS = 4096
"""Maximum number of connections; never more than half of the agent's file descriptors."""

BACKLOG = 1024
MAX_MESSAGE_BYTES = 256

PRIORITIES = (6, 0, 2)
"""Socket priorities of the first, second and last third of the classes: the bands 0, 1 and 2 of pfifo_fast and prio.

From linux/pkt_sched.h (TC_PRIO_INTERACTIVE, BESTEFFORT, BULK); values up to 6 need no privilege.
"""

_LEAVES = frozenset({b"leave ok", b"leave failed"})
_CREDENTIALS = struct.Struct("3i")
"""struct ucred: pid, uid, gid (unix(7), SO_PEERCRED)."""


class GateError(Exception):
    """Raised if the gate's socket cannot be opened; the message is a sentence."""


class _Worker(Struct):
    """A client's connection. pid: of the process that opened it. request: its last ``enter`` message."""

    connection: socket.socket
    pid: int
    request: bytes = b""


class GateServer:
    """Serves the gate at a path; without a policy it admits every request. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._gate: Gate | None = None
        self._by_cpus = False
        """The concurrency limit is the number of CPUs that the first worker may use."""
        self._first: int | None = None
        """PID of the worker whose CPUs were counted."""
        self._classify: Classify = _no_class
        self._replies: dict[str, bytes] = {}
        self._class_by_message: dict[bytes, str] = {}
        """Class by the ``enter`` message that names it."""
        self._workers: dict[int, _Worker] = {}
        self._thread: threading.Thread | None = None
        self._warned: set[str] = set()

    def start(self) -> None:
        """Open the gate's socket and serve it; call set_policy() afterwards. Raises GateError."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = MAX_WORKERS if soft == resource.RLIM_INFINITY else min(MAX_WORKERS, soft // 2)
        self._listener, self._inode = _listen(self.path)
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._stopping = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll = select.epoll()
        self._epoll.register(self._listener, select.EPOLLIN)
        self._epoll.register(self._stopping, select.EPOLLIN)
        self._thread = threading.Thread(target=self._serve, name="gate", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Return whether an internal error ended the server; then stop() it and start another one."""
        return self._thread is not None and not self._thread.is_alive()

    def stop(self) -> None:
        """Close the gate; waiting workers continue without a slot."""
        if self._thread is None:
            return
        os.eventfd_write(self._stopping, 1)
        self._thread.join()
        self._thread = None
        for descriptor in (self._stopping, self._spare):
            os.close(descriptor)

    def set_policy(
        self, policy: ServiceClasses | None, classify: Classify | None = None, *, enforced: bool = True
    ) -> None:
        """Replace the gate's policy; None: admit every request. Waiting requests are classified again.

        Not enforced: every request is admitted at once, without a socket priority, and counted.
        """
        with self._lock:
            before, self._gate = self._gate, None
            self._by_cpus = policy is not None and enforced and not policy.slots
            self._classify = classify or _no_class
            if policy is None:
                for worker, _ in before.waiting() if before is not None else []:
                    self._reply(worker, b"go")
                return
            targets = [service_class.target for service_class in policy.classes]
            by_target = sorted(targets, key=lambda target: -target.target_percent)
            self._replies = {}
            for rank, target in enumerate(by_target):
                priority = f" {PRIORITIES[rank * 3 // len(targets)]}" if enforced else ""
                self._replies[target.name] = f"go {target.name}{priority}".encode()
            self._class_by_message = {f"enter {name}".encode(): name for name in self._replies}
            self._first = self._first_pid()
            slots = policy.slots or self._cpus() if enforced else MAX_WORKERS
            if before is None:
                self._gate = Gate(targets, slots=slots, window_s=policy.window_s)
                return
            self._gate = before
            admitted, removed = before.replace_classes(
                targets, slots=slots, window_s=policy.window_s, time_s=time.monotonic(), classify=self._class_of
            )
            for worker in removed:
                self._reply(worker, b"no such class any longer")
            self._admit(admitted)

    def figures(self, *, percentiles: bool = True) -> list[ClassFigures]:
        """Return each class's attainment, in order of precedence; empty without a policy.

        percentiles: include those of response times, which delays workers by a millisecond.
        """
        with self._lock:
            return [] if self._gate is None else self._gate.figures(time.monotonic(), percentiles=percentiles)

    def _serve(self) -> None:
        try:
            while self._poll():
                pass
        except Exception:
            log.exception("An internal error closes the gate; workers continue without it.")
        finally:
            with self._lock:
                self._close()

    def _poll(self) -> bool:
        events = self._epoll.poll(maxevents=64)
        with self._lock:
            for descriptor, _ in events:
                if descriptor in self._workers:
                    self._receive(descriptor)
                elif descriptor == self._stopping:
                    return False
                elif descriptor == self._listener.fileno():
                    self._accept()
        return True

    def _receive(self, worker: int) -> None:
        try:
            message = os.read(worker, MAX_MESSAGE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if message.startswith(b"enter "):
            self._enter(worker, message)
        elif message in _LEAVES:
            if self._gate is not None and (
                admitted := self._gate.leave(worker, time.monotonic(), ok=message == b"leave ok")
            ):
                self._admit(admitted)
        else:
            if message:
                self._reply(worker, b"no such message")
            self._drop(worker)

    def _enter(self, worker: int, message: bytes) -> None:
        gate = self._gate
        if gate is None:
            self._reply(worker, b"go")
            return
        self._workers[worker].request = message
        name = self._class_of(worker)
        if name is None:
            self._reply(worker, b"no such class")
            return
        try:
            admitted = gate.enter(worker, name, time.monotonic())
        except ValueError:
            self._reply(worker, b"no second request per connection")
            self._drop(worker)
        else:
            self._admit(admitted)

    def _class_of(self, worker: int) -> str | None:
        """Return the class that a worker's message requests; None for an unknown one."""
        state = self._workers[worker]
        if (name := self._class_by_message.get(state.request)) is not None:
            return name
        try:
            requested = state.request[6:].decode("ascii")
        except UnicodeDecodeError:
            return None
        address, _, port = requested[1:].partition(" ")
        if requested[:1] != "@" or not port.isdigit():
            return None
        try:
            client = ip_address(address)
            name = self._classify(getattr(client, "ipv4_mapped", None) or client, int(port), state.pid)
        except ValueError:
            return None
        except Exception as error:  # the function parses untrusted input; other workers are not affected
            self._warn_once("A request could not be classified", error)
            return None
        return name if name in self._replies else None

    def _admit(self, workers: list[int]) -> None:
        gate = self._gate
        for worker in workers:
            name = None if gate is None else gate.class_of(worker)
            self._reply(worker, b"go" if name is None else self._replies[name])

    def _reply(self, worker: int, reply: bytes) -> None:
        """Send a reply to a worker; one that has ended is detected at its next event."""
        try:
            os.write(worker, reply)
        except OSError:
            return

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            self._warn_once("The gate refuses connections", error)
            os.close(
                self._spare
            )  # frees the spare descriptor, to accept and close the connection; otherwise epoll reports it again
            with suppress(OSError):
                self._listener.accept()[0].close()
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            return
        if len(self._workers) >= self._most:
            self._warn_once("The gate refuses connections", f"It already has the maximum of {self._most} connections.")
            connection.close()
            return
        connection.setblocking(False)
        pid, _, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        self._workers[connection.fileno()] = _Worker(connection, pid)
        self._epoll.register(connection, select.EPOLLIN)
        self._count_cpus()

    def _drop(self, worker: int) -> None:
        admitted = [] if self._gate is None else self._gate.leave(worker, time.monotonic(), ok=False)
        self._workers.pop(worker).connection.close()
        self._admit(admitted)
        self._count_cpus()

    def _count_cpus(self) -> None:
        """Count CPUs again if another worker is the first."""
        first = self._first_pid()
        if first != self._first:
            self._first = first
            if self._by_cpus and self._gate is not None and first is not None:
                self._admit(self._gate.set_slots(self._cpus(), time.monotonic()))

    def _first_pid(self) -> int | None:
        first = next(iter(self._workers.values()), None)
        return None if first is None else first.pid

    def _cpus(self) -> int:
        """Return the number of CPUs that the first worker may use; all CPUs if that is unknown."""
        try:
            return len(os.sched_getaffinity(self._first)) if self._first else os.cpu_count() or 1
        except OSError:
            return os.cpu_count() or 1

    def _close(self) -> None:
        self._epoll.close()
        with suppress(OSError):
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        self._listener.close()
        for worker in self._workers.values():
            worker.connection.close()
        self._workers.clear()
        self._gate = None

    def _warn_once(self, what: str, why: object) -> None:
        if what not in self._warned:
            self._warned.add(what)
            log.warning("%s: %s (logged once)", what, why)


def _no_class(_client: Address, _local_port: int, _pid: int) -> None:
    return None


def _listen(path: Path) -> tuple[socket.socket, int]:
    """Return a listening socket for every account, and its inode; replace the socket of an agent that has ended."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    ours = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
            path.parent.chmod(0o755)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as other:
            if other.connect_ex(str(path)) in (0, errno.EAGAIN):
                raise GateError(f"Another agent serves the gate at {path}; stop it first.")
        ours.unlink(missing_ok=True)
        listener.bind(str(ours))
        ours.chmod(0o666)
        listener.listen(BACKLOG)
        inode = ours.stat().st_ino
        ours.rename(path)
    except OSError as error:
        listener.close()
        raise GateError(f"The gate cannot be opened at {path}: {error.strerror or error}.") from error
    except GateError:
        listener.close()
        raise
    return listener, inode
