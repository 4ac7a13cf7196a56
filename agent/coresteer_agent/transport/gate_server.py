"""Server of the gate: a local socket at which workers request admission of requests (docs/GATE.md).

It has its own thread. If that fails for any reason, its connections close, and workers go on without the gate.
"""

import errno
import logging
import os
import resource
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from coresteer_agent.transport.gate_accounts import HOLD_LIMIT_S, Account, Accounts, peer_credentials
from coresteer_core.node.service_classes import ClassFigures
from coresteer_core.policies.service_class.gate import Gate
from coresteer_core.policies.service_class.policy import ServiceClasses

log = logging.getLogger("coresteer.gate")

Address: TypeAlias = IPv4Address | IPv6Address
Classify: TypeAlias = Callable[[Address, int, int], str | None]
"""Returns the class of a request by client address, local port and server PID; None for none."""

MAX_WORKERS = 4096
"""Maximum number of connections; never more than half of the agent's file descriptors."""

CHECK_S = 0.5
"""Period of the check for requests that hold their slot for too long."""

BACKLOG = 1024
MAX_MESSAGE_BYTES = 256

PRIORITIES = (6, 0, 2)
"""Socket priorities of the first, second and last third of the classes: the bands 0, 1 and 2 of pfifo_fast and prio.

From linux/pkt_sched.h (TC_PRIO_INTERACTIVE, BESTEFFORT, BULK); values up to 6 need no privilege.
"""

_LEAVES = frozenset({b"leave ok", b"leave failed"})


class GateError(Exception):
    """Raised if the gate's socket cannot be opened; the message is a sentence."""


class _Worker(Struct):
    """A client's connection. pid, account: of the process that opened it. request: its last ``enter`` message."""

    connection: socket.socket
    pid: int
    account: Account
    request: bytes = b""


