"""Exports the audit log continuously, to a file or to syslog: a copy out of reach of the database's roles."""

import asyncio
import json
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path

from sqlalchemy import text

from coresteer.audit import repository
from coresteer.audit.chain import json_line
from coresteer.background import cancel
from coresteer.db import Database
from coresteer.errors import is_database_unavailable
from coresteer.process import SystemAccount

log = logging.getLogger("coresteer.audit")

SYSLOG = "syslog"
"""The destination that is no file."""

_INTERVAL_S = 1.0
_AT_ONCE = 1000
_SYSLOG_SOCKET = "/dev/log"
_SYSLOG_BYTES = 8 * 1024
"""Longest line, as rsyslog cuts longer ones off; above 200 KiB the kernel refuses them."""
_SYSLOG_PRIORITY = 13 * 8 + 5  # facility "log audit", severity "notice" (RFC 5424)


def give_file_to(account: SystemAccount | None, destination: str | None) -> None:
    """Create the file, if the destination is one, so that this account can append to it. Raises OSError."""
    if account is None or destination in (None, SYSLOG):
        return
    descriptor = os.open(Path(destination), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    os.fchown(descriptor, account.uid, account.gid)
    os.close(descriptor)


class AuditExport:
    """Writes every new entry of the audit log to the destination once a second; after a restart, from where it was.

    An entry is written at least once: the position is stored in the database after the write.
    """

    def __init__(self, database: Database, destination: str, *, syslog_socket: str = _SYSLOG_SOCKET) -> None:
        self._database = database
        self._destination = destination
        self._syslog_socket = syslog_socket
        self._failed = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to export."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End, after the entries that are stored by now."""
        if self._task is None:
            return
        await cancel([self._task])
        self._task = None
        await self._export_or_log()

    async def _run(self) -> None:
        while True:
            await self._export_or_log()
            await asyncio.sleep(_INTERVAL_S)

    async def _export_or_log(self) -> None:
        try:
            while await self.export_new() == _AT_ONCE:
                pass
            self._failed = False
        except Exception as error:
            expected = isinstance(error, OSError) or is_database_unavailable(error)
            if not self._failed:  # once, not every second
                what = "The audit log is not exported to %s: %s; trying again."
                log.error(what, self._destination, error, exc_info=not expected)
            self._failed = True

    async def export_new(self) -> int:
        """Write the next entries that have not been written and return how many. Raises OSError and database errors."""
        async with self._database.session() as session:
            query = text("SELECT number FROM audit_export WHERE destination = :destination FOR UPDATE")
            position = await session.scalar(query, {"destination": self._destination}) or 0
            links = [link async for link in repository.links(session, position, _AT_ONCE)]
            if links:
                await asyncio.to_thread(self._write, [json_line(link) for link in links])
                stored = text(
                    "INSERT INTO audit_export VALUES (:destination, :number) "
                    "ON CONFLICT (destination) DO UPDATE SET number = excluded.number"
                )
                await session.execute(stored, {"destination": self._destination, "number": links[-1].number})
        return len(links)

    def _write(self, lines: list[str]) -> None:
        if self._destination == SYSLOG:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as syslog:
                syslog.connect(self._syslog_socket)
                for line in lines:
                    syslog.send(f"<{_SYSLOG_PRIORITY}>coresteer-audit: {_shortened(line)}".encode())
            return
        # opened every time, so that it may be rotated
        descriptor = os.open(Path(self._destination), os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            _append(descriptor, "".join(f"{line}\n" for line in lines).encode())
        finally:
            os.close(descriptor)


def _append(descriptor: int, data: bytes) -> None:
    """Write whole lines and wait until they are on the disk, or leave the file as it was. Raises OSError."""
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        data = b"\n" + data  # a write was cut off; its entries follow again
    try:
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):  # the file may only be appended to
            os.ftruncate(descriptor, size)
        raise


def _shortened(line: str) -> str:
    """Return a line that syslog accepts: without the entry's detail if it is too long."""
    if len(line.encode()) <= _SYSLOG_BYTES:
        return line
    entry = json.loads(line)
    entry["detail"] = {"omitted_bytes": len(json.dumps(entry["detail"]))}
    return json.dumps(entry, ensure_ascii=False)
