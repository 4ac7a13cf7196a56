"""Migrations since the previous release only add: its programs go on working with the schema that they lead to."""

import inspect
import re
import tomllib

import alembic.config
import pytest
from alembic.script import Script, ScriptDirectory
from tests.backend.conftest import MIGRATIONS
from tests.upgrade.releases import PREVIOUS, Tree
from tests.upgrade.test_releases import entries

CONTRACTIONS = tomllib.loads((MIGRATIONS / "contractions.toml").read_text())["contraction"]
_NEW_TABLE = re.compile(r"CREATE (?:UNLOGGED )?TABLE (?:IF NOT EXISTS )?(\w+)", re.IGNORECASE)
_STATEMENT = re.compile(r"[^;]+")
CONTRACTING = {
    "removes": r"\bDROP (?!INDEX|TRIGGER|NOT NULL)|\bTRUNCATE\b|\bDELETE FROM\b|op\.drop_(?!index)",
    "renames": r"\bRENAME\b|op\.rename_|new_column_name",
    "changes a type": r"\bALTER (COLUMN )?\w+ (SET DATA )?TYPE\b|type_=",
    "demands a value": r"\bSET NOT NULL\b|nullable=False"
    r"|\bADD (COLUMN )?(?!CONSTRAINT)\w+ (?!.*\b(DEFAULT|GENERATED)\b).*\bNOT NULL\b",
    "restricts values": r"\bADD (CONSTRAINT|CHECK|UNIQUE|PRIMARY|FOREIGN|EXCLUDE)\b|\bCREATE UNIQUE INDEX\b"
    r"|\bADD (COLUMN )?\w+ .*\b(UNIQUE|CHECK|PRIMARY KEY)\b|op\.create_\w+_constraint|op\.create_foreign_key",
    "takes rights away": r"\bREVOKE\b",
    "adds to a table that COPY fills by position": r"\bALTER TABLE telemetry_chunk ADD\b",
}


def contracting(sql: str) -> list[str]:
    """Return what migrations, as SQL or calls of Alembic, do that the previous version may not bear."""
    sql = re.sub(r"--.*", "", sql)
    new = set(_NEW_TABLE.findall(sql))
    found = []
    for statement in _STATEMENT.findall(sql):
        table = re.search(r"\b(?:ALTER TABLE|INDEX \w+ ON) (\w+)", statement)
        if table is None or table[1] not in new:
            clauses = re.split(r",(?![^(]*\))", " ".join(statement.split()))
            found += [
                what for what, pattern in CONTRACTING.items() for each in clauses if re.search(pattern, each, re.I)
            ]
    return found


def upgrade_of(script: Script) -> str:
    """Return the source of a migration without its way back."""
    return inspect.getsource(script.module).replace(inspect.getsource(script.module.downgrade), "")


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("ALTER TABLE rollout ADD COLUMN violation text", []),
        ("ALTER TABLE node ADD COLUMN labels jsonb NOT NULL DEFAULT '{}'", []),
        ("CREATE TABLE a (b int NOT NULL); CREATE UNIQUE INDEX a_b ON a (b); DROP INDEX c", []),
        ("ALTER TABLE a ALTER b DROP NOT NULL", []),
        ("-- DROP TABLE a\nCREATE INDEX b ON a (c)", []),
        ("ALTER TABLE a ADD COLUMN b int UNIQUE", ["restricts values"]),
        ("ALTER TABLE a ADD b int CHECK (b > 0)", ["restricts values"]),
        ("op.create_unique_constraint('c', 'a', ['b'])", ["restricts values"]),
        ("REVOKE UPDATE ON a FROM b", ["takes rights away"]),
        ("ALTER TABLE a DROP COLUMN b", ["removes"]),
        ("DROP TABLE a", ["removes"]),
        ("DELETE FROM a WHERE b", ["removes"]),
        ("ALTER TABLE a ADD b int, DROP c", ["removes"]),
        ("ALTER TABLE a ALTER b DROP DEFAULT", ["removes"]),
        ("ALTER TABLE a RENAME b TO c", ["renames"]),
        ("ALTER TABLE a ALTER COLUMN b TYPE bigint", ["changes a type"]),
        ("ALTER TABLE a ADD COLUMN b text NOT NULL", ["demands a value"]),
        ("ALTER TABLE a ADD b text NOT NULL, ADD c text DEFAULT ''", ["demands a value"]),
        ("ALTER TABLE a ALTER COLUMN b SET NOT NULL", ["demands a value"]),
        ("ALTER TABLE a ADD CONSTRAINT b CHECK (c > 0)", ["restricts values"]),
        ("CREATE UNIQUE INDEX b ON a (c)", ["restricts values"]),
        ("ALTER TABLE telemetry_chunk ADD COLUMN a bytea", ["adds to a table that COPY fills by position"]),
        ("op.drop_column('a', 'b')", ["removes"]),
    ],
)
def test_a_contracting_statement_is_recognized(sql: str, found: list[str]) -> None:
    assert contracting(sql) == found


def test_migrations_since_the_previous_release_only_add(previous: Tree) -> None:
    config = alembic.config.Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    before = alembic.config.Config()
    before.set_main_option("script_location", str(previous.folder / "migrations"))
    head = ScriptDirectory.from_config(before).get_current_head()
    listed = {each["migration"] for each in CONTRACTIONS if numbers(each["contracted_in"]) > numbers(PREVIOUS.version)}
    since = [
        script for script in ScriptDirectory.from_config(config).walk_revisions(f"{head}", "head")
        if script.revision != head and script.revision not in listed
    ]  # fmt: skip
    assert {script.revision: found for script in since if (found := contracting(upgrade_of(script)))} == {}


def numbers(version: str) -> list[int]:
    """Return a version for comparisons."""
    return [int(part) for part in version.split(".")]


@pytest.mark.parametrize("contraction", CONTRACTIONS, ids=lambda each: each["what"].partition(":")[0])
def test_a_contraction_is_a_release_after_the_last_use_and_is_not_forgotten(contraction: dict[str, str]) -> None:
    unused, contracted, newest = (
        numbers(version) for version in (contraction["unused_from"], contraction["contracted_in"], entries()[0])
    )
    assert unused < contracted, "programs of a release run beside the next one's schema"
    assert contraction["migration"] or contracted > newest, "due"
