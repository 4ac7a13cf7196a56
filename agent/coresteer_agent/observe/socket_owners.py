"""Which process holds a socket, by the links of /proc/PID/fd (kernel: fs/proc/fd.c).

A link costs 2 to 3 µs to read and a machine has tens of thousands, so only sockets that moved bytes and whose process
is not known are looked for, a bounded number of links at a time; what was found is kept, and checked again in turn.
"""

import os
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

_LINKS = 1_500
"""Read at most at one find(), about 4 ms."""
_LISTED = 8
"""Names of a folder that cost as much as one link."""
_AT_LEAST = 1_000
"""So many links of a process are read even where its folder is so large that listing it was dear."""
_CHECKED = 100
"""Links found before that are read again at one find()."""
_PATIENCE = 24
"""A socket that no process holds is looked for again after so many calls of find()."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SOCKET = "socket:["


class SocketOwners:
    """Follows who holds which socket. proc: where /proc is.

    Of several processes that hold one it is the one that was found first, and they are searched in this order: those
    given to find(), those that are known to hold sockets, all others, the youngest first. So where a server forks for
    each connection it is the child, which does the work. A process is told by its main thread's number.
    """

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._holders: dict[int, tuple[int, int]] = {}
        self._sockets: dict[int, dict[int, int]] = {}
        self._checks: Iterator[tuple[int, int, int]] = iter(())
        self._calls = 0
        self._held_by_none: dict[int, int] = {}
        self._round = 0
        self._missed_since: dict[int, int] = {}
        self._queue: deque[int] = deque()
        self._done_fd = -1

    def pid(self, inode: int) -> int | None:
        """Who holds a socket, as far as is known."""
        found = self._holders.get(inode)
        return None if found is None else found[0]

    def sockets_of(self, pid: int) -> Collection[int]:
        """The inodes a process is known to hold."""
        return self._sockets.get(pid, {}).values()

    def forget_sockets(self, inodes: Iterable[int]) -> None:
        """They were closed."""
        for inode in inodes:
            self._held_by_none.pop(inode, None)
            self._missed_since.pop(inode, None)
            if (held := self._holders.get(inode)) is not None:
                self._lose(*held)

    def forget_process(self, pid: int) -> None:
        """It ended, or another one has its number."""
        for fd in list(self._sockets.get(pid, ())):
            self._lose(pid, fd)
        self._sockets.pop(pid, None)

    def find(self, inodes: Iterable[int], first: Iterable[int] = ()) -> None:
        """Look for sockets that moved bytes. first: processes to search before all others."""
        self._calls += 1
        self._check_some()
        missing = {i for i in inodes if i not in self._holders and self._held_by_none.get(i, 0) <= self._calls}
        if self._missed_since.keys().isdisjoint(missing):
            self._queue.clear()  # a search that goes on for nobody; begin with what there is now
            self._done_fd = -1
        self._missed_since = {i: self._missed_since.get(i, self._round) for i in missing}
        links = _LINKS
        for pid in first:
            if not missing or links <= _LINKS // 2:
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
        """All processes once more. The second look reads known links too: a socket may have one's number by now.

        After it a socket is held by no process: it is the kernel's own, or this agent may not see whose.
        """
        for inode in [i for i in missing if self._round - self._missed_since[i] >= 2]:
            self._held_by_none[inode] = self._calls + _PATIENCE
            missing.discard(inode)
        if not missing:
            return
        self._round += 1
        try:
            pids = [int(entry.name) for entry in os.scandir(self._proc) if entry.name.isdecimal()]
        except OSError:
            pids = []
        newest = self._newest(pids)
        pids.sort(key=lambda pid: (pid > newest, -pid))  # numbers above it are of the round before
        if not pids:
            missing.clear()
        pids.sort(key=lambda pid: pid not in self._sockets)
        self._queue.extend(pids)

    def _newest(self, pids: list[int]) -> int:
        """The number given last: they begin anew at the bottom when they are used up (kernel: fs/proc/loadavg.c)."""
        try:
            return int((Path(self._proc) / "loadavg").read_bytes().split()[4])
        except (OSError, ValueError, IndexError):
            return max(pids, default=0)

    def _search(
        self, pid: int, missing: set[int], links: int, done_fd: int = -1, *, fresh: bool = False
    ) -> tuple[int, int]:
        """Read one process's links: how many, and the number of the last where there are more, else -1."""
        try:
            folder = os.open(f"{self._proc}/{pid}/fd", _FOLDER)
        except OSError:
            self.forget_process(pid)
            return 1, -1
        try:
            fds = sorted(int(entry.name) for entry in os.scandir(folder))
            used = 1 + len(fds) // _LISTED
            end = max(links, used + _AT_LEAST)
            known = self._sockets.get(pid, {})
            for fd in known.keys() - set(fds):
                self._lose(pid, fd)
            for fd in fds:
                if fd <= done_fd or (fd in known and not fresh):
                    continue
                if used >= end:
                    return used, fd - 1
                used += 1
                inode = _inode(str(fd), folder)
                if known.get(fd, inode) != inode:
                    self._lose(pid, fd)
                if inode is not None:
                    self._sockets.setdefault(pid, known)[fd] = inode
                    self._holders.setdefault(inode, (pid, fd))
                    missing.discard(inode)
        except OSError:
            self.forget_process(pid)  # it ended meanwhile
            return 1, -1
        finally:
            os.close(folder)
        return used, -1

    def _lose(self, pid: int, fd: int) -> None:
        inode = self._sockets[pid].pop(fd)
        if self._holders.get(inode) == (pid, fd):
            del self._holders[inode]

    def _check_some(self) -> None:
        for _ in range(_CHECKED):
            found = next(self._checks, None)
            if found is None:
                self._checks = self._known_links()
                return
            pid, fd, inode = found
            if self._sockets.get(pid, {}).get(fd) == inode and _inode(f"{self._proc}/{pid}/fd/{fd}") != inode:
                self._lose(pid, fd)

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
