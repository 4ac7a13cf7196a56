"""The backend's listening socket."""

import errno
import socket

from coresteer.config import Config

_PATIENCE_MS = 30_000


class ListenError(Exception):
    """The backend's address cannot be bound, or TLS not used; the message says what to change."""


def listening_socket(config: Config, *, shared: bool = False) -> socket.socket:
    """Return the backend's bound socket. shared: with others of the same user, among which the kernel distributes
    connections (SO_REUSEPORT). Raises ListenError.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    # inherited by connections: one whose peer no longer reads ends early instead of after many minutes
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _PATIENCE_MS)
    try:
        listener.bind((config.host, config.port))
    except OSError as error:
        listener.close()
        if error.errno != errno.EADDRINUSE:
            raise ListenError(
                f"Cannot listen on {config.host}, port {config.port}: {error.strerror}. "
                "Give an address of this machine in CORESTEER_HOST, and a port with --port or CORESTEER_PORT."
            ) from None
        raise ListenError(
            f"Port {config.port} on {config.host} is in use already. Is Coresteer running? "
            "Choose another port with --port or CORESTEER_PORT."
        ) from None
    return listener
