"""The gate's door: a local socket where workers ask to go in and tell when they leave (docs/GATE.md).

A thread of its own. Whatever happens to it, its connections close, and workers take that as leave to go straight on.
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
"""The class of a request from a client's address at a local port, served by the process with a PID; None: of none."""

MAX_WORKERS = 4096
"""Connections at once; and never more than half of the file descriptors that the agent may have."""

BACKLOG = 1024
LONGEST_MESSAGE = 256

PRIORITIES = (6, 0, 2)
"""Socket priorities of the first, second and last third of the classes: the bands 0, 1 and 2 of pfifo_fast and prio.

From linux/pkt_sched.h (TC_PRIO_INTERACTIVE, BESTEFFORT, BULK); up to 6 a process needs no right for.
"""

_LEAVES = frozenset({b"leave ok", b"leave failed"})
_CREDENTIALS = struct.Struct("3i")
"""struct ucred: pid, uid, gid (unix(7), SO_PEERCRED)."""


class GateError(Exception):
    """The gate cannot be opened; the message is a sentence for a person."""


class _Worker(Struct):
    """connection: whoever asks over it. pid: who opened it. asked: its last enter."""

    connection: socket.socket
    pid: int
    asked: bytes = b""


class GateServer:
    """A gate at a path. Without a policy everybody goes straight in. All methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._gate: Gate | None = None
        self._by_cpus = False
        """As many slots as the first of the workers may use CPUs."""
        self._first: int | None = None
        """Its PID when they were counted."""
        self._classify: Classify = _no_class
        self._replies: dict[str, bytes] = {}
        self._asks: dict[bytes, str] = {}
        """Class by the message that asks for it by name."""
        self._workers: dict[int, _Worker] = {}
        self._thread: threading.Thread | None = None
        self._complained: set[str] = set()

    def start(self) -> None:
        """Open the door; set_policy comes after. Raises GateError when the socket cannot be had."""
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
        """It was closed by a mistake of its own: stop() it, and start another one."""
        return self._thread is not None and not self._thread.is_alive()

    def stop(self) -> None:
        """Close it; who waits goes straight on."""
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
        """Grade by this from now on; None: let everybody in. Who waits is graded again, and is let in as that says.

        Not enforced: everybody goes in at once, without a socket priority, and is counted.
        """
        with self._lock:
            before, self._gate = self._gate, None
            self._by_cpus = policy is not None and enforced and not policy.slots
            self._classify = classify or _no_class
            if policy is None:
                for worker, _ in before.waiting() if before is not None else []:
                    self._tell(worker, b"go")
                return
            targets = [graded.target for graded in policy.classes]
            by_target = sorted(targets, key=lambda target: -target.target_percent)
            self._replies = {}
            for rank, target in enumerate(by_target):
                priority = f" {PRIORITIES[rank * 3 // len(targets)]}" if enforced else ""
                self._replies[target.name] = f"go {target.name}{priority}".encode()
            self._asks = {f"enter {name}".encode(): name for name in self._replies}
            self._first = self._first_pid()
            slots = policy.slots or self._cpus() if enforced else MAX_WORKERS
            if before is None:
                self._gate = Gate(targets, slots=slots, window_s=policy.window_s)
                return
            self._gate = before
            let_in, gone = before.change(
                targets, slots=slots, window_s=policy.window_s, time_s=time.monotonic(), classify=self._grade
            )
            for worker in gone:
                self._tell(worker, b"no class any more")
            self._let_in(let_in)

    def figures(self, *, percentiles: bool = True) -> list[ClassFigures]:
        """How far the classes get what they were promised, in order of precedence; none without a policy.

        percentiles: of the response times too, for which workers wait a millisecond longer.
        """
        with self._lock:
            return [] if self._gate is None else self._gate.figures(time.monotonic(), percentiles=percentiles)

    def _serve(self) -> None:
        try:
            while self._round():
                pass
        except Exception:
            log.exception("The gate is closed by a mistake of its own; workers go straight on.")
        finally:
            with self._lock:
                self._close()

    def _round(self) -> bool:
        events = self._epoll.poll(maxevents=64)
        with self._lock:
            for descriptor, _ in events:
                if descriptor in self._workers:
                    self._hear(descriptor)
                elif descriptor == self._stopping:
                    return False
                elif descriptor == self._listener.fileno():
                    self._accept()
        return True

    def _hear(self, worker: int) -> None:
        try:
            message = os.read(worker, LONGEST_MESSAGE)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if message.startswith(b"enter "):
            self._enter(worker, message)
        elif message in _LEAVES:
            if self._gate is not None and (
                let_in := self._gate.leave(worker, time.monotonic(), ok=message == b"leave ok")
            ):
                self._let_in(let_in)
        else:
            if message:
                self._tell(worker, b"no message of this kind")
            self._drop(worker)

    def _enter(self, worker: int, message: bytes) -> None:
        gate = self._gate
        if gate is None:
            self._tell(worker, b"go")
            return
        self._workers[worker].asked = message
        name = self._grade(worker)
        if name is None:
            self._tell(worker, b"no such class")
            return
        try:
            let_in = gate.enter(worker, name, time.monotonic())
        except ValueError:
            self._tell(worker, b"no second request over one connection")
            self._drop(worker)
        else:
            self._let_in(let_in)

    def _grade(self, worker: int) -> str | None:
        """The class that a worker asks for; None where there is none such."""
        its = self._workers[worker]
        if (name := self._asks.get(its.asked)) is not None:
            return name
        try:
            asked = its.asked[6:].decode("ascii")
        except UnicodeDecodeError:
            return None
        address, _, port = asked[1:].partition(" ")
        if asked[:1] != "@" or not port.isdigit():
            return None
        try:
            client = ip_address(address)
            name = self._classify(getattr(client, "ipv4_mapped", None) or client, int(port), its.pid)
        except ValueError:
            return None
        except Exception as error:  # the function reads what comes from outside; other workers go on
            self._complain("A request could not be classified", error)
            return None
        return name if name in self._replies else None

    def _let_in(self, workers: list[int]) -> None:
        gate = self._gate
        for worker in workers:
            name = None if gate is None else gate.class_of(worker)
            self._tell(worker, b"go" if name is None else self._replies[name])

    def _tell(self, worker: int, reply: bytes) -> None:
        """A worker that does not read, or is gone, is found so when its connection is heard next."""
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
            self._complain("The gate turns workers away", error)
            os.close(
                self._spare
            )  # the one descriptor kept for this: to close the connection, not to be told of it again
            with suppress(OSError):
                self._listener.accept()[0].close()
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            return
        if len(self._workers) >= self._most:
            self._complain("The gate turns workers away", f"It has {self._most} connections.")
            connection.close()
            return
        connection.setblocking(False)
        pid, _, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        self._workers[connection.fileno()] = _Worker(connection, pid)
        self._epoll.register(connection, select.EPOLLIN)
        self._count_cpus()

    def _drop(self, worker: int) -> None:
        let_in = [] if self._gate is None else self._gate.leave(worker, time.monotonic(), ok=False)
        self._workers.pop(worker).connection.close()
        self._let_in(let_in)
        self._count_cpus()

    def _count_cpus(self) -> None:
        """Again when another worker is the first."""
        first = self._first_pid()
        if first != self._first:
            self._first = first
            if self._by_cpus and self._gate is not None and first is not None:
                self._let_in(self._gate.set_slots(self._cpus(), time.monotonic()))

    def _first_pid(self) -> int | None:
        first = next(iter(self._workers.values()), None)
        return None if first is None else first.pid

    def _cpus(self) -> int:
        """How many CPUs the first of the workers may use; all online ones where that cannot be known."""
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

    def _complain(self, what: str, why: object) -> None:
        if what not in self._complained:
            self._complained.add(what)
            log.warning("%s: %s This is said once.", what, why)


def _no_class(_client: Address, _local_port: int, _pid: int) -> None:
    return None


def _listen(path: Path) -> tuple[socket.socket, int]:
    """A listening socket that anybody may connect to, and its inode. A dead agent's is replaced, a living one's not."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    ours = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
            path.parent.chmod(0o755)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as other:
            if other.connect_ex(str(path)) in (0, errno.EAGAIN):
                raise GateError(f"Another agent serves the gate at {path}; end that one first.")
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
