"""A connection between two programs that a test can cut without closing it, as a partition of the network does."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Wire:
    """Passes bytes on between its clients and a server. While it is cut, nothing arrives, in neither direction.

    connect: opens a connection to the server.
    """

    connect: Callable[[], Awaitable[Streams]]
    _whole: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _passing: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self) -> int:
        """Accept clients on a free port of loopback, and return it."""
        self._whole.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def serve_at(self, path: Path) -> None:
        """Accept clients on a Unix socket."""
        self._whole.set()
        self._server = await asyncio.start_unix_server(self._accept, path)

    def cut(self) -> None:
        """Pass nothing on from now."""
        self._whole.clear()

    def mend(self) -> None:
        """Pass on what has arrived meanwhile, and everything from now."""
        self._whole.set()

    async def close(self) -> None:
        """Close all connections."""
        if self._server is not None:
            self._server.close()
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._pass(reader, writer))
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            await self._whole.wait()
            far_reader, far_writer = await self.connect()
            writers.append(far_writer)
            ways = [
                asyncio.create_task(self._one_way(reader, far_writer)),
                asyncio.create_task(self._one_way(far_reader, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # the server is away; the client's connection is closed
        finally:
            for each in writers:
                each.close()

    async def _one_way(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while block := await reader.read(1 << 16):
                await self._whole.wait()
                writer.write(block)
                await writer.drain()
