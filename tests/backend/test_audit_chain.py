"""The hash chain over the audit log: what `coresteer audit verify` says about a log that somebody changed."""

import asyncio
import errno
import json
import os
import socket
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import Mock

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql
from sqlalchemy import text
from tests.backend.conftest import MIGRATIONS
from tests.support.polling import PATIENCE_S

from coresteer.audit import chain
from coresteer.audit.export import SYSLOG, AuditExport
from coresteer.audit.service import anonymize_user, record, verify
from coresteer.cli.audit import AuditError, exported_hashes
from coresteer.cli.main import main
from coresteer.db import Database
from coresteer.postgres import EmbeddedPostgres

ENTRIES = 6


def with_database(url: str, name: str) -> str:
    return url.replace("/coresteer?", f"/{name}?")


class Log(Database):
    """A database for the backend's role, and its address for the superuser."""

    owner_url: str


@pytest_asyncio.fixture
async def log(postgres_server: EmbeddedPostgres) -> AsyncIterator[Log]:
    """A database of the test's own whose audit log has ENTRIES entries; number and id are the same."""
    name = f"chain_{uuid.uuid4().hex}"
    admin_url = with_database(postgres_server.url, "postgres")
    async with await psycopg.AsyncConnection.connect(admin_url, autocommit=True) as admin:
        await admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE coresteer").format(sql.Identifier(name)))
        database = Log(with_database(postgres_server.backend_url, name), MIGRATIONS)
        database.owner_url = with_database(postgres_server.url, name)
        for number in range(1, ENTRIES + 1):
            async with database.session() as session:
                record(
                    session,
                    actor="ada",
                    action="setup",
                    target="user ada" if number == 2 else f"thing {number}",
                    node_id=7 if number % 2 else None,
                    detail={"from": "203.0.113.7", 'é"\\\n\u0001': [1.50, None, 10**17]} if number < 3 else None,
                )
        yield database
        await database.close()
        await admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


async def findings(database: Database, exported: dict[int, str] | None = None) -> list[str]:
    """What verification says of the whole log."""
    return [found.sentence async for found in verify(database, exported) if isinstance(found, chain.Finding)]


async def as_superuser(log: Log, *statements: str) -> None:
    """Change the log as somebody who has the whole database server."""
    async with await psycopg.AsyncConnection.connect(log.owner_url) as connection:
        await connection.execute("SET session_replication_role = replica")  # no trigger fires
        for statement in statements:
            await connection.execute(statement.encode())


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ([], []),
        (["UPDATE audit SET actor = 'bob' WHERE id = 3"], ["Entry 3 was altered: its actor is not the one"]),
        (["UPDATE audit SET target = 'x' WHERE id = 3"], ["Entry 3 was altered: its target is not the one"]),
        (["UPDATE audit SET detail = '{}' WHERE id = 1"], ["Entry 1 was altered: its detail is not the one"]),
        (["UPDATE audit SET result = 'no' WHERE id = 3"], ["Entry 3 was altered: its time, action, node, result"]),
        (["UPDATE audit SET node_id = 1 WHERE id = 2"], ["Entry 2 was altered: its time, action, node, result"]),
        (["UPDATE audit SET at = at - interval '1 us' WHERE id = 6"], ["Entry 6 was altered: its time"]),
        (["DELETE FROM audit WHERE id IN (2, 5)"], ["Entry 2 was deleted.", "Entry 5 was deleted."]),
        (
            ["DELETE FROM audit WHERE id = 4", "DELETE FROM audit_chain WHERE audit_id = 4"],
            ["The entry with number 4 of the chain and the link are missing: deleted."],
        ),
        (
            ["DELETE FROM audit WHERE id > 4", "DELETE FROM audit_chain WHERE audit_id > 4"],
            ["The entries with numbers 5 to 6 of the chain"],
        ),
        (
            ["UPDATE audit SET actor = '(deleted user 9)' WHERE id = 3", "UPDATE audit_chain SET actor_salt = NULL"],
            ["Entry 1 was altered: no anonymization lists its actor.", "Entry 2 was", *["Entry"] * 4],
        ),
        (
            ["UPDATE audit_chain SET hash = sha256('x') WHERE number = 2"],
            ["Entry 2 was altered: its time", "The link of entry 3 does not follow"],
        ),
        (
            ["INSERT INTO audit (actor, action, target, result, detail) VALUES ('eve', 'x', 'y', 'ok', '{}')"],
            ["Entry 7 was added outside the chain."],
        ),
    ],
)
async def test_a_deleted_or_altered_entry_is_named(log: Log, statements: list[str], expected: list[str]) -> None:
    await as_superuser(log, *statements)
    found = await findings(log)
    assert len(found) == len(expected), found
    assert [sentence.startswith(start) for sentence, start in zip(found, expected, strict=True)] == [True] * len(found)


