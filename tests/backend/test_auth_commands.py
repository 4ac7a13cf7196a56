import io

import pytest
from tests.backend.conftest import Backend

from coresteer.auth import service
from coresteer.cli import main
from coresteer.db import Database


async def command(monkeypatch: pytest.MonkeyPatch, database: Database, *argv: str) -> int:
    import asyncio

    monkeypatch.setenv("DATABASE_URL", database.url)
    return await asyncio.to_thread(main.main, list(argv))


async def test_the_commands_of_the_machines_owner_work_through_the_database(
    backend: Backend, database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await command(monkeypatch, database, "migrate") == 0
    capsys.readouterr()
    assert await command(monkeypatch, database, "set-up-link") == 0
    link = capsys.readouterr().out.strip()
    assert link.startswith("http://127.0.0.1:8420/setup?token=")
    body = {"token": link.partition("=")[2], "username": "ada", "password": "the first password"}
    assert (await backend.anonymous().post("/api/v1/auth/setup", body)).status_code == 200
    assert await command(monkeypatch, database, "set-up-link") == 1
    assert "already set up" in capsys.readouterr().err

    assert await command(monkeypatch, database, "enrolment-token", "--simulated") == 0
    token = capsys.readouterr().out.strip()
    answer = await backend.anonymous().post("/api/enrol", {"token": token, "names": ["sim-1", "sim-2"]})
    assert answer.status_code == 200


async def test_a_token_for_many_nodes_is_created_with_its_bounds(
    backend: Backend, database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    many = ["--uses", "50", "--expires", "24h", "--label", "role=db", "--label", "rack=r01"]
    options = [*many, "--name", "db-*", "--rejoin-for", "90m"]
    assert await command(monkeypatch, database, "enrolment-token", *options) == 0
    token = capsys.readouterr().out.strip()
    assert (await backend.anonymous().post("/api/enrol", {"token": token, "names": ["db-1"]})).status_code == 200
    shown = (await (await backend.client("admin")).get("/api/v1/enrolment-tokens")).json()[0]
    assert (shown["uses_left"], shown["labels"], shown["name_pattern"]) == (49, {"role": "db", "rack": "r01"}, "db-*")
    assert (shown["created_by"], shown["rejoin_until"] is None) == ("command line", False)
    assert await command(monkeypatch, database, "enrolment-token", "--rejoin-for", "1h") == 1
    assert "--rejoin-for: Nodes may enrol again only with a pattern" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        await command(monkeypatch, database, "enrolment-token", "--expires", "soon")
    assert "write for example 30m, 24h or 7d" in capsys.readouterr().err


async def test_a_password_can_be_reset_from_standard_input(
    backend: Backend, database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await backend.client("admin")
    for given, status in (("short\n", 1), ("a password typed anew\n", 0)):
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        assert await command(monkeypatch, database, "reset-password", "admin") == status
    assert "at least 10 characters" in capsys.readouterr().err
    body = {"username": "admin", "password": "a password typed anew"}
    assert (await backend.anonymous().post("/api/v1/auth/login", body)).status_code == 200
    monkeypatch.setattr("sys.stdin", io.StringIO("a password typed anew\n"))
    assert await command(monkeypatch, database, "reset-password", "nobody") == 1
    assert "no user nobody" in capsys.readouterr().err


async def test_a_disabled_person_is_not_enabled_again_by_a_new_password(
    backend: Backend, database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = await backend.client("admin")
    body = {"username": "left", "password": "a password of old", "role": "viewer"}
    user_id = (await admin.post("/api/v1/users", body)).json()["id"]
    assert (await admin.patch(f"/api/v1/users/{user_id}", {"disabled": True})).status_code == 200
    monkeypatch.setattr("sys.stdin", io.StringIO("a password typed anew\n"))
    assert await command(monkeypatch, database, "reset-password", "left") == 1
    assert "left is disabled" in capsys.readouterr().err


async def test_a_set_up_token_is_created_only_without_users(backend: Backend) -> None:
    await backend.client("admin")
    async with backend.database.session() as session:
        assert await service.new_set_up_token(session) is None
