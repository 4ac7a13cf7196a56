"""Bounds on what agents say of what their policies evaluated: it is untrusted, stored and shown."""

from uuid import UUID

from coresteer.gateway.bounds import MAX_NAME, MAX_VALUE, bad_policy_id, bad_text, bad_time
from coresteer_core.changes.plan import Action
from coresteer_core.policies.base import Evaluation
from coresteer_core.protocol import DecisionMessage
from coresteer_core.settings import SettingError, parse_setting

MAX_REASONS = 4096
MAX_ACTIONS = 256


def check_decision(message: DecisionMessage, *, now_ms: int) -> str | None:
    """Whether a evaluation, and the change that carries it out, can be stored and shown."""
    evaluation = message.evaluation
    if wrong := bad_time(message.time_ms, now_ms):
        return f"Decision: {wrong}"
    if wrong := bad_policy_id(evaluation.policy_id):
        return f"Decision: {wrong}"
    if not 0 <= evaluation.version < 2**31:
        return f"Decision: {evaluation.version} is not a version."
    wrong = _bad_uuid(message.change_id) or _bad_evaluation(evaluation) or _bad_actions(evaluation.actions)
    return f"Decision: {wrong}" if wrong else None


def _bad_uuid(text: str | None) -> str | None:
    try:
        UUID(text or "00000000-0000-0000-0000-000000000000")
    except ValueError:
        return f"its change's id {(text or '')[:40]!r} is not a UUID."
    return None


def _bad_evaluation(evaluation: Evaluation) -> str | None:
    if max(len(evaluation.actions), len(evaluation.drifts)) > MAX_ACTIONS:
        return f"more than {MAX_ACTIONS} actions or drifts."
    if max(len(evaluation.deferred), len(evaluation.skipped)) > MAX_REASONS:
        return f"more than {MAX_REASONS} reasons why something stays."
    proposals = [held.proposal for held in evaluation.deferred]
    texts: list[str | None] = [held.code for held in evaluation.deferred]
    texts += [text for p in proposals for text in (p.key, p.subject)]
    texts += [action.key for action in evaluation.actions]
    texts += [text for drift in evaluation.drifts for text in (drift.key, drift.cause)]
    values: list[str | None] = [text for action in evaluation.actions for text in (action.was, action.becomes)]
    values += [p.value for p in proposals]
    values += [text for drift in evaluation.drifts for text in (drift.expected, drift.found)]
    reasons: list[str | None] = [evaluation.sentence, *(action.reason for action in evaluation.actions)]
    reasons += [p.reason for p in proposals]
    reasons += [held.why for held in evaluation.deferred]
    reasons += [text for skipped in evaluation.skipped for text in (skipped.subject, skipped.why)]
    return bad_text(texts, MAX_NAME) or bad_text(values, MAX_VALUE) or bad_text(reasons, MAX_VALUE)


def _bad_actions(actions: list[Action]) -> str | None:
    try:
        for action in actions:
            setting = parse_setting(action.key)
            setting.canonical(action.was)
            setting.canonical(action.becomes)
    except SettingError as error:
        return str(error)
    return None
