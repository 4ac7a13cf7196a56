"""Results of the executor, and their sentences."""

from msgspec.structs import replace

from coresteer_agent.apply.journal import JournalError
from coresteer_core.changes.report import Outcome, Result
from coresteer_core.settings import Setting

_MAX_VALUE_CHARS = 80


def journal_error_text(error: OSError | JournalError) -> str:
    """Return the message of an error of the journal, to be embedded in a sentence."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error).rstrip(".")


def not_recorded(result: Result, error: OSError | JournalError) -> Result:
    """Return a result that also says why the journal does not have it."""
    return replace(result, sentence=f"{result.sentence} The journal could not record it: {journal_error_text(error)}.")


def shorten_value(value: str) -> str:
    """Return a setting's value for a sentence, cut to 80 characters."""
    return value if len(value) <= _MAX_VALUE_CHARS else f"{value[:_MAX_VALUE_CHARS]}…"


def result_of(
    setting: Setting, outcome: Outcome, sentence: str, found: str | None = None, after: str | None = None
) -> Result:
    """Return the result of a setting. found, after: its value before the write and as read back."""
    return Result(setting.key, outcome, sentence, found, after)
