"""The one door to the kernel: every write of Coresteer goes through Executor.apply or Executor.undo."""

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from coresteer_agent.apply import irq_affinity
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.rooted import ReadOnlyModeError
from coresteer_core.guard import refusals
from coresteer_core.model import View
from coresteer_core.plan import Action
from coresteer_core.protocol import Result
from coresteer_core.settings import Setting, SettingError, parse_setting


class Executor:
    """Carries out actions below a root directory. view_source: the node as it is now, asked before each write."""

    def __init__(self, root: Path, journal: Journal, view_source: Callable[[], View]) -> None:
        self._root = root
        self._journal = journal
        self._view = view_source

    def apply(  # noqa: PLR0911 - one return a stage of the door
        self, action: Action, *, change_id: str, allow_isolated: bool = False
    ) -> Result:
        """Known? supported? guard, read, journal, write only if different, read back. Never raises for an action."""
        try:
            setting = parse_setting(action.key)
            was, wanted = setting.canonical(action.was), setting.canonical(action.becomes)
        except SettingError as error:
            return Result(action.key, "refused", str(error))
        with self._journal.locked():
            if (missing := self._missing(setting)) is not None:
                return missing
            if against := refusals(self._view(), [(action.key, wanted)], allow_isolated=allow_isolated):
                return Result(action.key, "refused", " ".join(refusal.sentence for refusal in against))
            found = self._read(setting)
            if isinstance(found, Result):
                return found
            if setting.cpus(found) == setting.cpus(wanted):
                return _result(setting, "unchanged", f"{_name(setting)} is on {wanted} already.", found, found)
            if setting.cpus(found) != setting.cpus(was):
                return _result(
                    setting,
                    "refused",
                    f"{_name(setting)} was {was} when this was previewed and is {found} now; preview again.",
                    found,
                )
            try:
                self._journal.writing(change_id, setting.key, found)
            except OSError as error:
                sentence = f"The journal cannot be written ({error.strerror}), so {_name(setting)} was left alone."
                return _result(setting, "failed", sentence, found, found)
            return self._write(setting, wanted, found, f"{_name(setting)} went from {found} to {wanted}.")

    def undo(self, action: Action) -> Result:
        """Put action.becomes back, whatever stands there now; empty action.was means that nothing was expected.

        The guard is not asked: the value stood there before, odd as it may be (kernels boot with masks
        that name CPUs which are offline), and undo always works.
        """
        try:
            setting = parse_setting(action.key)
            wanted = setting.canonical(action.becomes)
        except SettingError as error:
            return Result(action.key, "refused", str(error))
        with self._journal.locked():
            if (missing := self._missing(setting)) is not None:
                return self._as_before(setting, missing) if missing.outcome == "unsupported" else missing
            now = self._read(setting)
            found = None if isinstance(now, Result) else now
            if found is not None and setting.cpus(found) == setting.cpus(wanted):
                result = _result(setting, "unchanged", f"{_name(setting)} is on {wanted} as before.", found, found)
            else:
                sentence = f"{_name(setting)} is back on {wanted}."
                if action.was and found is not None and setting.cpus(found) != setting.cpus(action.was):
                    sentence += f" It stood at {found} instead of {action.was}: something else had moved it meanwhile."
                result = self._write(setting, wanted, found, sentence)
            original = self._journal.originals().get(setting.key)
            done = result.outcome in ("applied", "unchanged")
            if done and original is not None and setting.cpus(original) == setting.cpus(wanted):
                return self._as_before(setting, result)
            return result

    def _as_before(self, setting: Setting, result: Result) -> Result:
        try:
            self._journal.restored(setting.key)
        except OSError as error:
            return replace(result, sentence=f"{result.sentence} The journal could not note it: {error.strerror}.")
        return result

    def _missing(self, setting: Setting) -> Result | None:
        try:
            if irq_affinity.exists(self._root, setting):
                return None
        except OSError as error:
            return _result(setting, "failed", f"{_name(setting)} cannot be looked at: {error.strerror}.")
        return _result(setting, "unsupported", f"{_name(setting)} is not on this node (any more).")

    def _read(self, setting: Setting) -> str | Result:
        try:
            return irq_affinity.read(self._root, setting)
        except OSError as error:
            sentence = f"The affinity of {_name(setting)} cannot be read: {error.strerror}."
        except SettingError as error:
            sentence = f"The affinity of {_name(setting)} cannot be understood: {error}"
        return _result(setting, "failed", sentence)

    def _write(self, setting: Setting, wanted: str, found: str | None, done: str) -> Result:
        try:
            irq_affinity.write(self._root, setting, wanted)
        except (OSError, ReadOnlyModeError) as error:
            outcome, why = irq_affinity.explain(error)
            after = self._read(setting)
            return _result(
                setting,
                outcome,
                f"{_name(setting)} cannot go to {wanted}. {why}",
                found,
                None if isinstance(after, Result) else after,
            )
        after = self._read(setting)
        if isinstance(after, Result):
            return _result(setting, "failed", f"{done} But it could not be read back: {after.sentence}", found)
        if setting.cpus(after) != setting.cpus(wanted):
            sentence = f"{_name(setting)} was set to {wanted}, but the kernel made it {after}."
            return _result(setting, "failed", sentence, found, after)
        return _result(setting, "applied", done, found, after)


def _name(setting: Setting) -> str:
    return f"IRQ {setting.irq}"


def _result(
    setting: Setting, outcome: str, sentence: str, found: str | None = None, after: str | None = None
) -> Result:
    return Result(setting.key, outcome, sentence, found, after)
