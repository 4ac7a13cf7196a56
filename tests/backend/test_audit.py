import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from tests.backend.conftest import PASSWORD, Backend

from coresteer.audit.service import record
from coresteer.db import Database


@pytest.mark.parametrize("statement", ["UPDATE audit SET actor = 'x'", "DELETE FROM audit", "TRUNCATE audit"])
async def test_entries_can_be_neither_changed_nor_removed(database: Database, statement: str) -> None:
    async with database.session() as session:
        record(session, actor="ada", action="test", target="nothing")
    with pytest.raises(DBAPIError, match="never changed or removed") as caught:
        async with database.session() as session:
            await session.execute(text(statement))
    assert isinstance(caught.value.orig, psycopg.errors.RaiseException)


async def test_an_entry_is_stored_only_with_the_change_it_describes(database: Database) -> None:
    with pytest.raises(RuntimeError):
        async with database.session() as session:
            record(session, actor="ada", action="undone", target="nothing")
            raise RuntimeError
    async with database.session() as session:
        assert (await session.execute(text("SELECT count(*) FROM audit WHERE action = 'undone'"))).scalar_one() == 0


async def test_pages_follow_each_other_newest_first_without_gap_or_repetition(backend: Backend) -> None:
    async with backend.database.session() as session:
        for number in range(7):
            record(session, actor="pages", action="test", target=str(number), node_id=5 if number % 2 else None)
    client = await backend.client("viewer")
    seen: list[str] = []
    older: int | None = None
    while True:
        after = f"&older_than={older}" if older else ""
        page = (await client.get(f"/api/audit?actor=pages&limit=3{after}")).json()
        seen += [entry["target"] for entry in page["entries"]]
        older = page["older"]
        if older is None:
            break
    assert seen == ["6", "5", "4", "3", "2", "1", "0"]
    of_node = (await client.get("/api/audit?actor=pages&node_id=5")).json()["entries"]
    assert [entry["target"] for entry in of_node] == ["5", "3", "1"]


async def test_every_change_of_users_and_tokens_is_recorded_with_its_actor(backend: Backend) -> None:
    admin = await backend.client("admin")
    user = (await admin.post("/api/users", {"username": "bob", "password": PASSWORD, "role": "viewer"})).json()
    await admin.patch(f"/api/users/{user['id']}", {"role": "operator", "password": "another password"})
    await backend.anonymous().post("/api/auth/login", {"username": "bob", "password": PASSWORD})
    await backend.anonymous().post("/api/auth/login", {"username": "my-secret-in-the-wrong-field", "password": "x"})
    await backend.anonymous().post("/api/auth/login", {"username": "bob", "password": "another password"})
    token = (await admin.post("/api/tokens", {"name": "ci", "role": "viewer"})).json()
    await admin.delete(f"/api/tokens/{token['id']}")
    enrolment = (await admin.post("/api/enrolment-tokens", {})).json()
    await backend.anonymous().post("/api/enrol", {"token": enrolment["token"], "names": ["audited"]})
    await admin.post("/api/auth/logout")

    entries = (await (await backend.client("viewer")).get("/api/audit")).json()["entries"]
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
        ("admin", "enrolment-token.create", "enrolment token", "ok"),
        ("admin", "node.enrol", "node audited", "ok"),
        ("admin", "logout", "user admin", "ok"),
    ]
    start = told.index(expected[0])
    assert [entry for entry in told[start:] if entry[2] != "user viewer"] == expected
    assert "another password" not in str(entries)
