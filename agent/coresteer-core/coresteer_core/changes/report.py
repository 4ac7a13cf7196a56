"""State of a change and the result of each of its actions, as an agent sends them to the backend."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from coresteer_core.bounds import MAX_INTEGER, MAX_VALUE

MAX_REPORTED_CHARACTERS = 4096
"""Of a value and of a sentence about one setting: the backend takes 1 MiB about a plan, and values may name threads."""


class ChangeState(StrEnum):
    """State of a change: previewed → applying → unconfirmed → confirmed | rolled_back | failed.

    A preview is not stored, so it has no state here.
    """

    APPLYING = "applying"
    UNCONFIRMED = "unconfirmed"
    CONFIRMED = "confirmed"
    ROLLED_BACK = "rolled_back"
    FAILED = "failed"


class EndedBy(StrEnum):
    """Why a change ended: a user, the confirmation timeout, a guardrail, lost backend, agent restart, or an error."""

    USER = "user"
    TIMEOUT = "timeout"
    GUARDRAIL = "guardrail"
    LOST_BACKEND = "lost_backend"
    AGENT_RESTART = "agent_restart"
    ERROR = "error"


class Outcome(StrEnum):
    """Outcome of one action of a plan. unsupported: the node has no such setting (any more)."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    UNSUPPORTED = "unsupported"
    REFUSED = "refused"
    FAILED = "failed"


class Result(Struct, frozen=True):
    """Result of one action of a plan: its outcome, a sentence, and the setting's value before and after.

    found: the value before the write, read_back: after it; None if it was not read.
    """

    key: str
    outcome: Outcome
    sentence: str
    found: str | None = None
    read_back: str | None = None

    @property
    def done(self) -> bool:
        """Return whether the setting now has the value that the action requested."""
        return self.outcome in (Outcome.APPLIED, Outcome.UNCHANGED)

    @property
    def stuck(self) -> bool:
        """Return whether the setting exists but does not have the value that the action requested."""
        return self.outcome in (Outcome.REFUSED, Outcome.FAILED)


class ChangeMessage(Struct, frozen=True, tag="change"):
    """Message to the backend: state of a change. Sent at every transition, and after a reconnect until ChangeAck.

    deadline_ms: when an unconfirmed change reverts (node's clock, Unix); remaining_s: the same as a duration.
    results: of the plan or, once rolled back, of its inverse.
    """

    change_id: Annotated[str, Meta(max_length=64)]
    state: ChangeState
    sentence: str
    results: Annotated[list[Result], Meta(max_length=256)]
    ended_by: EndedBy | None = None
    deadline_ms: Annotated[int, Meta(gt=-MAX_INTEGER, lt=MAX_INTEGER)] | None = None
    remaining_s: Annotated[float, Meta(gt=-MAX_INTEGER, lt=MAX_INTEGER)] | None = None

    def shortened(self) -> "ChangeMessage":
        """Return the message with texts cut to what the backend takes."""
        return replace(
            self, sentence=cut_text(self.sentence, MAX_VALUE), results=[_shortened(each) for each in self.results]
        )


def _shortened(result: Result) -> Result:
    found, read_back = (
        None if value is None else cut_text(value, MAX_REPORTED_CHARACTERS)
        for value in (result.found, result.read_back)
    )
    return replace(
        result, sentence=cut_text(result.sentence, MAX_REPORTED_CHARACTERS), found=found, read_back=read_back
    )


def cut_text(text: str, longest: int) -> str:
    """Return a text, cut with an ellipsis to the longest that it may be."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
