"""Rename stored values to the terms of docs/GLOSSARY.md. No value is lost; the downgrade restores the old names."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple  # Any: JSON of any shape

import sqlalchemy as sa
from alembic import op

revision = "0008_standard_terms"
down_revision = "0007_experiments"
branch_labels = None
depends_on = None

PAGE_ROWS = 1000
"""Rows of a table whose JSON is in memory at once."""


class Renames(NamedTuple):
    """keys: of objects at any depth. values: of the named keys (new names), old value → new value.

    keys_in: keys of the object at the named key only.
    """

    keys: Mapping[str, str] = {}
    values: Mapping[str, Mapping[str, str]] = {}
    keys_in: Mapping[str, Mapping[str, str]] = {}


COLUMNS = [
    ("experiment", "ending", "ending_state"),
    ("experiment", "now", "activity"),
    ("experiment", "before", "settings_before"),
    ("experiment", "after", "settings_after"),
    ("experiment_run", "kept_at", "recorded_at"),
    ("decision", "conclusion", "evaluation"),
]
"""Table, old column, new column."""

REASSERT = {"take_over": "reassert"}

TEXTS = [("drift", "response", REASSERT), ("rollout", "state", {"undone": "rolled_back"})]
"""Table, column, old value → new value."""

CHECKS = [
    (
        "rollout",
        "rollout_state_check",
        "state IN ('canary', 'batches', 'done', 'stopped', 'undone')",
        "state IN ('canary', 'batches', 'done', 'stopped', 'rolled_back')",
    )
]
"""Table, check constraint, old and new condition: dropped before values are renamed, added afterwards."""

JSON = [
    (
        "decision",
        "id",
        "evaluation",
        Renames(
            {"held_back": "deferred", "unmoved": "skipped"},
            {"response": REASSERT, "code": {"ping_pong": "flap_damping"}},
        ),
    ),
    (
        "node",
        "id",
        "learned",
        Renames(
            {"tried": "responses", "asked": "requested", "stood": "read_back", "words": "message"},
            {"verdict": {"taken": "accepted"}},
        ),
    ),
    (
        "policy_version",
        "policy_id, version",
        "body",
        Renames(
            {},
            {"on_controller": REASSERT, "on_drift": REASSERT, "adaptive": {"take_over": "disable"}},
            {"damping": {"window_s": "min_revert_s"}, "spec": {"rings": "max_distance"}},
        ),
    ),
]
"""Table, primary key, column (new name), what to rename in its JSON."""


def renamed(value: Any, renames: Renames, parent: str = "") -> Any:  # noqa: ANN401 - JSON of any shape
    """Return JSON with keys and values renamed; everything else is unchanged. parent: the key that holds the value."""
    if isinstance(value, list):
        return [renamed(item, renames) for item in value]
    if not isinstance(value, dict):
        return value
    found = {}
    keys = {**renames.keys, **renames.keys_in.get(parent, {})}
    for key, item in value.items():
        name = keys.get(key, key)
        swaps = renames.values.get(name, {})
        found[name] = swaps[item] if isinstance(item, str) and item in swaps else renamed(item, renames, name)
    return found


def inverse(renames: Renames) -> Renames:
    """Return the renames that undo these; values are looked up by the old key's name."""
    keys = {new: old for old, new in renames.keys.items()}
    values = {keys.get(key, key): {new: old for old, new in swaps.items()} for key, swaps in renames.values.items()}
    within = {
        keys.get(parent, parent): {new: old for old, new in inner.items()} for parent, inner in renames.keys_in.items()
    }
    return Renames(keys, values, within)


def rename_json(table: str, primary_key: str, column: str, renames: Renames) -> None:
    connection = op.get_bind()
    keys = primary_key.split(", ")
    names = ", ".join(f":{key}" for key in keys)
    select = f"SELECT {primary_key}, {column} FROM {table}"  # noqa: S608 - constants
    order = f"ORDER BY {primary_key} LIMIT {PAGE_ROWS}"
    match = f"({primary_key}) = ({names})"
    update = sa.text(f"UPDATE {table} SET {column} = CAST(:json AS jsonb) WHERE {match}")  # noqa: S608 - constants
    rows = connection.execute(sa.text(f"{select} {order}")).all()
    while rows:
        after = [(dict(zip(keys, row, strict=False)), row[-1], renamed(row[-1], renames)) for row in rows]
        if changed := [{**key, "json": json.dumps(new)} for key, old, new in after if new != old]:
            connection.execute(update, changed)
        rows = connection.execute(sa.text(f"{select} WHERE ({primary_key}) > ({names}) {order}"), after[-1][0]).all()


def rename_text(table: str, column: str, swaps: Mapping[str, str]) -> None:
    update = sa.text(f"UPDATE {table} SET {column} = :new WHERE {column} = :old")  # noqa: S608 - constants
    for old, new in swaps.items():
        op.get_bind().execute(update, {"old": old, "new": new})


def upgrade() -> None:
    for table, old, new in COLUMNS:
        op.alter_column(table, old, new_column_name=new)
    for table, name, _, _ in CHECKS:
        op.drop_constraint(name, table)
    for table, column, swaps in TEXTS:
        rename_text(table, column, swaps)
    for table, name, _, condition in CHECKS:
        op.create_check_constraint(op.f(name), table, condition)
    for table, primary_key, column, renames in JSON:
        rename_json(table, primary_key, column, renames)


def downgrade() -> None:
    for table, primary_key, column, renames in JSON:
        rename_json(table, primary_key, column, inverse(renames))
    for table, name, _, _ in CHECKS:
        op.drop_constraint(name, table)
    for table, column, swaps in TEXTS:
        rename_text(table, column, {new: old for old, new in swaps.items()})
    for table, name, condition, _ in CHECKS:
        op.create_check_constraint(op.f(name), table, condition)
    for table, old, new in COLUMNS:
        op.alter_column(table, new, new_column_name=old)
