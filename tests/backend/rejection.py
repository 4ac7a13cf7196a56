"""Why the backend rejects a message from an agent."""

from coresteer.gateway.validation import Arrival, validate
from coresteer_core.protocol import ProtocolError, ToBackend, decode_to_backend, encode


def rejection(message: ToBackend, *, now_ms: int = 0, after_seq: int = 0) -> str:
    """Return the error of decoding or validating a message as it arrives on the socket; empty if it is accepted."""
    try:
        decoded = decode_to_backend(encode(message))
    except ProtocolError as error:
        return str(error)
    return validate(decoded, Arrival(now_ms, after_seq)) or ""
