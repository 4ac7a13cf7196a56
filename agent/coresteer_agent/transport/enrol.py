"""Enrolment: exchanges an enrolment token for this node's key, and stores the key."""

import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.config import Config, is_loopback
from coresteer_agent.linux.atomic_file import replace_file

if TYPE_CHECKING:
    from ssl import SSLContext

_MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Of an answer to an enrolment; the keys of 10,000 simulated nodes have 1.5 MB."""
_TIMEOUT_S = 60  # a thousand simulated nodes at once take some seconds


class EnrolError(Exception):
    """Raised if enrolment failed; the message is a sentence. transient: the backend was unreachable, retry later."""

    def __init__(self, sentence: str, *, transient: bool = False) -> None:
        super().__init__(sentence)
        self.transient = transient


class NodeKey(Struct, frozen=True):
    """This node's id, name and key. backend: where it enrolled. ca: the only authority, PEM, to trust; empty for any.

    previous: the key before the present one, None for the first. replicas: addresses of all backends that share the
    database of the first one, among which the key is used; empty if there is only that one.
    """

    backend: str
    node_id: int
    name: str
    key: str
    ca: str = ""
    previous: str | None = None
    replicas: tuple[str, ...] = ()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the addresses of all backends to which the key may be sent."""
        return self.replicas or (self.backend,)


class EnrolledNode(Struct):
    """The key of one node, as the backend returns it."""

    node_id: int
    name: str
    key: str


class _Answer(Struct):
    nodes: list[EnrolledNode]


class _Problem(Struct):
    title: str = ""
    detail: str | None = None


def load_key(path: Path) -> NodeKey | None:
    """Return the node's stored key, None without one. Raises EnrolError if it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=NodeKey)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise EnrolError(f"The node's key in {path} cannot be read: {error}. Enrol again to replace it.") from None


def enrol(backends: Sequence[str], token: str, name: str, path: Path) -> NodeKey:
    """Exchange an enrolment token for this node's key and store it at path, readable by its owner only.

    The first backend that answers decides. Raises EnrolError.
    """
    with _sigterm_blocked():
        return _enrol(backends, token, name, path)


@contextmanager
def _sigterm_blocked() -> Iterator[None]:
    """Let this thread handle SIGTERM afterwards: a backend issues a key once, so an answer must not be lost."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _enrol(backends: Sequence[str], token: str, name: str, path: Path) -> NodeKey:
    shuffled = random.sample(backends, len(backends))  # a fleet's nodes do not all ask the same one
    for number, backend in enumerate(shuffled, 1):
        try:
            nodes, ca = request_keys(backend, token, [name], path.with_name("client.pem"))
            break
        except EnrolError as error:
            if not error.transient or number == len(backends):
                raise
    if len(nodes) != 1:
        raise EnrolError(f"{backend} answered with {len(nodes)} keys instead of one; is it a Coresteer backend?")
    node = nodes[0]
    key = NodeKey(backend, node.node_id, node.name, node.key, ca, replicas=_replicas(backends))
    try:
        store_key(path, key)
    except OSError as error:
        raise EnrolError(
            f"This node was enrolled, but its key cannot be stored in {path}: {error.strerror}. "
            "Correct the cause and enrol again with a new token."
        ) from None
    return key


def store_key(path: Path, key: NodeKey) -> None:
    """Write this node's key to disk, readable by its owner only, and replace the one there. Raises OSError."""
    replace_file(path, msgspec.json.encode(key))


def request_keys(
    backend: str, token: str, names: list[str], client_cert: Path | None = None
) -> tuple[list[EnrolledNode], str]:
    """Return the keys that the backend issues for an enrolment token, one per name, and the authority to trust.

    A token that ends in a fingerprint names that authority, PEM; it is empty for others. Raises EnrolError.
    """
    secret, _, fingerprint = token.partition(".")
    ca, context = "", None
    if fingerprint and not backend.startswith("https:"):
        raise EnrolError(
            f"The token names the certificate authority of its backend, but {backend} is not encrypted; the token was "
            "not sent. Use the backend's https:// address."
        )
    if backend.startswith("https:"):
        from coresteer_agent.transport.tls import tls_context  # noqa: PLC0415 - memory that plain agents need not spend

        try:
            ca = _fetch_ca(backend, fingerprint, client_cert) if fingerprint else ""
            context = tls_context(ca, client_cert)
        except OSError as error:
            raise EnrolError(f"This node's certificate in {client_cert} cannot be used: {error}.") from None
    content = _send(backend, "/api/enrol", names[0], msgspec.json.encode({"token": secret, "names": names}), context)
    try:
        return msgspec.json.decode(content, type=_Answer).nodes, ca
    except msgspec.MsgspecError as error:
        raise EnrolError(f"{backend} cannot be reached to enrol {names[0]}: {error}.", transient=True) from None


