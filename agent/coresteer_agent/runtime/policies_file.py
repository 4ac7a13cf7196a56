"""File with the policies in force on a node and the settings that they hold: state_dir/agent/policies.json."""

import logging
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from coresteer_agent.apply.journal import read_boot_id
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.files import read_bytes
from coresteer_agent.collect.tasks import parse_task_stat
from coresteer_agent.linux.atomic_file import replace_file
from coresteer_agent.runtime.policy_state import PolicyState
from coresteer_agent.state_upgrade import FORMAT, upgrade
from coresteer_core.policies.engine_state import EngineMemory
from coresteer_core.settings import parse_setting

log = logging.getLogger("coresteer.policies")


class _Format(Struct, frozen=True):
    format: int = 1


class _File(Struct, frozen=True):
    boot_id: str
    state: PolicyState
    format: int = FORMAT


def settings_absent_from_views(keys: Iterable[str]) -> list[str]:
    """Return the keys of settings that may exist without being in a View, except those of processes."""
    settings = [parse_setting(key) for key in keys]
    return [setting.key for setting in settings if not setting.complete_in_view and setting.process is None]


class PoliciesFile:
    """Reads and writes the policies file of one root directory. An error is logged once; the agent continues."""

    def __init__(self, path: Path, root: Path) -> None:
        self._path = path
        self._root = root
        self._boot_id = read_boot_id(root)
        self._last_error = ""

    def read(self) -> PolicyState:
        """Return the last saved state, after a reboot only policies and stops; an empty state if it cannot be read."""
        try:
            text = self._path.read_bytes()
            written = msgspec.json.decode(text, type=_Format).format
            file = msgspec.json.decode(upgrade(text, written), type=_File)
        except FileNotFoundError:
            return PolicyState()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning(
                "The policies in %s cannot be read (%s); they start again when the backend sends them.",
                self._path,
                error,
            )
            return PolicyState()
        state = file.state
        if file.boot_id == self._boot_id:
            return state
        return PolicyState(state.policies, stops=state.stops, restored=state.restored, hold_from_ms=state.hold_from_ms)

    def write(self, state: PolicyState) -> None:
        """Replace the policies file atomically; it is on disk (fsync) on return."""
        try:
            replace_file(self._path, msgspec.json.encode(_File(self._boot_id, state)))
            self._last_error = ""
        except OSError as error:
            if self._last_error != str(error):
                self._last_error = str(error)
                log.error(
                    "The policies cannot be written to %s: %s. A restarted agent will not know them.", self._path, error
                )

    def settings_of_ended_processes(self, memory: EngineMemory) -> list[str]:
        """Return the keys of held and yielded settings whose process has ended."""
        pids = {key: parse_setting(key).process for key in (*memory.holdings, *memory.yielded)}
        return [key for key, pid in pids.items() if pid is not None and not self._runs(pid, key, memory)]

    def _runs(self, pid: int, key: str, memory: EngineMemory) -> bool:
        path = f"proc/{pid}/stat"
        text = read_bytes(self._root, path)
        if text is None:
            return False
        try:
            started_ticks = parse_task_stat(text, path).started_ticks
        except ParseError:
            return False
        return started_ticks == memory.processes.get(key, started_ticks)