async def test_concurrent_transactions_append_to_one_chain_without_a_deadlock(log: Log) -> None:
    async def two_entries_and_a_row(number: int) -> None:
        async with log.session() as session:
            record(session, actor="ada", action="setup", target=f"first of {number}")
            await session.flush()
            # all want the same row after their entry: a chain that is locked at the insert would deadlock here
            await session.execute(text("UPDATE audit_export SET number = number + 1"))
            record(session, actor="ada", action="setup", target=f"second of {number}")

    async with log.session() as session:
        await session.execute(text("INSERT INTO audit_export VALUES ('a test', 0)"))
    await asyncio.gather(*(two_entries_and_a_row(number) for number in range(8)))
    counts = [found async for found in verify(log)]
    assert counts == [chain.Verified(ENTRIES + 16, 0)]


async def delete_ada(database: Database) -> None:
    async with database.session() as session:
        record(session, actor="admin", action="user.delete", target="user ada")
        record(session, actor="admin", action="report.share", target="thing", detail={"with": ["ada", "bob"]})
        await anonymize_user(session, user_id=12, username="ada", actor="admin")


async def test_an_anonymized_user_leaves_no_name_or_address_and_a_chain_that_verifies(log: Log) -> None:
    await delete_ada(log)
    assert await findings(log) == []
    async with log.session() as session:
        rows = (await session.execute(text("SELECT audit::text FROM audit ORDER BY id"))).scalars().all()
    assert not [row for row in rows if "ada" in row or "203.0.113.7" in row]
    assert "user (deleted user 12)" in rows[ENTRIES]
    assert "audit.anonymize" in rows[-1]
    *_, verified = [found async for found in verify(log)]
    assert verified == chain.Verified(links=len(rows), anonymized=len(rows) - 1)


@pytest.mark.parametrize("forged", ["alice", "(deleted user 13)"])
async def test_an_anonymized_entry_cannot_be_given_another_name(log: Log, forged: str) -> None:
    await delete_ada(log)
    await as_superuser(log, f"UPDATE audit SET actor = '{forged}' WHERE id = 3")  # noqa: S608 - of the table above
    assert await findings(log) == ["Entry 3 was altered: no anonymization lists its actor."]


@pytest.mark.parametrize(
    "detail", [{"foo": "[1,2)"}, {"actor": 5}, {"actor": None}, {"actor": f"{{[1,{'9' * 5000})}}"}, [], "[1,2)", None]
)
async def test_a_forged_anonymization_is_named_and_does_not_end_the_verification(log: Log, detail: object) -> None:
    async with log.session() as session:
        forged = text(
            "INSERT INTO audit (actor, action, target, result, detail)"
            " VALUES ('eve', 'audit.anonymize', 'user ada', 'ok', CAST(:detail AS jsonb))"
        )
        await session.execute(forged, {"detail": json.dumps(detail)})
    assert await findings(log) == [f"Entry {ENTRIES + 1} is no anonymization that Coresteer recorded: it is forged."]


