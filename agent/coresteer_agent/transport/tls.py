"""TLS to a backend on another machine; a separate module, because the ssl module takes 5 MiB of memory."""

import hashlib
import hmac
import socket
import ssl
from pathlib import Path
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


def tls_context(ca: str = "", client_cert: Path | None = None) -> ssl.SSLContext:
    """Return the context of TLS connections to the backend. Raises ssl.SSLError and other kinds of OSError.

    ca: the only authority, PEM, whose certificates are accepted. Without one, a certificate must be valid for the
    backend's host and signed by an authority that this machine trusts (changed by SSL_CERT_FILE and SSL_CERT_DIR).
    client_cert: a PEM file with this node's own certificate and key, used if it exists.
    """
    if ca:
        # the authority of one installation signs its backend's certificate only, by whatever name that is reached
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=ca)
    else:
        context = ssl.create_default_context()
    if client_cert is not None and client_cert.exists():
        context.load_cert_chain(client_cert)
    return context


def unverified_context(client_cert: Path | None) -> ssl.SSLContext:
    """Return a context that accepts any certificate: to fetch what is checked by its fingerprint."""
    context = tls_context(client_cert=client_cert)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def wrap_in_tls(connected: socket.socket, host: str, context: ssl.SSLContext) -> socket.socket:
    """Perform the TLS handshake on a connected socket, within its timeout, and return the TLS socket.

    Raises ssl.SSLError, an OSError.
    """
    context.sslsocket_class = _Socket
    return context.wrap_socket(connected, server_hostname=host)


def certificate_with_fingerprint(pem: str, fingerprint: str) -> str:
    """Return the certificate if its SHA-256 is the fingerprint, in hexadecimal. Raises ValueError."""
    found = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.strip())).hexdigest()
    if not hmac.compare_digest(found, fingerprint.lower()):
        raise ValueError(f"its SHA-256 is {found}, not {fingerprint}")
    return pem
