"""Names that commit 602788d stored or answered and that have other ones now: the one place to note a rename."""

from pathlib import Path

STORED = Path(__file__).parents[1] / "fixtures/upgrade/602788d"

RENAMED: dict[str, dict[str, str]] = {
    "audit action": {},
    "change state": {},
    "ended by": {},
    "experiment kind": {},
    "experiment state": {},
    "experiment template": {},
    "field": {},  # of answers of the API
    "mode": {},
    "outcome": {},
    "ownership": {},
    "path": {},  # of the API, as in the tests
    "policy type": {},
    "role": {},
    "rollout state": {},
    "series metric": {},
    "setting": {},  # keys
    "verdict": {},
}
"""By what it is a name of: the name then, the name now. What is not in it is called as it was."""


def now(what: str, name: str) -> str:
    """What something is called now."""
    return RENAMED[what].get(name, name)


def then(what: str, name: str) -> str:
    """What it was called by 602788d."""
    return next((old for old, new in RENAMED[what].items() if new == name), name)