class GateServer:
    """Serves the gate at a path; without a policy it admits every request. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._gate: Gate | None = None
        self._by_cpus = False
        """The concurrency limit is the number of CPUs that the first workers may use."""
        self._first: set[int] = set()
        """PIDs of the workers whose CPUs were counted, one of each account that sent a request.

        None can lower the limit for the others.
        """
        self._classify: Classify = _no_class
        self._replies: dict[str, bytes] = {}
        self._class_by_message: dict[bytes, str] = {}
        """Class by the ``enter`` message that names it."""
        self._workers: dict[int, _Worker] = {}
        self._accounts = Accounts(MAX_WORKERS)
        self._checked_s = 0.0
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
                for worker in list(self._workers):
                    if worker in self._workers:
                        self._rest(worker)
                return
            targets = [service_class.target for service_class in policy.classes]
            by_target = sorted(targets, key=lambda target: -target.target_percent)
            self._replies = {}
            for rank, target in enumerate(by_target):
                priority = f" {PRIORITIES[rank * 3 // len(targets)]}" if enforced else ""
                self._replies[target.name] = f"go {target.name}{priority}".encode()
            self._class_by_message = {f"enter {name}".encode(): name for name in self._replies}
            self._first = self._first_pids()
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
                self._rest(worker)
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
        waiting = self._gate is not None and any(account.waiting for account in self._accounts)
        events = self._epoll.poll(CHECK_S if waiting else None, maxevents=64)
        with self._lock:
            if self._gate is not None and waiting and (now_s := time.monotonic()) >= self._checked_s + CHECK_S:
                self._checked_s = now_s
                self._release_overdue(self._gate, now_s)
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
            self._leave(worker, ok=message == b"leave ok")
            self._rest(worker)
        else:
            if message:
                self._reply(worker, b"no such message")
            self._drop(worker)

    def _enter(self, worker: int, message: bytes) -> None:
        gate = self._gate
        state, now_s = self._workers[worker], time.monotonic()
        if not state.account.asked:
            state.account.asked = True
            self._count_cpus()
        if gate is None or (worker in state.account.idle and not state.account.may_enter(now_s)):
            self._reply(worker, b"go")
            return
        state.request = message
        name = self._class_of(worker)
        if name is None:
            self._reply(worker, b"no such class")
            return
        try:
            admitted = gate.enter(worker, name, now_s, state.account.uid)
        except ValueError:
            self._reply(worker, b"no second request per connection")
            self._drop(worker)
        else:
            state.account.wait(worker)
            self._admit(admitted)

    def _leave(self, worker: int, *, ok: bool) -> None:
        """Release a worker's slot or its place in the queue."""
        if self._gate is not None and (admitted := self._gate.leave(worker, time.monotonic(), ok=ok)):
            self._admit(admitted)

    def _rest(self, worker: int) -> None:
        """Note that a worker has no request."""
        surplus = self._workers[worker].account.rest(worker)
        if surplus is not None:
            self._drop(surplus)

    def _release_overdue(self, gate: Gate, now_s: float) -> None:
        """Release slots that are held for too long while requests of other accounts wait."""
        for account, overdue in self._accounts.overdue(now_s):
            excluded = 2 * len(overdue) >= gate.slots
            if excluded:
                pause_s = account.exclude(now_s)
                self._warn_once(
                    f"An account held half of the slots for more than {HOLD_LIMIT_S:g} s while others waited",
                    f"Requests of uid {account.uid} start without a slot for {pause_s:g} s, and longer the next time.",
                )
                for worker in list(account.waiting):
                    self._reply(worker, b"go")
                    self._leave(worker, ok=False)
                    self._rest(worker)
            for worker in list(account.active) if excluded else overdue:
                self._leave(worker, ok=False)
                self._rest(worker)

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
        gate, now_s = self._gate, time.monotonic()
        for worker in workers:
            name = None if gate is None else gate.class_of(worker)
            self._workers[worker].account.admit(worker, now_s)
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
        connection.setblocking(False)
        pid, uid = peer_credentials(connection)
        account = self._accounts.opened(uid, pid, time.monotonic())
        if len(self._workers) >= self._most:
            self._warn_once("The gate refuses connections", f"It already has the maximum of {self._most} connections.")
            if (surplus := self._accounts.to_make_room(account)) is None:
                connection.close()
                return
            self._drop(surplus)
        self._workers[connection.fileno()] = _Worker(connection, pid, account)
        self._epoll.register(connection, select.EPOLLIN)
        self._rest(connection.fileno())

    def _drop(self, worker: int) -> None:
        state = self._workers[worker]
        self._leave(worker, ok=False)
        state.account.remove(worker)
        del self._workers[worker]
        state.connection.close()
        if state.pid == state.account.pid and len(state.account):
            state.account.pid = next(each.pid for each in self._workers.values() if each.account is state.account)
        self._count_cpus()

    def _count_cpus(self) -> None:
        """Count CPUs again if other workers are the first ones of their accounts."""
        first = self._first_pids()
        if first != self._first:
            self._first = first
            if self._by_cpus and self._gate is not None and first:
                self._admit(self._gate.set_slots(self._cpus(), time.monotonic()))

    def _first_pids(self) -> set[int]:
        return {account.pid for account in self._accounts if account.asked and len(account)}

    def _cpus(self) -> int:
        """Return the number of CPUs that the first worker of an account may use; all CPUs if that is unknown."""
        return max((_cpus_of(pid) for pid in self._first), default=os.cpu_count() or 1)

    def _close(self) -> None:
        self._epoll.close()
        with suppress(OSError):
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        self._listener.close()
        for worker in self._workers.values():
            worker.connection.close()
        self._workers.clear()
        self._accounts = Accounts(MAX_WORKERS)
        self._gate = None

    def _warn_once(self, what: str, why: object) -> None:
        if what not in self._warned:
            self._warned.add(what)
            log.warning("%s: %s (logged once)", what, why)


def _cpus_of(pid: int) -> int:
    try:
        return len(os.sched_getaffinity(pid))
    except OSError:
        return os.cpu_count() or 1


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
