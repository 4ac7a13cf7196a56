"""Enrolment of simulated nodes: request their keys once with an enrolment token, then store them."""

import fcntl
from pathlib import Path

import msgspec

from coresteer_agent.transport.enrol import EnrolError, request_keys

_FILE = "simulated-keys.json"
_CA = ".ca"
"""Entry beside the keys of the nodes, whose names begin with sim: the authority that is pinned, PEM."""


class SimulationError(Exception):
    """Raised if the simulation cannot start; the message says what to do."""


def node_names(nodes: int, cpus: int) -> list[str]:
    """Return the nodes' names, ``sim64-0001`` and so on, with the number of CPUs to distinguish fleets."""
    return [f"sim{cpus}-{number:04}" for number in range(1, nodes + 1)]


def read_token(path: Path) -> str:
    """Return the enrolment token in a file. Raises SimulationError."""
    try:
        return path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SimulationError(f"The token file {path} cannot be read: {error}.") from None


def load_or_request_keys(names: list[str], *, backend: str, token: str | None, state_dir: Path) -> dict[str, str]:
    """Return the key of each node: a new one if a token is given, else the stored one. Raises SimulationError."""
    keys = _read_keys(state_dir).get(backend, {})
    if token is not None:
        requested = _enrol(names, backend, token)
        _store_keys(state_dir, backend, requested)
        keys = keys | requested
    if missing := [name for name in names if name not in keys]:
        raise SimulationError(
            f"{len(missing)} of the nodes, starting with {missing[0]}, have no key for {backend} yet. Create an "
            "enrolment token for simulated nodes on the settings page and start again with --token."
        )
    return {name: keys[name] for name in names}


def pinned_ca(backend: str, state_dir: Path) -> str:
    """Return the only authority, PEM, that may sign the backend's certificate, empty if none was named."""
    return _read_keys(state_dir).get(backend, {}).get(_CA, "")


def _enrol(names: list[str], backend: str, token: str) -> dict[str, str]:
    try:
        nodes, ca = request_keys(backend, token, names)
    except EnrolError as error:
        raise SimulationError(str(error)) from None
    return {node.name: node.key for node in nodes} | ({_CA: ca} if ca else {})


def _read_keys(state_dir: Path) -> dict[str, dict[str, str]]:
    path = state_dir / _FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, str]])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise SimulationError(
            f"The keys in {path} cannot be read ({error}); remove the file and enrol again."
        ) from None


def _store_keys(state_dir: Path, backend: str, keys: dict[str, str]) -> None:
    """Add keys to the stored ones; simulations may do so at the same time."""
    path = state_dir / _FILE
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            stored = _read_keys(state_dir)
            new = path.with_suffix(".new")
            new.touch(mode=0o600)
            new.write_bytes(msgspec.json.encode(stored | {backend: stored.get(backend, {}) | keys}))
            new.replace(path)
    except OSError as error:
        raise SimulationError(f"The keys cannot be stored in {path} ({error}).") from None
