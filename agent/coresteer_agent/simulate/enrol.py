"""Keys of simulated nodes: asked for once with a one-time token, then kept."""

from pathlib import Path

import msgspec

from coresteer_agent.transport.enrol import EnrolError, request_keys

_FILE = "simulated-keys.json"


class SimulationError(Exception):
    """The simulation cannot start; the message says what to do."""


def names(nodes: int, cpus: int) -> list[str]:
    """``sim64-0001`` and on: fleets of different machines on one backend do not take each other's names."""
    return [f"sim{cpus}-{number:04}" for number in range(1, nodes + 1)]


def keys_for(wanted: list[str], *, backend: str, token: str | None, state_dir: Path) -> dict[str, str]:
    """Each name's key: the kept ones when no token is given, else new ones. Raises SimulationError."""
    kept = _kept(state_dir).get(backend, {})
    if token is not None:
        kept = kept | _enrol(wanted, backend, token)
        _keep(state_dir, backend, kept)
    if missing := [name for name in wanted if name not in kept]:
        raise SimulationError(
            f"{len(missing)} of the nodes, from {missing[0]} on, have no key for {backend} yet. Make an enrolment "
            "token for simulated nodes on the settings page and start again with --token."
        )
    return {name: kept[name] for name in wanted}


def _enrol(wanted: list[str], backend: str, token: str) -> dict[str, str]:
    try:
        return {node.name: node.key for node in request_keys(backend, token, wanted)}
    except EnrolError as error:
        raise SimulationError(str(error)) from None


def _kept(state_dir: Path) -> dict[str, dict[str, str]]:
    path = state_dir / _FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, str]])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise SimulationError(
            f"The keys in {path} cannot be read ({error}); remove the file and enrol again."
        ) from None


def _keep(state_dir: Path, backend: str, keys: dict[str, str]) -> None:
    path = state_dir / _FILE
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = path.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_bytes(msgspec.json.encode(_kept(state_dir) | {backend: keys}))
        new.replace(path)
    except OSError as error:
        raise SimulationError(f"The keys cannot be kept in {path} ({error}).") from None