@pytest.mark.parametrize("name", ["role", "admin", "bytes"])
async def test_the_deletion_of_a_user_removes_no_detail_in_coresteers_own_words(log: Log, name: str) -> None:
    details = [{"role": "admin", "disabled": True}, {"why": "bytes", "rows": 3}]
    async with log.session() as session:
        for detail in details:
            record(session, actor="eve", action="setup", target="thing", detail=detail)
    async with log.session() as session:
        await anonymize_user(session, user_id=12, username=name, actor="eve")
        rows = await session.scalars(
            text("SELECT detail FROM audit WHERE actor = 'eve' AND action = 'setup' ORDER BY id")
        )
        assert rows.all() == details
    assert await findings(log) == []


async def test_a_user_who_exists_is_not_anonymized(log: Log) -> None:
    await as_superuser(
        log,
        "INSERT INTO app_user (username, role, password_hash, password_salt, scrypt_n, scrypt_r, scrypt_p)"
        " VALUES ('ada', 'viewer', '', '', 1, 1, 1)",
    )
    with pytest.raises(Exception, match="only for deleted users, and ada is not one"):
        await delete_ada(log)


async def test_an_export_shows_that_the_whole_chain_was_written_anew(
    log: Log,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DATABASE_URL", log.url)
    assert await asyncio.to_thread(main, ["audit", "export"]) == 0
    file = tmp_path / "audit.jsonl"
    file.write_text(capsys.readouterr().out)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["number"] for line in lines] == list(range(1, ENTRIES + 1))
    assert lines[1]["detail"]['é"\\\n\u0001'] == [1.5, None, 10**17]
    assert await asyncio.to_thread(main, ["audit", "verify", "--export", str(file)]) == 0
    assert "6 entries: none was deleted or altered." in capsys.readouterr().out
    await as_superuser(
        log,
        "UPDATE audit SET target = 'thing 4a' WHERE id = 4",
        "DELETE FROM audit_chain",
        "UPDATE audit_head SET number = 0, hash = ''",
        "DO $$ DECLARE entry audit; head audit_head; BEGIN SELECT * INTO head FROM audit_head;"
        " FOR entry IN SELECT * FROM audit WHERE id < 6 ORDER BY id LOOP head := append_audit_link(entry, head);"
        " END LOOP; UPDATE audit_head SET number = head.number, hash = head.hash; END $$",
    )
    assert await findings(log) == ["Entry 6 was added outside the chain."]
    assert await asyncio.to_thread(main, ["audit", "verify", "--export", str(file)]) == 1
    said = capsys.readouterr().out
    assert "Entry 4 is not the one that was exported." in said
    assert "The entry with number 6 of the chain was exported and is not there any more." in said
    assert await asyncio.to_thread(main, ["audit", "export"]) == 0
    with file.open("a") as appended:  # as if the continuous export had begun anew with the falsified chain
        appended.write(capsys.readouterr().out)
    assert await asyncio.to_thread(main, ["audit", "verify", "--export", str(file)]) == 1
    assert "Entry 4 is not the one that was exported." in capsys.readouterr().out


async def test_entries_are_exported_to_a_file_once_and_after_a_restart_from_where_it_was(
    log: Log, tmp_path: Path
) -> None:
    file = tmp_path / "audit.jsonl"
    for expected in (ENTRIES, ENTRIES + 1):
        export = AuditExport(log, str(file))
        await export.export_new()
        assert await export.export_new() == 0
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert [line["number"] for line in lines] == list(range(1, expected + 1))
        async with log.session() as session:
            record(session, actor="ada", action="setup", target="later")
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("may_truncate", [True, False])
async def test_a_full_disk_leaves_an_export_that_verifies(
    log: Log,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    may_truncate: bool,
) -> None:
    file = tmp_path / "audit.jsonl"
    export = AuditExport(log, str(file))
    await export.export_new()
    complete = file.read_text()
    async with log.session() as session:
        record(session, actor="ada", action="setup", target="later")
        record(session, actor="ada", action="setup", target="last")
    with monkeypatch.context() as full:
        if not may_truncate:  # as when the file has the attribute "append only"
            full.setattr(os, "ftruncate", Mock(side_effect=PermissionError))
        write, room = os.write, 600

        def write_while_there_is_room(descriptor: int, data: bytes) -> int:
            nonlocal room
            if room == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            written = write(descriptor, data[:room])
            room -= written
            return written

        full.setattr(os, "write", write_while_there_is_room)
        with pytest.raises(OSError, match="No space left"):
            await export.export_new()
    assert (file.read_text() == complete) == may_truncate
    monkeypatch.setenv("DATABASE_URL", log.url)
    for written in (0, 2):
        assert await asyncio.to_thread(main, ["audit", "verify", "--export", str(file)]) == 0
        assert "8 entries: none was deleted or altered." in capsys.readouterr().out
        assert await export.export_new() == 2 - written
    numbers = [json.loads(line)["number"] for line in file.read_text().splitlines()[-2:]]
    assert numbers == [ENTRIES + 1, ENTRIES + 2]


