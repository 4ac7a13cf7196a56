"""Why a connection to the backend failed or ended, as sentences."""

from coresteer_agent.transport.websocket_protocol import Close
from coresteer_core.protocol import CloseCode, requested_delay_s

_LONGEST_DELAY_S = 300
"""That a backend may ask for: a wrong number must not keep an agent away for good."""


class LinkError(Exception):
    """Raised if a connection attempt failed or a connection ended; the message is a sentence.

    slow: retry slowly. bad_key: the backend does not accept this node's key. retry_after_s: not before that many
    seconds, as the backend asked; None if it did not.
    """

    def __init__(
        self, sentence: str, *, slow: bool = False, bad_key: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(sentence)
        self.slow = slow
        self.bad_key = bad_key
        self.retry_after_s = retry_after_s


_CLOSED = {
    CloseCode.BAD_KEY: "The backend does not accept this node's key. Enrol this node again with a new token: "
    "coresteer-agent enrol.",
    CloseCode.VERSION: "The backend speaks another protocol version. Bring agent and backend to the same version.",
    CloseCode.REPLACED: "Another agent connected with this node's key. Two agents with one key displace each other; "
    "stop one of them, or enrol it separately.",
}


def bounded_delay_s(seconds: float) -> float:
    """Return the delay that a backend asked for, within bounds."""
    return min(max(seconds, 0), _LONGEST_DELAY_S)


def key_refused(backend: str) -> LinkError:
    """Return the error for a backend that does not accept this node's key."""
    return LinkError(f"{backend}: {_CLOSED[CloseCode.BAD_KEY]}", slow=True, bad_key=True)


UNKNOWN_AUTHORITY = frozenset({18, 19, 20, 21})
"""OpenSSL's X509_V_ERR codes of certificates that no accepted authority has signed; others have expired and so on."""


def unreachable(backend: str, error: Exception, *, is_pinned: bool) -> LinkError:
    """Return the error for a backend to which no connection was made. is_pinned: only one authority is accepted."""
    sentence = f"The backend {backend} cannot be reached: {error}."
    if is_pinned:
        from ssl import SSLCertVerificationError  # noqa: PLC0415 - the connection has imported it already

        if isinstance(error, SSLCertVerificationError) and error.verify_code in UNKNOWN_AUTHORITY:
            sentence += (
                " This node accepts only the authority with which it enrolled. If the backend has another one now, "
                "enrol this node again with a token that lets it rejoin: coresteer-agent enrol."
            )
    return LinkError(sentence)


def why_closed(backend: str, frame: Close | None) -> LinkError:
    """Return the error for a connection that the backend closed with a frame; None: without one."""
    if frame is None:
        return LinkError(f"The connection to the backend {backend} was lost.")
    reason = f" Its reason: {frame.reason}" if frame.reason else ""
    if known := _CLOSED.get(frame.code):
        return LinkError(
            f"The backend {backend} closed the connection. {known}{reason}",
            slow=True,
            bad_key=frame.code == CloseCode.BAD_KEY,
        )
    requested = requested_delay_s(frame.reason) if frame.code == CloseCode.TRY_AGAIN_LATER else None
    return LinkError(
        f"The backend {backend} closed the connection with code {frame.code}.{reason}",
        retry_after_s=None if requested is None else bounded_delay_s(requested),
    )
