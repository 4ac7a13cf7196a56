"""The executor, the agent's single write path to the kernel: Executor.apply, steer and undo.

Two writes do not pass it: collect.irq detects managed interrupts by a write that the kernel refuses before it reads the
value, and workloads of experiments write to objects that they created.
"""

import logging
import os
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar  # Any: a handler takes only settings of its own kind

from msgspec.structs import replace

from coresteer_agent.apply.handler import Handler
from coresteer_agent.apply.journal import Journal, JournalError
from coresteer_agent.apply.netdev_common import REJECTED_ERRNOS, UNSUPPORTED_ERRNOS
from coresteer_agent.apply.registry import Tunable
from coresteer_agent.apply.results import journal_error_text, not_recorded, result_of, shorten_value
from coresteer_agent.apply.rooted import ReadOnlyModeError
from coresteer_agent.apply.task_common import own_and_ancestors
from coresteer_agent.collect.netdev import netdev_names
from coresteer_core.changes.guard import Refusal, combined_refusals, refusals
from coresteer_core.changes.plan import Action, in_write_order
from coresteer_core.changes.report import Outcome, Result
from coresteer_core.node.view import View
from coresteer_core.policies.coalescing.effective import WriteAttempt
from coresteer_core.settings import Setting, SettingError, parse_setting
from coresteer_core.settings.cgroup import OfCgroup
from coresteer_core.settings.netdev import NetdevSetting
from coresteer_core.settings.task import OfTask

_log = logging.getLogger(__name__)

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""A write that pauses after each part that takes long, for other work, and returns its result at the end."""


def run_steps(steps: Steps[T]) -> T:
    """Run a write to its end without pauses and return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


