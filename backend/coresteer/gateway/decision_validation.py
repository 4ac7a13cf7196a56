"""Rules for decisions and reports about changes that relate several fields; each returns what is wrong, or None.

Actions and results are also stored by agents, which must be able to read them back whatever they contain; so their
texts are bounded here and not in their types. Each function returns a sentence that says what is wrong, or None.
"""

from uuid import UUID

from coresteer.gateway.setting_validation import invalid_value
from coresteer.text_validation import too_long
from coresteer_core.bounds import MAX_NAME, MAX_VALUE
from coresteer_core.changes.report import ChangeMessage
from coresteer_core.protocol import DecisionMessage


def invalid_change_id(message: DecisionMessage) -> str | None:
    """Return why a decision's change id is not a UUID, None if it is one or absent."""
    if message.change_id is None:
        return None
    try:
        UUID(message.change_id)
    except ValueError:
        return f"the change id {message.change_id[:40]!r} is not a UUID."
    return None


def invalid_actions(message: DecisionMessage) -> str | None:
    """Return what is wrong with a decision's actions (key, value, length of texts), None if they are valid."""
    actions = message.evaluation.actions
    wrong = too_long((action.key for action in actions), MAX_NAME) or too_long(
        (text for action in actions for text in (action.was, action.becomes, action.reason)), MAX_VALUE
    )
    values = ((action.key, value) for action in actions for value in (action.was, action.becomes))
    return wrong or next((wrong for key, value in values if (wrong := invalid_value(key, value))), None)


def too_long_results(message: ChangeMessage) -> str | None:
    """Return which text of a change's results is too long, None if none is."""
    texts = (text for r in message.results for text in (r.key, r.sentence, r.found, r.read_back))
    return too_long((message.sentence, *texts), MAX_VALUE)
