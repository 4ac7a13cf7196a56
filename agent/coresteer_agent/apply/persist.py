"""``coresteer-agent persist``: select settings whose confirmed values the agent applies again after a reboot."""

from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal, JournalError, read_boot_id
from coresteer_agent.apply.persisted_file import (
    Persisted,
    PersistedSetting,
    persisted_path,
    read_persisted,
    write_persisted,
)
from coresteer_agent.collect.interrupts import read_descriptions
from coresteer_core.changes.events import Change
from coresteer_core.changes.plan import Action
from coresteer_core.changes.report import ChangeState, Outcome
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View
from coresteer_core.policies.base import PERSISTED_POLICY
from coresteer_core.settings import Setting, SettingError, parse_setting


class PersistError(Exception):
    """Raised if a setting cannot be persisted or is not; the message is a sentence for the operator."""


def persist(path: Path, root: Path, keys: Sequence[str]) -> list[PersistedSetting]:
    """Persist the values that confirmed changes of people gave these settings, and return them; all or none.

    path: of the journal. Raises PersistError, PersistedFileError, JournalError or OSError.
    """
    journal = Journal(path, root)
    try:
        with journal.locked():  # the agent and another command write the file, too
            changes, originals = journal.changes(), journal.originals()
            # verify only reads, so it needs no View
            executor = Executor(root, journal, lambda: View(Topology([], [], []), Inventory([], [])))
            selected = [_select(executor, root, changes, originals, key) for key in keys]
            file = persisted_path(path)
            before = read_persisted(file)
            boot_id = before.boot_id if before.settings else read_boot_id(root)
            kept = [each for each in before.settings if each.key not in {one.key for one in selected}]
            write_persisted(file, Persisted(boot_id, kept + selected))
            return selected
    finally:
        journal.close()


def remove_persisted(path: Path, root: Path, keys: Sequence[str]) -> None:
    """Persist these settings no longer; their present values stay. path, errors: as for persist()."""
    journal = Journal(path, root)
    try:
        with journal.locked():
            file = persisted_path(path)
            before = read_persisted(file)
            if unknown := [key for key in keys if key not in {each.key for each in before.settings}]:
                raise PersistError(f"{unknown[0]} is not persisted; coresteer-agent persist --list lists what is.")
            write_persisted(file, Persisted(before.boot_id, [each for each in before.settings if each.key not in keys]))
    finally:
        journal.close()


def list_persisted(path: Path, root: Path) -> list[str]:
    """Return a line for each persisted setting, with its present value if that is another one. Errors: as persist()."""
    settings = read_persisted(persisted_path(path)).settings
    if not settings:
        return []
    interrupts = [(number, each.name) for number, each in (read_descriptions(root) or {}).items()]
    with closing(Journal(path, root)) as journal:
        executor = Executor(root, journal, lambda: View(Topology([], [], []), Inventory([], [])))
        return [each.sentence + _present(executor, each, each.resolve(interrupts)) for each in settings]


def _present(executor: Executor, persisted: PersistedSetting, key: str | None) -> str:
    result = None if key is None else executor.verify(Action(key, "", persisted.value, ""))
    if result is None or result.outcome is not Outcome.FAILED or result.found is None:
        return ""
    return f"; at present {parse_setting(result.key).format_value(result.found)}"


def forget_persisted(path: Path, root: Path) -> bool:
    """Persist nothing any more; return whether anything was persisted. path: of the journal. Raises OSError."""
    file = persisted_path(path)
    if not file.exists():
        return False
    with ExitStack() as stack:
        with suppress(JournalError):  # with a lost journal, no agent writes the file
            journal = stack.enter_context(closing(Journal(path, root)))
            stack.enter_context(journal.locked())
        file.unlink(missing_ok=True)
    return True


def _select(
    executor: Executor, root: Path, changes: list[Change], originals: dict[str, str], key: str
) -> PersistedSetting:
    try:
        setting = parse_setting(key)
    except SettingError as error:
        raise PersistError(str(error)) from error
    if setting.process is not None:
        raise PersistError(
            f"{key} cannot be persisted: after a reboot, PID {setting.process} is another process. "
            "Set CPUAffinity=, Nice= or NUMAMask= of its systemd unit."
        )
    latest = next((change for change in reversed(changes) if _sets(change, key)), None)
    if latest is None or key not in originals:
        raise PersistError(f"No change of Coresteer has set {setting.describe()} since the last boot.")
    if latest.open:
        raise PersistError(f"Change {latest.change_id}, which has set {setting.describe()}, is not confirmed yet.")
    if latest.policy not in ("", PERSISTED_POLICY):
        raise PersistError(
            f"Policy {latest.policy} has set {setting.describe()}; it writes its value again after a reboot."
        )
    value = next(action.becomes for action in latest.plan.actions if action.key == key)
    result = executor.verify(Action(key, "", value, ""))
    if result.outcome is not Outcome.UNCHANGED:
        raise PersistError(result.sentence)
    return PersistedSetting(key, value, _interrupt_name(root, setting), latest.plan.allow_isolated)


def _sets(change: Change, key: str) -> bool:
    applies = change.open or change.state is ChangeState.CONFIRMED
    return applies and not change.restores and any(action.key == key for action in change.undo.actions)


def _interrupt_name(root: Path, setting: Setting) -> str:
    """Return the name by which an interrupt is found after a reboot; empty for other settings. Raises PersistError."""
    if setting.interrupt is None:
        return ""
    names = {number: each.name for number, each in (read_descriptions(root) or {}).items()}
    name = names.get(setting.interrupt, "")
    same = sum(other == name for other in names.values())
    if not name or same > 1:
        why = f"{same} interrupts are named {name}" if name else "it has no name in /proc/interrupts"
        raise PersistError(
            f"{setting.key} cannot be persisted: its number may be another one after a reboot, and {why}."
        )
    return name