class Executor:
    """Applies, steers, undoes and verifies actions on the settings of the machine below a root directory.

    view_source: returns the node's present View, called before each write. attempted: called with the result of each
    write. handler: reads and writes every setting; None for the handler of each setting's kind.
    """

    def __init__(
        self,
        root: Path,
        journal: Journal,
        view_source: Callable[[], View],
        attempted: Callable[[WriteAttempt], None] = lambda _: None,
        *,
        handler: Handler[Any] | None = None,
    ) -> None:
        self._root = root
        self._journal = journal
        self._view = view_source
        self._attempted = attempted
        self._handler = handler
        self._steered: dict[str, str] = {}
        """Values last written by steer(), by key."""

    def apply(self, action: Action, *, change_id: str, allow_isolated: bool = False) -> Result:
        """Apply an action: check support and guard, read, journal the original, write if different, read back.

        Never raises; the Result's outcome and sentence state which step failed.
        """
        return run_steps(self.apply_in_steps(action, change_id=change_id, allow_isolated=allow_isolated))

    def refuse_together(self, actions: Iterable[Action]) -> Result | None:
        """Return the first reason why the values of a plan must not be set together; None if they may.

        An invalid action is left out: apply() refuses it.
        """
        values: dict[str, str] = {}
        for action in actions:
            with suppress(SettingError):
                values[action.key] = parse_setting(action.key).canonical(action.becomes)
        refused = next(iter(combined_refusals(self._view(), values)), None)
        return None if refused is None else Result(refused.key, Outcome.REFUSED, refused.sentence)

    def apply_in_steps(self, action: Action, *, change_id: str, allow_isolated: bool = False) -> Steps[Result]:
        """Apply an action as apply() does, with pauses in a write that takes long. The journal stays locked."""
        write = partial(self._apply, change_id=change_id, allow_isolated=allow_isolated)
        return self._locked(action, write, "written")

    def _locked(self, action: Action, write: Callable[[Setting, str, str], Steps[Result]], need: str) -> Steps[Result]:
        """Parse an action and write it while the journal is locked; return the write's Result.

        write: called with the setting and the action's canonical values was and becomes. need: ``read`` or ``written``,
        for the sentence about a journal that cannot be used.
        """
        try:
            setting = parse_setting(action.key)
            was, value = setting.canonical(action.was), setting.canonical(action.becomes)
        except SettingError as error:
            return Result(action.key, Outcome.REFUSED, str(error))
        try:
            with self._journal.locked():
                return (yield from write(setting, was, value))
        except (OSError, JournalError) as error:
            sentence = (
                f"The journal cannot be {need} ({journal_error_text(error)}), so {setting.describe()} was not changed."
            )
            return result_of(setting, Outcome.FAILED, sentence)

    def _apply(  # noqa: PLR0911 - one return a stage
        self, setting: Setting, was: str, value: str, *, change_id: str, allow_isolated: bool
    ) -> Steps[Result]:
        if (unsupported := self._unsupported(setting)) is not None:
            return unsupported
        if self._reassigned(setting) is not None:
            self._journal.record_restored(setting.key)
        original = self._journal.originals().get(setting.key)
        if original is not None and _same_in_view(setting, original, value):
            value = original  # even where the guard would refuse it, as in undo
        elif found_refusals := self._refusals(setting, value, allow_isolated=allow_isolated):
            return result_of(setting, Outcome.REFUSED, " ".join(refusal.sentence for refusal in found_refusals))
        found = self._read(setting)
        if isinstance(found, Result):
            return found
        if (foreign := self._foreign(setting, found)) is not None:
            return foreign
        if self._has_value(setting, found, value):
            sentence = f"{setting.describe()} is already set to {shorten_value(value)}."
            return result_of(setting, Outcome.UNCHANGED, sentence, found, found)
        if not _same_in_view(setting, found, was):
            sentence = (
                f"{setting.describe()} was {shorten_value(was)} when this was previewed and is "
                f"{shorten_value(found)} now; preview again."
            )
            return result_of(setting, Outcome.REFUSED, sentence, found)
        first = setting.key not in self._journal.originals()
        self._journal.record_original(change_id, setting.key, found, self._tunable(setting).owners())
        done = f"{setting.describe()} was changed from {shorten_value(found)} to {shorten_value(value)}."
        result = yield from self._write(setting, value, found, done)
        self._steered.pop(setting.key, None)
        if first and not result.done and (result.read_back == found or result.outcome is Outcome.UNSUPPORTED):
            # unchanged, or its process or device is gone: restore must not overwrite what another program sets later
            return self._record_restored(setting, result)
        return result

    def steer(self, action: Action) -> Result:
        """Write another value to a setting that a change has written: guard, compare with action.was, write, read back.

        For values that follow measurements several times a second, without a journal entry for each. Undo still works:
        it restores the original, on disk since before the change's first write, whatever the present value is. So only
        a setting with a journaled original of the same owner is written, and the original stays in the journal even
        where this value equals it. A setting that differs from action.was was changed by another program and is
        refused; its policy detects and reports the drift.
        """
        return run_steps(self._locked(action, self._steer, "read"))

    def _steer(self, setting: Setting, was: str, value: str) -> Steps[Result]:
        if (unsupported := self._reassigned(setting) or self._unsupported(setting)) is not None:
            return unsupported
        if setting.key not in self._journal.originals():
            sentence = f"No open or confirmed change has set {setting.describe()}, so it is not steered."
            return result_of(setting, Outcome.REFUSED, sentence)
        original = self._journal.originals()[setting.key]
        if _same_in_view(setting, original, value):
            value = original  # of each thread, as in _apply
        elif found_refusals := self._refusals(setting, value, allow_isolated=False):
            return result_of(setting, Outcome.REFUSED, " ".join(refusal.sentence for refusal in found_refusals))
        found = self._read(setting)
        if isinstance(found, Result):
            return found
        if not _same_in_view(setting, found, was):
            sentence = (
                f"{setting.describe()} is {shorten_value(found)} instead of {shorten_value(was)}: "
                "another program changed it."
            )
            return result_of(setting, Outcome.REFUSED, sentence, found, found)
        done = f"{setting.describe()} was changed from {shorten_value(found)} to {shorten_value(value)}."
        result = yield from self._write(setting, value, found, done)
        if result.done:
            self._steered[setting.key] = value
        return result

    def undo(self, action: Action) -> Result:
        """Write action.becomes back without the guard's checks, whatever value the setting has now.

        action.was: the value expected now; a different one is mentioned in the sentence; empty: none is expected.
        The value was in force before, even if the guard would refuse it (kernels boot with masks that name offline
        CPUs). A netdev that was renamed meanwhile has its setting restored. Works even if the journal does not. Never
        raises.
        """
        return run_steps(self.undo_in_steps(action))

    def undo_in_steps(self, action: Action) -> Steps[Result]:
        """Undo an action as undo() does, with pauses in a write that takes long. The journal stays locked."""
        try:
            setting = parse_setting(action.key)
            value = setting.canonical(action.becomes)
        except SettingError as error:
            return Result(action.key, Outcome.REFUSED, str(error))
        try:
            with self._journal.locked():
                value = self._exact_original(setting, value)
                was = self._steered.pop(setting.key, action.was)
                if (present := self._renamed(setting)) is not None:
                    result = replace((yield from self._restore(present, value, was)), key=setting.key)
                else:
                    gone = self._reassigned(setting) or self._forgotten(setting)
                    result = gone or (yield from self._restore(setting, value, was))
                original = self._journal.originals().get(setting.key)
                is_original = result.done and original is not None and setting.equal(original, value)
                if is_original or result.outcome is Outcome.UNSUPPORTED:
                    return self._record_restored(setting, result)
                return result
        except (OSError, JournalError) as error:
            return not_recorded((yield from self._restore(setting, value, action.was)), error)

    def forget(self, key: str) -> None:
        """Forget the original value of a setting, so that nothing restores it. Raises OSError or JournalError."""
        self._journal.record_restored(key)

    @property
    def changed_settings(self) -> frozenset[str]:
        """Return the keys of the settings whose original value is journaled, as of the journal's last use."""
        return self._journal.changed_settings

    @property
    def own_values(self) -> Mapping[str, Collection[str]]:
        """Return the values that are Coresteer's, by key, of settings that keep others' values (Setting.unowned)."""
        return self._journal.own

    def original_actions(self) -> list[Action]:
        """Return actions that restore every original, moves of memory last. Raises OSError or JournalError."""
        actions = [Action(key, "", original, "") for key, original in reversed(self._journal.originals().items())]
        known = [action for action in actions if _is_known(action.key)]
        unknown = [action for action in actions if not _is_known(action.key)]  # of a later release; their undo says so
        return [*sorted(in_write_order(known), key=lambda action: parse_setting(action.key).moves_pages), *unknown]

    def restoring_actions(self, keys: Iterable[str]) -> list[Action]:
        """Return actions that restore the present values of settings, without those that cannot be read.

        Raises SettingError for a key that is no setting's.
        """
        found = [(key, self._read(parse_setting(key))) for key in keys]
        return [Action(key, "", value, "") for key, value in found if isinstance(value, str)]

    def delegate(self, change_id: str, actions: Iterable[Action]) -> None:
        """Journal the originals of settings that another program may write. Raises OSError or JournalError.

        actions: from restoring_actions().
        """
        tunables = {action: self._tunable(parse_setting(action.key)) for action in actions}
        self._journal.record_delegated(
            change_id, {a.key: (a.becomes, tunable.owners()) for a, tunable in tunables.items()}
        )

    def is_removed(self, key: str) -> bool:
        """Return whether a written setting no longer exists or its key belongs to another device or process now."""
        return self._removed(parse_setting(key)) is not None

    def _removed(self, setting: Setting) -> Result | None:
        """Return an unsupported Result for a written setting as in is_removed(); else None."""
        unsupported = self._reassigned(setting) or self._unsupported(setting)
        return unsupported if unsupported is not None and unsupported.outcome is Outcome.UNSUPPORTED else None

    def verify(self, action: Action) -> Result:
        """Read whether a setting still has the value action.becomes: unchanged, failed or unsupported."""
        try:
            setting = parse_setting(action.key)
            value = setting.canonical(action.becomes)
        except SettingError as error:
            return Result(action.key, Outcome.REFUSED, str(error))
        if (unsupported := self._reassigned(setting) or self._unsupported(setting)) is not None:
            return unsupported
        found = self._read(setting)
        if isinstance(found, Result):
            return found
        if _same_in_view(setting, found, value):
            return result_of(
                setting, Outcome.UNCHANGED, f"{setting.describe()} is {shorten_value(found)}.", found, found
            )
        sentence = (
            f"{setting.describe()} is {shorten_value(found)} instead of {shorten_value(value)}: "
            "another program changed it."
        )
        return result_of(setting, Outcome.FAILED, sentence, found, found)

    def _foreign(self, setting: Setting, found: str) -> Result | None:
        """Return a Result that refuses to overwrite another program's value of a setting; None if it is Coresteer's."""
        if setting.unowned is None or found in (setting.unowned, *self._journal.own_values(setting.key)):
            return None
        return result_of(setting, Outcome.REFUSED, setting.foreign_sentence(found), found, found)

    def _claim(self, setting: Setting, value: str) -> Result | None:
        """Read a setting that keeps others' values just before its write, and journal that the value is Coresteer's.

        Returns a Result if the setting must not be written. Deleting needs no record, so that undo needs no disk.
        """
        if setting.unowned is None:
            return None
        found = self._read(setting)
        if isinstance(found, Result):
            return found
        if (foreign := self._foreign(setting, found)) is None and value != setting.unowned:
            value = self._attainable(setting, value)
            try:
                self._journal.record_own(setting.key, [*({found} - {setting.unowned, value}), value])
            except OSError as error:
                sentence = (
                    f"The journal cannot be written ({journal_error_text(error)}), so {setting.describe()} stays."
                )
                return result_of(setting, Outcome.FAILED, sentence, found, found)
        return foreign

    def _restore(self, setting: Setting, value: str, was: str) -> Steps[Result]:
        if (unsupported := self._unsupported(setting)) is not None:
            return unsupported
        now = self._read(setting)
        found = None if isinstance(now, Result) else now
        if found is not None and (foreign := self._foreign(setting, found)) is not None:
            return replace(foreign, outcome=Outcome.UNSUPPORTED)  # Coresteer's rule is gone, so nothing is to be undone
        if found is not None and self._has_value(setting, found, value):
            sentence = f"{setting.describe()} is {shorten_value(value)}, as before."
            return result_of(setting, Outcome.UNCHANGED, sentence, found, found)
        sentence = f"{setting.describe()} was restored to {shorten_value(value)}."
        if was and found is not None and not setting.equal(found, was):
            sentence += (
                f" It was {shorten_value(found)} instead of {shorten_value(was)}: "
                "another program had changed it meanwhile."
            )
        return (yield from self._write(setting, value, found, sentence))

    def _record_restored(self, setting: Setting, result: Result) -> Result:
        try:
            self._journal.record_restored(setting.key)
        except OSError as error:
            return not_recorded(result, error)
        return result

    def _exact_original(self, setting: Setting, value: str) -> str:
        """Return the journaled original if a View shows it like this value, as it may contain more; else the value."""
        original = self._journal.originals().get(setting.key)
        return original if original is not None and _same_in_view(setting, original, value) else value

    def _refusals(self, setting: Setting, value: str, *, allow_isolated: bool) -> list[Refusal]:
        view = self._view()
        if (refusal := self._process_refusal(setting, view)) is not None:
            return [refusal]
        view = self._tunable(setting).refresh(view)
        return refusals(view, [(setting.key, value)], allow_isolated=allow_isolated)

    def _process_refusal(self, setting: Setting, view: View) -> Refusal | None:
        """Return why a setting's process must not be changed by any request; None for other settings.

        The agent itself must have observed the process, now or when its original value was journaled (with its start
        time, see _reassigned): a backend cannot make any PID a process that a policy may place.
        """
        if setting.process is None:
            return None
        if self._handler is None and setting.process in own_and_ancestors(self._root):  # simulated PIDs mean others
            why = "is this agent, which changes no settings of its own process."
            if setting.process != os.getpid():
                why = "started this agent, which changes no settings of the processes above its own."
            return Refusal("agent", setting.key, f"{setting.describe()} {why}")
        missing = setting.missing_reason(view)
        if missing is None or setting.key in self._journal.originals():
            return None
        return Refusal("unknown", setting.key, missing)

    def _has_value(self, setting: Setting, found: str, value: str) -> bool:
        return setting.equal(found, value) or setting.equal(found, self._attainable(setting, value))

    def _attainable(self, setting: Setting, value: str) -> str:
        with suppress(OSError, SettingError):  # then the write says why
            return self._tunable(setting).attainable(value)
        return value

    def _tunable(self, setting: Setting) -> Tunable:
        return Tunable(self._root, setting, self._handler)

    def _reassigned(self, setting: Setting) -> Result | None:
        """Return an unsupported Result if the key names another device now, as after a driver reload; else None."""
        before, now = self._journal.owners(setting.key), self._tunable(setting).owners()
        if not before or not now or set(before) & set(now):
            return None
        sentence = (
            f"{setting.describe()} no longer exists: it belonged to {', '.join(before)}, now to {', '.join(now)}."
        )
        return result_of(setting, Outcome.UNSUPPORTED, sentence)

    def _forgotten(self, setting: Setting) -> Result | None:
        """Return an unsupported Result for a process's or cgroup's setting without a journaled original; else None.

        Its PID or path may belong to another one now: the journal forgets the owners together with the original.
        """
        if not isinstance(setting, OfTask | OfCgroup) or setting.key in self._journal.originals():
            return None
        sentence = (
            f"{setting.describe()} has nothing left to restore: no original value is recorded, because it was restored "
            "or its process or cgroup has ended."
        )
        return self._unsupported(setting) or result_of(setting, Outcome.UNSUPPORTED, sentence)

    def _renamed(self, setting: Setting) -> Setting | None:
        """Return the setting under its netdev's present name if the netdev was renamed since the write; else None."""
        before = set(self._journal.owners(setting.key))
        if not isinstance(setting, NetdevSetting) or not before or before & set(self._tunable(setting).owners()):
            return None
        others = (replace(setting, netdev=name) for name in netdev_names(self._root))
        present = next((other for other in others if before & set(self._tunable(other).owners())), None)
        if present is not None and (own := self._journal.own_values(setting.key)):
            with suppress(OSError):  # on a full disk the rule counts as another program's, and stays
                self._journal.record_own(present.key, own)
        return present

    def _unsupported(self, setting: Setting) -> Result | None:
        try:
            if self._tunable(setting).exists():
                return None
        except OSError as error:
            return result_of(setting, Outcome.FAILED, f"{setting.describe()} cannot be accessed: {error.strerror}.")
        return result_of(setting, Outcome.UNSUPPORTED, f"{setting.describe()} {setting.absence}.")

    def _read(self, setting: Setting) -> str | Result:
        try:
            return self._tunable(setting).read()
        except OSError as error:
            sentence = f"The value of {setting.describe()} cannot be read: {error.strerror}."
        except SettingError as error:
            sentence = f"The value of {setting.describe()} cannot be parsed: {error}"
        return result_of(setting, Outcome.FAILED, sentence)

    def _write(self, setting: Setting, value: str, found: str | None, done: str) -> Steps[Result]:
        if (unclaimed := self._claim(setting, value)) is not None:
            return unclaimed
        try:
            for _ in self._tunable(setting).write_in_steps(value):
                yield
        except Exception as error:
            if isinstance(error, OSError | ReadOnlyModeError):
                outcome, why = self._tunable(setting).explain(error)
            else:
                _log.exception("An error of the agent ended the write of %s.", setting.key)
                outcome, why = Outcome.FAILED, f"The agent failed: {error!r}."
            after = self._read(setting)
            changed = isinstance(found, str) and isinstance(after, str) and not setting.equal(found, after)
            if setting.process and changed:
                outcome = Outcome.FAILED  # some threads or pages have the value, which is to be undone
            self._disown_replaced(setting, after)
            if isinstance(error, OSError) and error.errno in REJECTED_ERRNOS:
                self._attempted(WriteAttempt(setting, value, found, None, why, error.errno in UNSUPPORTED_ERRNOS))
            return result_of(
                setting,
                outcome,
                f"{setting.describe()} cannot be set to {shorten_value(value)}. {why}",
                found,
                None if isinstance(after, Result) else after,
            )
        after = self._read(setting)
        if isinstance(after, Result):
            sentence = f"{done} But its value could not be read back: {after.sentence}"
            return self._removed(setting) or result_of(setting, Outcome.FAILED, sentence, found)
        accepted = self._has_value(setting, after, value)
        self._attempted(WriteAttempt(setting, value, found, value if accepted else after))
        if not accepted:
            sentence = (
                f"{setting.describe()} was set to {shorten_value(value)}, "
                f"but the kernel changed it to {shorten_value(after)}."
            )
            if setting.unowned not in (None, after):
                after = yield from self._withdraw(setting, setting.unowned, after)
                removed = after == setting.unowned
                sentence += " It was removed." if removed else f" Remove it: {setting.shell_command(setting.unowned)}."
            self._disown_replaced(setting, after)
            return result_of(setting, Outcome.FAILED, sentence, found, after)
        self._disown_replaced(setting, after)
        if not setting.equal(after, value):  # as near as the node comes to it now: threads ended, a list not emptied
            done += f" It reads {shorten_value(after)}."
        return result_of(setting, Outcome.APPLIED, done, found, after)

    def _withdraw(self, setting: Setting, unowned: str, altered: str) -> Steps[str]:
        """Remove what the kernel made of a value just written, and return the value after that.

        Later, the altered value cannot be told from another program's: those that a setting cannot express read alike.
        """
        with suppress(OSError):
            for _ in self._tunable(setting).write_in_steps(unowned):
                yield
        after = self._read(setting)
        return altered if isinstance(after, Result) else after

    def _disown_replaced(self, setting: Setting, after: str | Result) -> None:
        """Journal that only the present value can be Coresteer's: an earlier one that returns is another program's."""
        own = self._journal.own_values(setting.key)
        if not isinstance(after, Result) and (replaced := {*own} - {after}):
            with suppress(OSError, JournalError):
                self._journal.record_own(setting.key, [value for value in own if value not in replaced])


def _is_known(key: str) -> bool:
    try:
        parse_setting(key)
    except SettingError:
        return False
    return True


def _same_in_view(setting: Setting, first: str, second: str) -> bool:
    """Return whether a View shows two values of a setting as the same value."""
    return setting.equal(setting.value_in_view(first), setting.value_in_view(second))