def _fetch_ca(backend: str, fingerprint: str, client_cert: Path | None) -> str:
    """Return the backend's authority. Nothing secret is sent before its fingerprint is that of the token."""
    from coresteer_agent.transport.tls import certificate_with_fingerprint, unverified_context  # noqa: PLC0415 - as above

    content = _send(backend, "/ca.pem", "this node", None, unverified_context(client_cert))
    try:
        return certificate_with_fingerprint(content.decode("ascii"), fingerprint)
    except ValueError as error:
        raise EnrolError(
            f"The certificate authority of {backend} is not the one that the token names: {error}. The token is of "
            "another installation, or somebody intercepts the connection; the token was not sent."
        ) from None


def _send(backend: str, path: str, name: str, body: bytes | None, tls: "SSLContext | None") -> bytes:
    """Return the response to a request. Raises EnrolError."""
    import http.client  # noqa: PLC0415 - an agent that has a key saves the memory
    import urllib.error  # noqa: PLC0415 - an agent that has a key saves the memory
    import urllib.request  # noqa: PLC0415 - an agent that has a key saves the memory

    request = urllib.request.Request(  # noqa: S310 - check_backend admits http and https only
        backend + path, data=body, headers={"Content-Type": "application/json"}
    )
    # an agent connects to its backend without a proxy, so enrolment must not use one either
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if tls is not None:
        handlers.append(urllib.request.HTTPSHandler(context=tls))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=_TIMEOUT_S) as response:
            content: bytes = response.read(_MAX_ANSWER_BYTES)
            return content
    except urllib.error.HTTPError as error:
        with error:
            detail = _problem_detail(error.read(65536))
        sentence = f"{backend} did not enrol {name}: {detail or f'it answered {error.code} {error.reason}'}"
        raise EnrolError(sentence, transient=error.code >= 500) from None
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "reason", None) or error
        raise EnrolError(f"{backend} cannot be reached to enrol {name}: {why}.", transient=True) from None


def _problem_detail(body: bytes) -> str:
    try:
        problem = msgspec.json.decode(body, type=_Problem)
    except msgspec.MsgspecError:
        return ""
    return problem.detail or problem.title


def enrol_with_file(config: Config) -> NodeKey:
    """Enrol with the enrolment token in config.token_file. Raises EnrolError, transient until the file exists."""
    path = config.token_file
    if path is None:
        raise EnrolError(
            f"This node has no key for {_listed(config)}. Create an enrolment token on the settings page and run "
            f"coresteer-agent enrol --backend {_listed(config)} --token TOKEN"
        )
    try:
        token = path.read_text("ascii").strip()
    except FileNotFoundError:
        raise EnrolError(f"The token file {path} does not exist yet.", transient=True) from None
    except (OSError, UnicodeDecodeError) as error:
        raise EnrolError(f"The token file {path} cannot be read: {error}.") from None
    return enrol(config.backends, token, config.name, config.key_path)


def _listed(config: Config) -> str:
    return ",".join(config.backends)


def _replicas(backends: Sequence[str]) -> tuple[str, ...]:
    return tuple(backends) if len(backends) > 1 else ()


def load_or_request_key(config: Config) -> NodeKey:
    """Return the stored key if it belongs to one of config.backends, else enrol with config.token_file.

    Backends in one list share a database, so the key is valid at all of them. Raises EnrolError.
    """
    key = load_key(config.key_path)
    if key is None:
        return enrol_with_file(config)
    known = {key.backend, *key.replicas}
    is_local = is_loopback(key.backend) and any(is_loopback(backend) for backend in config.backends)
    if known & set(config.backends) or is_local:  # the backend on this machine may use another port now
        backend = key.backend if key.backend in config.backends else config.backends[0]
        current = replace(key, backend=backend, replicas=_replicas(config.backends))
        if current != key:
            with suppress(OSError):  # then a list without any of these addresses needs another enrolment
                store_key(config.key_path, current)
        return current
    if config.token_file is not None:
        return enrol_with_file(config)
    raise EnrolError(
        f"The key in {config.key_path} is for {key.backend}, not {_listed(config)}; it is not sent to another backend. "
        f"Enrol with the new backend: coresteer-agent enrol --backend {_listed(config)} --token TOKEN"
    )
