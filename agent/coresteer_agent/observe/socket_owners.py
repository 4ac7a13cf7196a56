"""Finds the process that holds a socket through the links in /proc/PID/fd (kernel: fs/proc/fd.c).

A link costs 2 to 3 µs to read and a machine has tens of thousands, so only sockets with traffic and without a known
process are searched, a bounded number of links at a time. Known links are cached, and read again in turn.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

_MAX_LINKS = 1_500
"""Maximum per find(), about 4 ms."""
_NAMES_PER_LINK = 8
"""Names of a folder that take as long to read as one link."""
_MIN_LINKS = 1_000
"""Minimum of links read of a process, even if its folder is so large that listing it used up the limit."""
_CHECKS = 100
"""Cached links that are read again per find()."""
_RETRY_CALLS = 24
"""A socket that no process holds is searched again after this number of calls of find()."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SOCKET = "socket:["


class SocketOwners:
    """Cache of the process that holds each socket. proc: path of /proc.

    If several processes hold a socket, the first one found counts. They are searched in this order: those given to
    find(), those known to hold sockets, all others, each group by descending PID. So if a server forks for each
    connection, the child counts, which does the work. Processes are identified by the PID of their main thread.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._holders: dict[int, tuple[int, int]] = {}
        self._sockets: dict[int, dict[int, int]] = {}
        self._checks: Iterator[tuple[int, int, int]] = iter(())
        self._calls = 0
        self._unowned_until: dict[int, int] = {}
        self._round = 0
        self._missed_since: dict[int, int] = {}
        self._queue: deque[int] = deque()
        self._done_fd = -1

    def pid(self, inode: int) -> int | None:
        """Return the PID of the process that holds a socket, by the socket's inode; None if unknown."""
        found = self._holders.get(inode)
        return None if found is None else found[0]

    def forget_sockets(self, inodes: Iterable[int]) -> None:
        """Remove closed sockets from the cache, by inode."""
        for inode in inodes:
            self._unowned_until.pop(inode, None)
            self._missed_since.pop(inode, None)
            if (held := self._holders.get(inode)) is not None:
                self._forget_link(*held)

    def forget_process(self, pid: int) -> None:
        """Remove a process that has ended, or whose PID was reused, from the cache."""
        for fd in list(self._sockets.get(pid, ())):
            self._forget_link(pid, fd)
        self._sockets.pop(pid, None)

    def find(self, inodes: Iterable[int], first: Iterable[int] = ()) -> None:
        """Search for the processes that hold sockets, by inode. first: PIDs to search before all others."""
        self._calls += 1
        self._check_some()
        missing = {i for i in inodes if i not in self._holders and self._unowned_until.get(i, 0) <= self._calls}
        if self._missed_since.keys().isdisjoint(missing):
            self._queue.clear()  # the sockets of the previous search are gone; start again
            self._done_fd = -1
        self._missed_since = {i: self._missed_since.get(i, self._round) for i in missing}
        links = _MAX_LINKS
        for pid in first:
            if not missing or links <= _MAX_LINKS // 2:
                break
            links -= self._search(pid, missing, links)[0]
        while missing and links > 0:
            if not self._queue:
                self._begin_round(missing)
                continue
            used, self._done_fd = self._search(
                self._queue[0], missing, links, self._done_fd, fresh=self._round % 2 == 0
            )
            links -= used
            if self._done_fd < 0:
                self._queue.popleft()

    def _begin_round(self, missing: set[int]) -> None:
        """Queue all processes for another search. Every second round also reads cached links.

        A socket that two rounds did not find is held by no visible process, e.g. it is the kernel's own.
        """
        for inode in [i for i in missing if self._round - self._missed_since[i] >= 2]:
            self._unowned_until[inode] = self._calls + _RETRY_CALLS
            missing.discard(inode)
        if not missing:
            return
        self._round += 1
        try:
            pids = [int(entry.name) for entry in os.scandir(self._proc) if entry.name.isdecimal()]
        except OSError:
            pids = []
        newest = self._newest(pids)
        pids.sort(key=lambda pid: (pid > newest, -pid))  # larger PIDs were given before the counter wrapped
        if not pids:
            missing.clear()
        pids.sort(key=lambda pid: pid not in self._sockets)
        self._queue.extend(pids)

    def _newest(self, pids: list[int]) -> int:
        """Return the PID that the kernel assigned last; PIDs wrap around (kernel: fs/proc/loadavg.c)."""
        try:
            return int((Path(self._proc) / "loadavg").read_bytes().split()[4])
        except (OSError, ValueError, IndexError):
            return max(pids, default=0)

    def _search(
        self, pid: int, missing: set[int], links: int, done_fd: int = -1, *, fresh: bool = False
    ) -> tuple[int, int]:
        """Read links of one process; return their number, and the last descriptor read (-1: all are read)."""
        try:
            folder = os.open(f"{self._proc}/{pid}/fd", _FOLDER)
        except OSError:
            self.forget_process(pid)
            return 1, -1
        try:
            fds = sorted(int(entry.name) for entry in os.scandir(folder))
            used = 1 + len(fds) // _NAMES_PER_LINK
            end = max(links, used + _MIN_LINKS)
            known = self._sockets.get(pid, {})
            for fd in known.keys() - set(fds):
                self._forget_link(pid, fd)
            for fd in fds:
                if fd <= done_fd or (fd in known and not fresh):
                    continue
                if used >= end:
                    return used, fd - 1
                used += 1
                inode = _inode(str(fd), folder)
                if known.get(fd, inode) != inode:
                    self._forget_link(pid, fd)
                if inode is not None:
                    self._sockets.setdefault(pid, known)[fd] = inode
                    self._holders.setdefault(inode, (pid, fd))
                    missing.discard(inode)
        except OSError:
            self.forget_process(pid)  # it has ended
            return 1, -1
        finally:
            os.close(folder)
        return used, -1

    def _forget_link(self, pid: int, fd: int) -> None:
        inode = self._sockets[pid].pop(fd)
        if self._holders.get(inode) == (pid, fd):
            del self._holders[inode]

    def _check_some(self) -> None:
        for _ in range(_CHECKS):
            found = next(self._checks, None)
            if found is None:
                self._checks = self._known_links()
                return
            pid, fd, inode = found
            if self._sockets.get(pid, {}).get(fd) == inode and _inode(f"{self._proc}/{pid}/fd/{fd}") != inode:
                self._forget_link(pid, fd)

    def _known_links(self) -> Iterator[tuple[int, int, int]]:
        for pid in list(self._sockets):
            for fd, inode in list(self._sockets.get(pid, {}).items()):
                yield pid, fd, inode


def _inode(link: str, folder: int | None = None) -> int | None:
    try:
        target = os.readlink(link, dir_fd=folder)
    except OSError:
        return None
    return int(target[len(_SOCKET) : -1]) if target.startswith(_SOCKET) else None
