"""TLS to a backend on another machine; a separate module, because the ssl module takes 5 MiB of memory."""

import socket
import ssl
from typing import Any


class _Socket(ssl.SSLSocket):
    """A TLS socket that raises BlockingIOError like a plain one if TLS needs more I/O."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def send(self, data: Any, flags: int = 0) -> int:  # noqa: ANN401 - the type of buffers has no name in Python 3.11
        try:
            return super().send(data, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None


def wrap_in_tls(connected: socket.socket, host: str) -> socket.socket:
    """Perform the TLS handshake on a connected socket, within its timeout, and return the TLS socket.

    The certificate must be valid for host and signed by an authority that this machine trusts (changed by SSL_CERT_FILE
    and SSL_CERT_DIR). Raises ssl.SSLError, an OSError.
    """
    context = ssl.create_default_context()
    context.sslsocket_class = _Socket
    return context.wrap_socket(connected, server_hostname=host)
