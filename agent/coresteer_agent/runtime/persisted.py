"""Applies persisted settings after a reboot, as changes that are guarded, journaled, read back, confirmed and reported.

A setting that the node does not have yet, such as one of a device that appears later, is awaited for WAIT_S. One that
cannot be set is left out with the reason, and the others are applied without it. Then the file has the boot's id, so
that a restart of the agent changes nothing.
"""

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from msgspec.structs import replace

from coresteer_agent.apply.journal import read_boot_id
from coresteer_agent.apply.persisted_file import (
    Persisted,
    PersistedFileError,
    PersistedSetting,
    persisted_path,
    read_persisted,
    write_persisted,
)
from coresteer_agent.runtime.policies import CONFIRM_AFTER_S
from coresteer_core.bounds import MIN_CONFIRM_TIMEOUT_S
from coresteer_core.changes.events import ApplyRequested, Change
from coresteer_core.changes.guard import MAX_PLAN_ACTIONS
from coresteer_core.changes.plan import Action, DesiredValue, Plan, preview
from coresteer_core.changes.report import ChangeState
from coresteer_core.node.view import View
from coresteer_core.policies.base import PERSISTED_POLICY, PERSISTED_POLICY_ID, Evaluation, Mode, Skipped
from coresteer_core.protocol import DecisionMessage
from coresteer_core.settings import SettingError, parse_setting

log = logging.getLogger("coresteer.persisted")

WAIT_S = 300.0
"""How long after the agent's start a setting that the node does not have is awaited."""
REASON = "Persisted on the node by coresteer-agent persist."


class LockedChanges(Protocol):
    """Applies changes; see NodeChanges."""

    def feed(self, event: ApplyRequested) -> frozenset[str]:
        """Apply a plan; return the keys of settings that were written or tried."""

    def change(self, change_id: str) -> Change | None:
        """Return a change by its id, None for an unknown one."""

    def locked(self) -> AbstractContextManager[None]:
        """Hold the journal's lock against other processes."""


