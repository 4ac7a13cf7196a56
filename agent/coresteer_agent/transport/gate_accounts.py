"""Bounds of each local account at the gate, so that none takes the gate from the others.

An account above a bound goes on without the gate; for all others the gate works as before.
"""

import math
import socket
import struct
from collections.abc import Iterator
from itertools import takewhile

HOLD_LIMIT_S = 2.0
"""How long a request may hold its slot while a request of another account waits; then it goes on without the slot."""
FIRST_EXCLUSION_S, LONGEST_EXCLUSION_S = 10.0, 600.0
"""How long an account that held half of the slots or more in this way goes on without slots; doubled each time."""
MAX_WAITING = 1024
"""Waiting requests of one account; further ones start without a slot."""
MAX_IDLE = 256
"""Connections of one account without a request; the one that was used least recently is closed."""

_CREDENTIALS = struct.Struct("3i")
"""struct ucred: pid, uid, gid (unix(7), SO_PEERCRED)."""


def peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """Return PID and uid of the process that opened a connection."""
    pid, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid


class Account:
    """Connections of one account by what they do.

    pid: of the process that opened the first one that is open. asked: whether one of them sent a request.
    """

    __slots__ = ("_excluded_until_s", "_exclusions", "active", "asked", "idle", "pid", "uid", "waiting")

    def __init__(self, uid: int, pid: int) -> None:
        self.uid = uid
        self.pid = pid
        self.asked = False
        self.idle: dict[int, None] = {}
        """In the order of their last use."""
        self.waiting: dict[int, None] = {}
        self.active: dict[int, float] = {}
        """When each was admitted (monotonic seconds), in this order."""
        self._excluded_until_s = 0.0
        self._exclusions = 0

    def __len__(self) -> int:
        return len(self.idle) + len(self.waiting) + len(self.active)

    def wait(self, worker: int) -> None:
        """Record that a connection's request waits."""
        self.idle.pop(worker, None)
        self.waiting[worker] = None

    def admit(self, worker: int, now_s: float) -> None:
        """Record that a connection's request was admitted."""
        self.idle.pop(worker, None)
        self.waiting.pop(worker, None)
        self.active[worker] = now_s

    def rest(self, worker: int) -> int | None:
        """Record that a connection has no request; return another one if it is to be closed, since too many rest."""
        self.remove(worker)
        self.idle[worker] = None
        return next(iter(self.idle)) if len(self.idle) > MAX_IDLE else None

    def remove(self, worker: int) -> None:
        """Forget a connection."""
        self.idle.pop(worker, None)
        self.waiting.pop(worker, None)
        self.active.pop(worker, None)

    def next_to_close(self) -> int:
        """Return the connection whose end does the least harm."""
        return next(iter(self.idle or self.waiting or self.active))

    def overdue(self, now_s: float) -> list[int]:
        """Return the connections whose requests have held their slots for longer than HOLD_LIMIT_S."""
        return list(takewhile(lambda worker: now_s - self.active[worker] > HOLD_LIMIT_S, self.active))

    def exclude(self, now_s: float) -> float:
        """Let its requests go on without slots for a while; return for how many seconds."""
        if now_s - self._excluded_until_s > LONGEST_EXCLUSION_S:
            self._exclusions = 0
        pause_s = min(math.ldexp(FIRST_EXCLUSION_S, self._exclusions), LONGEST_EXCLUSION_S)
        self._exclusions = min(self._exclusions + 1, 16)
        self._excluded_until_s = now_s + pause_s
        return pause_s

    def may_enter(self, now_s: float) -> bool:
        """Return whether a request of the account gets a slot, or waits for one."""
        return now_s >= self._excluded_until_s and len(self.waiting) < MAX_WAITING

    def forgettable(self, now_s: float) -> bool:
        """Return whether nothing has to be remembered of the account."""
        return not len(self) and now_s - self._excluded_until_s > LONGEST_EXCLUSION_S


class Accounts:
    """All accounts with connections, and those that exceeded the hold limit before. most: of such to remember."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_uid: dict[int, Account] = {}

    def __iter__(self) -> Iterator[Account]:
        return iter(self._by_uid.values())

    def opened(self, uid: int, pid: int, now_s: float) -> Account:
        """Return the account of a new connection, which a process opened."""
        if len(self._by_uid) > self._most:
            self._by_uid = {key: account for key, account in self._by_uid.items() if len(account)}
        account = self._by_uid.get(uid)
        if account is None or account.forgettable(now_s):
            account = self._by_uid[uid] = Account(uid, pid)
        elif not len(account):
            account.pid, account.asked = pid, False
        return account

    def to_make_room(self, account: Account) -> int | None:
        """Return the connection to close for a new one of this account; None if it has as many as any other."""
        largest = max(self._by_uid.values(), key=len)
        return largest.next_to_close() if len(largest) > len(account) + 1 else None

    def overdue(self, now_s: float) -> list[tuple[Account, list[int]]]:
        """Return the accounts that hold slots for too long while requests of others wait, with these connections."""
        waiting = [account for account in self._by_uid.values() if account.waiting]
        return [
            (account, overdue)
            for account in self._by_uid.values()
            if any(other is not account for other in waiting) and (overdue := account.overdue(now_s))
        ]
