"""Names that commit 602788d stored or answered and that have other ones now: the one place to note a rename."""

from pathlib import Path

STORED = Path(__file__).parents[1] / "fixtures/upgrade/602788d"

RENAMED: dict[str, dict[str, str]] = {
    "audit action": {
        "node.labels": "node.set_labels",
        "policy.version": "policy.create_version",
        "rollout.done": "rollout.finish",
        "rollout.undo": "rollout.roll_back",
    },
    "audit result": {"asked": "requested"},
    "change state": {},
    "ended by": {},
    "experiment kind": {},
    "experiment state": {},
    "experiment template": {},
    "field": {  # of answers of the API
        "conclusion": "evaluation",
        "held_back": "deferred",
        "kept": "counted",
        "now": "activity",
        "place": "queue_position",
        "smallest_visible": "minimum_detectable",
        "told": "reported",
        "tried": "responses",
        "unmoved": "skipped",
    },
    "method": {},  # of the service classes' experiment
    "mode": {},
    "outcome": {},
    "ownership": {"take_over": "reassert"},
    "path": {"replay": "backtest"},  # of the API, as in the tests
    "policy field": {"rings": "max_distance"},
    "policy type": {},
    "policy value": {"take_over": "disable"},
    "role": {},
    "rollout state": {"undone": "rolled_back"},
    "series metric": {"dropped_per_s": "softnet_dropped_per_s"},  # of history, live frames and the fleet
    "setting": {},  # keys
    "verdict": {"taken": "accepted"},
}
"""By what it is a name of: the name then, the name now. What is not in it is called as it was."""


def now(what: str, name: str) -> str:
    """Return the present name of something."""
    return RENAMED[what].get(name, name)


def then(what: str, name: str) -> str:
    """Return its name in 602788d. A name that was replaced since then, but is still reported, has none."""
    renamed = RENAMED[what]
    old = next((old for old, new in renamed.items() if new == name), None)
    if old is None and name in renamed:
        return f"{name}, which should be reported as {renamed[name]}"
    return old or name