class PersistedSettings:
    """Applies the persisted settings of one machine once in each boot; call step() each round.

    journal: its path. report: sends to the backend, which shows these changes as those of a policy.
    """

    def __init__(
        self,
        journal: Path,
        root: Path,
        changes: LockedChanges,
        report: Callable[[DecisionMessage], None],
    ) -> None:
        self._path = persisted_path(journal)
        self._boot_id = read_boot_id(root)
        self._changes = changes
        self._report = report
        self._began_s: float | None = None
        self._finished = False
        self._change_id: str | None = None
        self._written: dict[str, PersistedSetting] = {}
        """The settings of the latest change, by their key in this boot."""
        self._settled: dict[PersistedSetting, str] = {}
        """Why a setting is left out, as a sentence; empty for one that is in force."""

    def step(self, view: View) -> frozenset[str]:
        """Apply what can be applied now; return the keys of settings that were written or tried.

        Raises OSError, JournalError or PersistedFileError if it cannot be recorded that all is applied.
        """
        if self._finished or self._latest_is_open():
            return frozenset()
        persisted = self._read()
        if not persisted.settings or persisted.boot_id == self._boot_id:
            self._finished = True
            return frozenset()
        self._began_s = view.time_s if self._began_s is None else self._began_s
        touched = self._apply(view, [each for each in persisted.settings if each not in self._settled])
        if all(each in self._settled for each in persisted.settings):
            self._finish()
        return touched

    def _read(self) -> Persisted:
        try:
            return read_persisted(self._path)
        except PersistedFileError as error:
            log.error("%s", error)
            return Persisted()

    def _latest_is_open(self) -> bool:
        """Return whether the latest change has not ended; record its outcome once it has."""
        change = None if self._change_id is None else self._changes.change(self._change_id)
        if change is not None and change.open:
            return True
        if change is not None:
            self._record(change)
        self._change_id = None
        return False

    def _record(self, change: Change) -> None:
        if change.state is ChangeState.CONFIRMED:
            self._settled |= dict.fromkeys(self._written.values(), "")
            return
        wrong = {result.key: result.sentence for result in change.results if result.stuck}
        for key in wrong or self._written:  # without a wrong one, the whole change was refused or rolled back
            self._settled[self._written[key]] = wrong.get(key, change.sentence)

    def _apply(self, view: View, pending: list[PersistedSetting]) -> frozenset[str]:
        batch = self._next_batch(view, pending)
        isolated = any(each.allow_isolated for each in batch.values())
        desired = [DesiredValue(key, each.value) for key, each in batch.items()]
        found = preview(view, desired, reason=REASON, allow_isolated=isolated)
        actions = {action.key: action for action in found.plan.actions}
        self._settled |= {each: "" for key, each in batch.items() if key not in actions}
        for refusal in found.refused:
            actions.pop(refusal.key, None)
            self._settled[batch[refusal.key]] = refusal.sentence
            if refusal.code == "context" and self._waits(view):  # what it refers to may be set later
                del self._settled[batch[refusal.key]]
        return self._write(batch, Plan([*actions.values()], isolated)) if actions else frozenset()

    def _write(self, batch: dict[str, PersistedSetting], plan: Plan) -> frozenset[str]:
        self._change_id = str(uuid.uuid4())
        self._written = {action.key: batch[action.key] for action in plan.actions}
        self._tell("After a reboot, persisted settings get their values again.", plan.actions)
        return self._changes.feed(
            ApplyRequested(
                self._change_id,
                plan,
                MIN_CONFIRM_TIMEOUT_S,
                policy=PERSISTED_POLICY,
                confirm_after_s=CONFIRM_AFTER_S,
            )
        )

    def _next_batch(self, view: View, pending: list[PersistedSetting]) -> dict[str, PersistedSetting]:
        """Return settings that the node has, by their key in this boot, for one plan.

        First those that restart a device: its queues and interrupts may be others afterwards. Then in write order, as
        a plan may not have all.
        """
        interrupts = [(irq.irq, irq.name) for irq in view.inventory.irqs]
        found: dict[tuple[bool, int, bool], dict[str, PersistedSetting]] = {}
        for each in pending:
            key = each.resolve(interrupts)
            why = f"Not exactly one interrupt is named {each.interrupt}." if key is None else _why_missing(view, key)
            if key is not None and why is None:
                setting = parse_setting(key)
                order = not setting.interrupts_traffic, setting.write_order(each.value), each.allow_isolated
                found.setdefault(order, {})[key] = each
            elif why is not None and not self._waits(view):
                self._settled[each] = why
        return dict([*found[min(found)].items()][:MAX_PLAN_ACTIONS]) if found else {}

    def _waits(self, view: View) -> bool:
        return view.time_s - (self._began_s or 0.0) < WAIT_S

    def _finish(self) -> None:
        with self._changes.locked():
            persisted = read_persisted(self._path)
            write_persisted(self._path, replace(persisted, boot_id=self._boot_id))
        self._finished = True
        left_out = {each.sentence: why for each, why in self._settled.items() if why}
        for setting, why in left_out.items():
            log.warning("The persisted setting %s is left out. %s", setting, why)
        if left_out:
            self._tell(f"{len(left_out)} of {len(self._settled)} persisted settings cannot be applied.", (), left_out)

    def _tell(
        self, sentence: str, actions: Sequence[Action], left_out: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        skipped = [Skipped(setting, why) for setting, why in left_out.items()]
        evaluation = Evaluation(PERSISTED_POLICY_ID, 1, Mode.ENFORCE, sentence, [*actions], skipped=skipped)
        self._report(DecisionMessage(time.time_ns() // 1_000_000, evaluation, self._change_id))


def _why_missing(view: View, key: str) -> str | None:
    """Return why a View has no such setting, or not its value, as a sentence; None where it has."""
    try:
        setting = parse_setting(key)
    except SettingError as error:  # of another version, or edited by hand
        return str(error)
    if (why := setting.missing_reason(view)) is not None:
        return why
    return f"The current value of {setting.describe(view)} is unknown." if setting.current(view) is None else None