def _line(number: int) -> str:
    return json.dumps({"number": number, "hash": "ab"}) + "\n"


TORN = '{"number": 2, "ha'
EXPORTS = [
    ("a torn line whose number follows again", [_line(1), TORN + "\n", _line(2)], None),
    ("a torn line whose entry another machine has", [_line(1), TORN + "\n", _line(3)], None),
    ("two torn lines", [_line(1), TORN + "\n", TORN[:5] + "\n", _line(2)], None),
    ("a torn end", [_line(1), TORN], None),
    ("a torn first line", [TORN + "\n", _line(2)], None),
    ("no export", ["no export"], 1),
    ("another value", [_line(1), "[]\n", _line(3)], 2),
    ("an entry without a hash", [_line(1), '{"number": 2}\n'], 2),
]


@pytest.mark.parametrize(("lines", "wrong"), [row[1:] for row in EXPORTS], ids=[row[0] for row in EXPORTS])
def test_a_line_that_was_cut_off_is_skipped(tmp_path: Path, lines: list[str], wrong: int | None) -> None:
    file = tmp_path / "audit.jsonl"
    file.write_text("".join(lines))
    if wrong is None:
        whole = [json.loads(line)["number"] for line in lines if line.endswith("}\n")]
        assert exported_hashes(file) == dict.fromkeys(whole, "ab")
    else:
        with pytest.raises(AuditError, match=f"^Line {wrong} of"):
            exported_hashes(file)


async def test_entries_are_exported_to_syslog(log: Log, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as syslog:
        syslog.bind(str(tmp_path / "log"))
        await AuditExport(log, SYSLOG, syslog_socket=str(tmp_path / "log")).export_new()
        message = syslog.recv(65536).decode()
    assert message.startswith("<109>coresteer-audit: {")
    assert json.loads(message.partition(": ")[2])["target"] == "thing 1"


async def test_an_entry_too_long_for_syslog_is_exported_without_its_detail(log: Log, tmp_path: Path) -> None:
    async with log.session() as session:
        record(session, actor="agent", action="setup", target="long", detail={"sentence": "\x01" * 65_536})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as syslog:
        syslog.bind(str(tmp_path / "log"))
        async with asyncio.timeout(PATIENCE_S):
            assert await AuditExport(log, SYSLOG, syslog_socket=str(tmp_path / "log")).export_new() == ENTRIES + 1
        exported = [json.loads(syslog.recv(65536).decode().partition(": ")[2]) for _ in range(ENTRIES + 1)]
    assert [entry["number"] for entry in exported] == list(range(1, ENTRIES + 2))
    assert exported[-1]["detail"] == {"omitted_bytes": 393_232}


async def test_a_destination_that_cannot_be_written_is_logged_once_and_loses_nothing(
    log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "missing"
    export = AuditExport(log, str(folder / "audit.jsonl"))
    await export._export_or_log()
    await export._export_or_log()
    assert len(caplog.records) == 1
    folder.mkdir()
    await export._export_or_log()
    assert len((folder / "audit.jsonl").read_text().splitlines()) == ENTRIES
