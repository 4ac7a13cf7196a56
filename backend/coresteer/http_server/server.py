"""The HTTP server: uvicorn, with connections accepted within limits and TLS handshakes that count among them."""

import asyncio
import ipaddress
import logging
import resource
import socket
import time
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from coresteer.config import Config
from coresteer.http_server.limits import MAX_WAIT_S, ConnectionLimits, Peer
from coresteer.http_server.protocol import BoundedHttp, BoundedWebSocket
from coresteer.http_server.tls import note_authority, tls_context
from coresteer.listen import ListenError
from coresteer.origin import network_of
from coresteer.systemd import notify_ready
from coresteer_core.protocol import MAX_FRAME_BYTES

_BACKLOG = 2048
_ACCEPTS_AT_ONCE = 16
"""Between two looks at connections that are open, so that a flood of new ones does not stop them."""
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.005, 0.1
_PAUSE_PER_WORK = 2.0
"""When new connections displace others: seconds without accepting any, per second of CPU time since the last ones."""
_RESERVED_FILES = 128
"""For the database's connections, the front end's files and reports."""
_MAX_FILES = 65_536
_NO_ROOM_PAUSE_S = 0.1
_TLS_SHUTDOWN_S = 1.0
_RELOAD_S = 86_400.0

log = logging.getLogger("coresteer.http")


def _uvicorn_config(app: ASGIApp, config: Config) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=BoundedHttp,
        ws=BoundedWebSocket,
        ws_per_message_deflate=False,
        ws_max_size=MAX_FRAME_BYTES,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        # without a proxy, any local process could evade the login limit by claiming addresses
        proxy_headers=config.public_url is not None
        and (not config.uses_tls or "trusted_proxies" in config.model_fields_set),
        forwarded_allow_ips=_trusted_networks(config),
        timeout_graceful_shutdown=2,
    )


def _trusted_networks(config: Config) -> list[str]:
    """Return the networks of the proxies, those of IPv4 also as a socket on :: shows them (::ffff:10.0.0.5)."""
    networks = [ipaddress.ip_network(each.strip()) for each in config.trusted_proxies.split(",")]
    mapped = [f"::ffff:{each.network_address}/{96 + each.prefixlen}" for each in networks if each.version == 4]
    return [*map(str, networks), *mapped]


class Server(uvicorn.Server):
    """uvicorn's server for an application on a bound socket. Raises ListenError."""

    def __init__(self, app: ASGIApp, config: Config, listener: socket.socket) -> None:
        super().__init__(_uvicorn_config(app, config))
        self._coresteer_config = config
        self._listener = listener
        self._tls = tls_context(config)
        note_authority(config)
        self._limits = ConnectionLimits(_allow_files() - _RESERVED_FILES)
        self._opening: set[asyncio.Task[None]] = set()
        self._displaced = 0
        self._worked_s = 0.0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then accept connections."""
        await super().startup(sockets=[])
        self._listener.setblocking(False)
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited by connections
        self._listener.listen(_BACKLOG)
        notify_ready()
        self._accept_connections()
        if self._tls is not None:
            asyncio.get_running_loop().call_later(_RELOAD_S, self._reload_certificate)

    def _reload_certificate(self) -> None:
        """Use a certificate that was renewed since the last time for new connections."""
        try:
            # a context that failed to load would have the new certificate without its key
            self._tls = tls_context(self._coresteer_config)
        except ListenError as error:
            log.error("%s The previous one stays in use.", error)
        asyncio.get_running_loop().call_later(_RELOAD_S, self._reload_certificate)

    async def on_tick(self, counter: int) -> bool:
        """End connections that have waited too long; called ten times a second."""
        self._limits.end_overdue()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, and end the open ones."""
        asyncio.get_running_loop().remove_reader(self._listener)
        for opening in self._opening:
            opening.cancel()
        await super().shutdown(sockets=[self._listener])

    def _accept_connections(self) -> None:
        if self._listener.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                connected, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                log.error("No connection can be accepted: %s; trying again.", error.strerror)
                return self._pause_accepting(_NO_ROOM_PAUSE_S)
            connected.setblocking(False)
            opening = loop.create_task(self._open(connected, address[0]))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)
        if self._limits.displaced > self._displaced:
            self._displaced = self._limits.displaced
            work_s = time.process_time() - self._worked_s
            self._pause_accepting(min(max(_PAUSE_PER_WORK * work_s, _MIN_PAUSE_S), _MAX_PAUSE_S))
        self._worked_s = time.process_time()

    def _pause_accepting(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._listener)
        loop.call_later(seconds, self._accept_connections)

    async def _open(self, connected: socket.socket, address: str) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this is one
        peer = Peer(network_of(address), lambda _: task.cancel())
        if not self._limits.admit(peer):
            return connected.close()
        protocol = partial(
            BoundedHttp, self.config, self.server_state, self.lifespan.state, peer=peer, limits=self._limits
        )
        timeouts = {"ssl_handshake_timeout": MAX_WAIT_S, "ssl_shutdown_timeout": _TLS_SHUTDOWN_S} if self._tls else {}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(protocol, connected, ssl=self._tls, **timeouts)
        except OSError:  # the peer has gone, or speaks no TLS; the transport closes the socket
            self._limits.leave(peer)
        except BaseException:
            self._limits.leave(peer)
            raise


def _allow_files() -> int:
    """Raise this process's limit of open files as far as it may; return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft == resource.RLIM_INFINITY or soft >= files:
        return files
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return files
