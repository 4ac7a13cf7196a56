from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from tests.backend.conftest import PASSWORD, Backend

from coresteer.audit.service import record
from coresteer.db import Database


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET actor = 'x'",
        "DELETE FROM audit",
        "TRUNCATE audit",
        "ALTER TABLE audit DISABLE TRIGGER ALL",
        "SET session_replication_role = replica",
        "DROP TRIGGER audit_is_append_only ON audit",
        "INSERT INTO audit (at, actor, action, target, result, detail) VALUES (now(), 'a', 'b', 'c', 'ok', '{}')",
        "UPDATE audit_chain SET hash = ''",
        "DELETE FROM audit_chain",
        "UPDATE audit_head SET number = 0",
        "CREATE OR REPLACE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "SELECT pg_read_file('/etc/passwd')",
        "COPY audit TO PROGRAM 'true'",
    ],
)
async def test_the_backends_role_can_neither_change_nor_remove_entries(database: Database, statement: str) -> None:
    async with database.session() as session:
        record(session, actor="ada", action="setup", target="nothing")
    with pytest.raises(DBAPIError) as caught:
        async with database.session() as session:
            await session.execute(text(statement))
    assert isinstance(caught.value.orig, psycopg.errors.InsufficientPrivilege)


async def test_the_backends_role_owns_nothing_and_is_no_superuser(database: Database) -> None:
    async with database.session() as session:
        owned = "SELECT count(*) FROM pg_class WHERE pg_get_userbyid(relowner) = current_user"
        assert (await session.execute(text(owned))).scalar_one() == 0
        attributes = "rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls"
        role = await session.execute(text(f"SELECT {attributes} FROM pg_roles WHERE rolname = current_user"))  # noqa: S608
        assert role.one() == (False,) * 5


async def test_the_owner_changes_no_entry_by_mistake(owner_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(owner_url) as connection:
        with pytest.raises(psycopg.errors.RaiseException, match="never changed or removed"):
            await connection.execute("DELETE FROM audit")


async def test_an_entry_is_stored_only_with_the_change_it_describes(database: Database) -> None:
    with pytest.raises(RuntimeError):
        async with database.session() as session:
            record(session, actor="ada", action="setup", target="undone")
            raise RuntimeError
    async with database.session() as session:
        assert (await session.execute(text("SELECT count(*) FROM audit WHERE target = 'undone'"))).scalar_one() == 0


async def test_pages_follow_each_other_newest_first_without_gap_or_repetition(backend: Backend) -> None:
    async with backend.database.session() as session:
        for number in range(7):
            record(session, actor="pages", action="setup", target=str(number), node_id=5 if number % 2 else None)
    client = await backend.client("viewer")
    seen: list[str] = []
    older: int | None = None
    while True:
        after = f"&older_than={older}" if older else ""
        page = (await client.get(f"/api/v1/audit?actor=pages&limit=3{after}")).json()
        seen += [entry["target"] for entry in page["entries"]]
        older = page["older"]
        if older is None:
            break
    assert seen == ["6", "5", "4", "3", "2", "1", "0"]
    of_node = (await client.get("/api/v1/audit?actor=pages&node_id=5")).json()["entries"]
    assert [entry["target"] for entry in of_node] == ["5", "3", "1"]


@pytest.mark.parametrize(
    ("query", "targets"),
    [
        ("action=policy", ["b", "a"]),
        ("action=policy.create", ["a"]),
        ("action=policy&text=WORD%25", ["b"]),
        ("action=policy&from_time=2100-01-01T00:00:00Z", []),
        ("action=policy&to_time=2000-01-01T00:00:00Z", []),
    ],
)
async def test_entries_are_selected_by_action_text_and_time(backend: Backend, query: str, targets: list[str]) -> None:
    actor = uuid4().hex
    async with backend.database.session() as session:
        record(session, actor=actor, action="policy.create", target="a")
        record(session, actor=actor, action="policy.delete", target="b", detail={"said": "a word% here"})
        record(session, actor=actor, action="login", target="c")
    client = await backend.client("viewer")
    answer = await client.get(f"/api/v1/audit?{query}")
    found = [entry["target"] for entry in answer.json()["entries"] if entry["actor"] == actor]
    assert found == targets


async def test_every_change_of_users_and_tokens_is_recorded_with_its_actor(backend: Backend) -> None:
    admin = await backend.client("admin")
    user = (await admin.post("/api/v1/users", {"username": "bob", "password": PASSWORD, "role": "viewer"})).json()
    await admin.patch(f"/api/v1/users/{user['id']}", {"role": "operator", "password": "another password"})
    await backend.anonymous().post("/api/v1/auth/login", {"username": "bob", "password": PASSWORD})
    await backend.anonymous().post("/api/v1/auth/login", {"username": "my-secret-in-the-wrong-field", "password": "x"})
    await backend.anonymous().post("/api/v1/auth/login", {"username": "bob", "password": "another password"})
    token = (await admin.post("/api/v1/tokens", {"name": "ci", "role": "viewer"})).json()
    await admin.delete(f"/api/v1/tokens/{token['id']}")
    enrolment = (await admin.post("/api/v1/enrolment-tokens", {})).json()
    await backend.anonymous().post("/api/enrol", {"token": enrolment["token"], "names": ["audited"]})
    await admin.post("/api/v1/auth/logout")

    entries = (await (await backend.client("viewer")).get("/api/v1/audit")).json()["entries"]
    told = [(entry["actor"], entry["action"], entry["target"], entry["result"]) for entry in reversed(entries)]
    target = f"token {token['id']}"
    expected = [
        ("admin", "user.create", "user bob", "ok"),
        ("admin", "user.update", "user bob", "ok"),
        ("anonymous", "login", "user bob", "refused"),
        ("anonymous", "login", "unknown user", "refused"),
        ("bob", "login", "user bob", "ok"),
        ("admin", "token.create", target, "ok"),
        ("admin", "token.delete", target, "ok"),
        ("admin", "enrolment-token.create", f"enrolment token {enrolment['id']}", "ok"),
        ("admin", "node.enrol", "node audited", "ok"),
        ("admin", "logout", "user admin", "ok"),
    ]
    start = told.index(expected[0])
    assert [entry for entry in told[start:] if entry[2] != "user viewer"] == expected
    assert "another password" not in str(entries)
