"""What is left of a deleted user: a pseudonym."""

from sqlalchemy import text
from tests.backend.conftest import PASSWORD, Backend

from coresteer.audit.chain import Finding
from coresteer.audit.service import verify
from coresteer.auth.repository import NAMES_OF_USERS
from coresteer.db import Database

BODY = {"name": "spread", "spec": {"type": "irq-spread"}}


async def test_every_column_with_a_users_name_is_known(database: Database) -> None:
    """ended_by says which kind of event ended a change, managed_by which set of files manages a resource."""
    query = text("""
        SELECT table_name, column_name FROM information_schema.columns
        WHERE table_schema = 'public' AND column_name LIKE '%\\_by'
            AND column_name NOT IN ('ended_by', 'managed_by')
        ORDER BY 1, 2
    """)
    async with database.session() as session:
        assert tuple(tuple(row) for row in await session.execute(query)) == NAMES_OF_USERS


async def test_a_deleted_user_is_gone_and_a_pseudonym_is_in_history_and_audit_log(backend: Backend) -> None:
    admin = await backend.client("admin")
    leaver = {"username": "leaver", "password": PASSWORD, "role": "admin"}
    user_id = (await admin.post("/api/v1/users", leaver)).json()["id"]
    client = backend.anonymous()
    me = (await client.post("/api/v1/auth/login", {"username": "leaver", "password": PASSWORD})).json()
    client.session.headers["X-CSRF-Token"] = me["csrf_token"]
    made = await client.post("/api/v1/policies", BODY)
    assert made.status_code == 201, made.text
    versions = f"/api/v1/policies/{made.json()['id']}/versions"
    assert [version["created_by"] for version in (await admin.get(versions)).json()] == ["leaver"]
    assert (await client.post("/api/v1/tokens", {"name": "nightly report", "role": "viewer"})).status_code == 201
    assert (await client.post("/api/v1/enrolment-tokens", {})).status_code == 201

    assert (await admin.delete(f"/api/v1/users/{user_id}")).status_code == 204
    assert (await client.get("/api/v1/auth/me")).status_code == 401
    assert "leaver" not in [user["username"] for user in (await admin.get("/api/v1/users")).json()]
    assert "nightly report" not in [token["name"] for token in (await admin.get("/api/v1/tokens")).json()]
    pseudonym = f"(deleted user {user_id})"
    assert [version["created_by"] for version in (await admin.get(versions)).json()] == [pseudonym]
    async with backend.database.session() as session:
        for table, _ in (*NAMES_OF_USERS, ("audit", "actor"), ("app_user", "username")):
            rows = (await session.execute(text(f"SELECT * FROM {table}"))).all()  # noqa: S608 - names above
            assert "leaver" not in str(rows), table
    entries = (await admin.get(f"/api/v1/audit?actor={pseudonym}")).json()["entries"]
    assert {"login", "policy.create", "token.create"} <= {entry["action"] for entry in entries}
    assert all("from" not in entry["detail"] for entry in entries)
    assert not [found async for found in verify(backend.database) if isinstance(found, Finding)]


async def test_the_last_administrator_cannot_be_deleted(backend: Backend) -> None:
    admin = await backend.client("admin")
    users = (await admin.get("/api/v1/users")).json()
    for user in users:
        answer = await admin.delete(f"/api/v1/users/{user['id']}")
        assert answer.status_code == (409 if user["username"] == "admin" else 204)


async def test_deleting_a_user_who_is_named_like_an_actor_of_the_system_leaves_its_entries(backend: Backend) -> None:
    """Earlier releases permitted such names."""
    admin = await backend.client("admin")
    former = {"username": "former", "password": PASSWORD, "role": "viewer"}
    user_id = (await admin.post("/api/v1/users", former)).json()["id"]
    await backend.anonymous().post("/api/v1/auth/login", {"username": "nobody", "password": "wrong"})
    async with backend.database.session() as session:
        await session.execute(text("UPDATE app_user SET username = 'anonymous' WHERE id = :id"), {"id": user_id})
    entries = (await admin.get("/api/v1/audit?actor=anonymous")).json()["entries"]
    assert (await admin.delete(f"/api/v1/users/{user_id}")).status_code == 204
    assert entries == (await admin.get("/api/v1/audit?actor=anonymous")).json()["entries"] != []
