"""The one door to the kernel: every write to what the agent found goes through Executor.apply, steer or undo.

(collect.irq asks by a write that the kernel refuses before it looks at it; that one can change nothing. Workloads of
experiments write to what they made themselves.)
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from coresteer_agent.apply.journal import Journal, JournalError
from coresteer_agent.apply.netdev_common import NOT_SUPPORTED, NOT_THIS_VALUE
from coresteer_agent.apply.registry import Tunable
from coresteer_agent.apply.rooted import ReadOnlyModeError
from coresteer_core.changes.guard import Refusal, refusals
from coresteer_core.changes.plan import Action
from coresteer_core.changes.report import Outcome, Result
from coresteer_core.node.view import View
from coresteer_core.policies.coalescing.effective import WriteAttempt
from coresteer_core.settings import Setting, SettingError, parse_setting

_LONG = 80


class Executor:
    """Carries out actions below a root directory.

    view_source: the node as it is now, asked before each write. attempted: is told what became of each write.
    """

    def __init__(
        self,
        root: Path,
        journal: Journal,
        view_source: Callable[[], View],
        attempted: Callable[[WriteAttempt], None] = lambda _: None,
    ) -> None:
        self._root = root
        self._journal = journal
        self._view = view_source
        self._attempted = attempted
        self._steered: dict[str, str] = {}
        """What steer() wrote last, as long as it stands."""

    def apply(self, action: Action, *, change_id: str, allow_isolated: bool = False) -> Result:
        """Known? supported? guard, read, journal, write only if different, read back. Never raises for an action."""
        try:
            setting = parse_setting(action.key)
            was, wanted = setting.canonical(action.was), setting.canonical(action.becomes)
        except SettingError as error:
            return Result(action.key, Outcome.REFUSED, str(error))
        try:
            with self._journal.locked():
                return self._apply(setting, was, wanted, change_id, allow_isolated=allow_isolated)
        except (OSError, JournalError) as error:
            sentence = f"The journal cannot be written ({reason(error)}), so {setting.describe()} was left alone."
            return _result(setting, Outcome.FAILED, sentence)

    def _apply(  # noqa: PLR0911 - one return a stage of the door
        self, setting: Setting, was: str, wanted: str, change_id: str, *, allow_isolated: bool
    ) -> Result:
        if (missing := self._missing(setting)) is not None:
            return missing
        if self._moved_on(setting) is not None:
            self._journal.restored(setting.key)
        original = self._journal.originals().get(setting.key)
        if original is not None and _shows(setting, original, wanted):
            wanted = original  # odd as it may be, as in undo
        elif against := self._against(setting, wanted, allow_isolated=allow_isolated):
            return _result(setting, Outcome.REFUSED, " ".join(refusal.sentence for refusal in against))
        found = self._read(setting)
        if isinstance(found, Result):
            return found
        if self._is(setting, found, wanted):
            sentence = f"{setting.describe()} is on {brief(wanted)} already."
            return _result(setting, Outcome.UNCHANGED, sentence, found, found)
        if not _shows(setting, found, was):
            sentence = (
                f"{setting.describe()} was {brief(was)} when this was previewed and is {brief(found)} now; "
                "preview again."
            )
            return _result(setting, Outcome.REFUSED, sentence, found)
        first = setting.key not in self._journal.originals()
        self._journal.writing(change_id, setting.key, found, Tunable(self._root, setting).owners())
        done = f"{setting.describe()} went from {brief(found)} to {brief(wanted)}."
        result = self._write(setting, wanted, found, done)
        self._steered.pop(setting.key, None)
        if first and not result.done and result.read_back == found:
            # it was never changed, so whatever somebody else makes of it later is not restore's to overwrite
            return self._as_before(setting, result)
        return result

    def steer(self, action: Action) -> Result:
        """Give a setting that a change has written another value: guard, as expected? write, read back.

        For values that follow what is measured several times a second, where an entry in the journal for each would be
        as many writes to disk. Undo works nevertheless: what it puts back is the original, whatever stands there, and
        that has been on disk since before the change's first write. So only a setting whose original the journal has
        is written, of the same owner, and the original stays there even where this value is the same. A setting that
        does not show action.was was moved by somebody else, which is the policy's to find and to say.
        """
        try:
            setting = parse_setting(action.key)
            was, wanted = setting.canonical(action.was), setting.canonical(action.becomes)
        except SettingError as error:
            return Result(action.key, Outcome.REFUSED, str(error))
        try:
            with self._journal.locked():
                return self._steer(setting, was, wanted)
        except (OSError, JournalError) as error:
            sentence = f"The journal cannot be read ({reason(error)}), so {setting.describe()} was left alone."
            return _result(setting, Outcome.FAILED, sentence)

    def _steer(self, setting: Setting, was: str, wanted: str) -> Result:
        if (missing := self._moved_on(setting) or self._missing(setting)) is not None:
            return missing
        if setting.key not in self._journal.originals():
            sentence = f"No change that stands has set {setting.describe()}, so it is not steered."
            return _result(setting, Outcome.REFUSED, sentence)
        if against := self._against(setting, wanted, allow_isolated=False):
            return _result(setting, Outcome.REFUSED, " ".join(refusal.sentence for refusal in against))
        found = self._read(setting)
        if isinstance(found, Result):
            return found
        if not _shows(setting, found, was):
            sentence = (
                f"{setting.describe()} is on {brief(found)} instead of {brief(was)}: something else has moved it."
            )
            return _result(setting, Outcome.REFUSED, sentence, found, found)
        done = f"{setting.describe()} went from {brief(found)} to {brief(wanted)}."
        result = self._write(setting, wanted, found, done)
        if result.done:
            self._steered[setting.key] = wanted
        return result

    def undo(self, action: Action) -> Result:
        """Put action.becomes back, whatever stands there now; empty action.was means that nothing was expected.

        The guard is not asked: the value stood there before, odd as it may be (kernels boot with masks
        that name CPUs which are offline), and undo always works, also when the journal does not.
        """
        try:
            setting = parse_setting(action.key)
            wanted = setting.canonical(action.becomes)
        except SettingError as error:
            return Result(action.key, Outcome.REFUSED, str(error))
        try:
            with self._journal.locked():
                wanted = self._precisely(setting, wanted)
                was = self._steered.pop(setting.key, action.was)
                result = self._moved_on(setting) or self._return(setting, wanted, was)
                original = self._journal.originals().get(setting.key)
                stands = result.done and original is not None and setting.equal(original, wanted)
                if stands or result.outcome is Outcome.UNSUPPORTED:
                    return self._as_before(setting, result)
                return result
        except (OSError, JournalError) as error:
            return _unnoted(self._return(setting, wanted, action.was), error)

    def restoring_actions(self, keys: Iterable[str]) -> list[Action]:
        """What undoes whatever another program makes of settings, given that they stand as now; those that can be read.

        Raises SettingError for what is not a setting.
        """
        found = [(key, self._read(parse_setting(key))) for key in keys]
        return [Action(key, "", value, "") for key, value in found if isinstance(value, str)]

    def delegate(self, change_id: str, actions: Iterable[Action]) -> None:
        """Note the originals of settings that another program is about to write. Raises OSError or JournalError.

        actions: as standing() gave them.
        """
        knobs = {action: Tunable(self._root, parse_setting(action.key)) for action in actions}
        self._journal.delegating(change_id, {a.key: (a.becomes, k.owners()) for a, k in knobs.items()})

    def gone(self, key: str) -> bool:
        """Whether the node has a setting no more that was written here, or it is another one's by now."""
        setting = parse_setting(key)
        missing = self._moved_on(setting) or self._missing(setting)
        return missing is not None and missing.outcome is Outcome.UNSUPPORTED

    def verify(self, action: Action) -> Result:
        """Whether a setting still has the value that an action gave it: unchanged, failed or unsupported."""
        try:
            setting = parse_setting(action.key)
            wanted = setting.canonical(action.becomes)
        except SettingError as error:
            return Result(action.key, Outcome.REFUSED, str(error))
        if (missing := self._moved_on(setting) or self._missing(setting)) is not None:
            return missing
        found = self._read(setting)
        if isinstance(found, Result):
            return found
        if _shows(setting, found, wanted):
            return _result(setting, Outcome.UNCHANGED, f"{setting.describe()} is on {brief(found)}.", found, found)
        sentence = f"{setting.describe()} is on {brief(found)} instead of {brief(wanted)}: something else has moved it."
        return _result(setting, Outcome.FAILED, sentence, found, found)

    def _return(self, setting: Setting, wanted: str, was: str) -> Result:
        if (missing := self._missing(setting)) is not None:
            return missing
        now = self._read(setting)
        found = None if isinstance(now, Result) else now
        if found is not None and self._is(setting, found, wanted):
            sentence = f"{setting.describe()} is on {brief(wanted)} as before."
            return _result(setting, Outcome.UNCHANGED, sentence, found, found)
        sentence = f"{setting.describe()} is back on {brief(wanted)}."
        if was and found is not None and not setting.equal(found, was):
            sentence += f" It stood at {brief(found)} instead of {brief(was)}: something else had changed it meanwhile."
        return self._write(setting, wanted, found, sentence)

    def _as_before(self, setting: Setting, result: Result) -> Result:
        try:
            self._journal.restored(setting.key)
        except OSError as error:
            return _unnoted(result, error)
        return result

    def _precisely(self, setting: Setting, wanted: str) -> str:
        """The value, or the original where that is what a view would show as this value: it may hold more."""
        original = self._journal.originals().get(setting.key)
        return original if original is not None and _shows(setting, original, wanted) else wanted

    def _against(self, setting: Setting, wanted: str, *, allow_isolated: bool) -> list[Refusal]:
        view = Tunable(self._root, setting).refresh(self._view())
        return refusals(view, [(setting.key, wanted)], allow_isolated=allow_isolated)

    def _is(self, setting: Setting, found: str, wanted: str) -> bool:
        with suppress(OSError, SettingError):  # then the write says why
            wanted = Tunable(self._root, setting).attainable(wanted)
        return setting.equal(found, wanted)

    def _moved_on(self, setting: Setting) -> Result | None:
        """That the number went to another device since it was written here, as when a driver is loaded again."""
        before, now = self._journal.owners(setting.key), Tunable(self._root, setting).owners()
        if not before or not now or set(before) & set(now):
            return None
        sentence = f"{setting.describe()} is gone: it belongs to {', '.join(now)} now, it was {', '.join(before)}'s."
        return _result(setting, Outcome.UNSUPPORTED, sentence)

    def _missing(self, setting: Setting) -> Result | None:
        try:
            if Tunable(self._root, setting).exists():
                return None
        except OSError as error:
            return _result(setting, Outcome.FAILED, f"{setting.describe()} cannot be looked at: {error.strerror}.")
        return _result(setting, Outcome.UNSUPPORTED, f"{setting.describe()} is not on this node (any more).")

    def _read(self, setting: Setting) -> str | Result:
        try:
            return Tunable(self._root, setting).read()
        except OSError as error:
            sentence = f"The value of {setting.describe()} cannot be read: {error.strerror}."
        except SettingError as error:
            sentence = f"The value of {setting.describe()} cannot be understood: {error}"
        return _result(setting, Outcome.FAILED, sentence)

    def _write(self, setting: Setting, wanted: str, found: str | None, done: str) -> Result:
        try:
            Tunable(self._root, setting).write(wanted)
        except (OSError, ReadOnlyModeError) as error:
            outcome, why = Tunable(self._root, setting).explain(error)
            after = self._read(setting)
            if isinstance(error, OSError) and error.errno in NOT_THIS_VALUE:
                self._attempted(WriteAttempt(setting, wanted, found, None, why, error.errno in NOT_SUPPORTED))
            return _result(
                setting,
                outcome,
                f"{setting.describe()} cannot go to {brief(wanted)}. {why}",
                found,
                None if isinstance(after, Result) else after,
            )
        after = self._read(setting)
        if isinstance(after, Result):
            return _result(setting, Outcome.FAILED, f"{done} But it could not be read back: {after.sentence}", found)
        stands = self._is(setting, after, wanted)
        self._attempted(WriteAttempt(setting, wanted, found, wanted if stands else after))
        if not stands:
            sentence = f"{setting.describe()} was set to {brief(wanted)}, but the kernel made it {brief(after)}."
            return _result(setting, Outcome.FAILED, sentence, found, after)
        return _result(setting, Outcome.APPLIED, done, found, after)


def _shows(setting: Setting, first: str, second: str) -> bool:
    """Whether a view shows the same for two values."""
    return setting.equal(setting.shown(first), setting.shown(second))


def reason(error: OSError | JournalError) -> str:
    """Why the journal could not be used, to stand within a sentence."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error).rstrip(".")


def _unnoted(result: Result, error: OSError | JournalError) -> Result:
    return replace(result, sentence=f"{result.sentence} The journal could not note it: {reason(error)}.")


def brief(value: str) -> str:
    """A value for a sentence; a long one is cut."""
    return value if len(value) <= _LONG else f"{value[:_LONG]}…"


def _result(
    setting: Setting, outcome: Outcome, sentence: str, found: str | None = None, after: str | None = None
) -> Result:
    return Result(setting.key, outcome, sentence, found, after)
