"""Keys of simulated nodes: asked for once with a one-time token, then kept."""

import json
import urllib.error
import urllib.request
from pathlib import Path

import msgspec

from coresteer_agent.config import is_loopback

_FILE = "simulated-keys.json"
_TIMEOUT_S = 60


class SimulationError(Exception):
    """The simulation cannot start; the message says what to do."""


class _Enrolled(msgspec.Struct):
    node_id: int
    name: str
    key: str


class _Answer(msgspec.Struct):
    nodes: list[_Enrolled]


def names(nodes: int) -> list[str]:
    """``sim-0001`` and on."""
    return [f"sim-{number:04}" for number in range(1, nodes + 1)]


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
    request = urllib.request.Request(  # noqa: S310 - config.check_backend allows http and https only
        f"{backend}/api/enrol",
        data=json.dumps({"token": token, "names": wanted}).encode(),
        headers={"Content-Type": "application/json"},
    )
    # a proxy from the environment is for the world outside, not for this machine
    handlers = [urllib.request.ProxyHandler({})] if is_loopback(backend) else []
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=_TIMEOUT_S) as answer:
            nodes = msgspec.json.decode(answer.read(), type=_Answer).nodes
    except urllib.error.HTTPError as error:
        raise SimulationError(f"The backend refused the enrolment ({error.code}): {_detail(error)}") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise SimulationError(f"Enrolling at {backend} failed: {error}") from None
    return {node.name: node.key for node in nodes}


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        problem = json.loads(error.read())
        return str(problem.get("detail") or problem.get("title") or error.reason)
    except (OSError, ValueError, AttributeError):
        return str(error.reason)


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
