"""Agents' keys: rotated over the open connection, expired when unused, replaced when a machine is installed anew."""

import asyncio
from datetime import timedelta
from hashlib import sha256

import pytest
import requests
from sqlalchemy import text
from tests.backend.conftest import Backend
from tests.backend.fake_agent import FakeAgent, enrolled
from tests.support.polling import PATIENCE_S, poll_async

from coresteer.nodes.repository import note_key_use
from coresteer.nodes.service import hash_key
from coresteer.telemetry.repository import lock_positions
from coresteer_core.protocol import CloseCode, KeyStored, NewKey, decode_to_agent


async def age(backend: Backend, node_id: int, **columns: int) -> None:
    """Set times of a node's keys to some days ago."""
    values = ", ".join(f"{name} = now() - interval '{days} days'" for name, days in columns.items())
    async with backend.database.session() as session:
        await session.execute(text(f"UPDATE node SET {values} WHERE id = :id"), {"id": node_id})  # noqa: S608


async def new_key(agent: FakeAgent) -> str:
    """The next key that the agent is sent."""
    while True:
        message = decode_to_agent(await agent.receive())
        if isinstance(message, NewKey):
            return message.key


async def stored(agent: FakeAgent, key: str) -> None:
    """Tell that the key is on disk."""
    await agent.say(KeyStored(sha256(key.encode()).hexdigest()))


async def is_accepted(agent: FakeAgent, key: str) -> bool:
    other = FakeAgent(agent.url, key, agent.node_id)
    await other.connect()
    try:
        await other.greet(rotates_keys=True)
    except Exception:  # closed
        return False
    finally:
        await other.websocket.close()
    return True


async def old_agent(backend: Backend, name: str) -> FakeAgent:
    """An agent with a key of 31 days, connected."""
    agent = await enrolled(backend.database, backend.url, name)
    await age(backend, agent.node_id, key_created_at=31, key_used_at=1)
    await agent.connect()
    await agent.greet(rotates_keys=True)
    return agent


async def previous_until(backend: Backend, node_id: int) -> object:
    async with backend.database.session() as session:
        query = text("SELECT previous_key_until - now() FROM node WHERE id = :id")
        return (await session.execute(query, {"id": node_id})).scalar_one()


async def test_an_old_key_is_replaced_over_the_open_connection_and_valid_for_a_day(backend: Backend) -> None:
    async with asyncio.timeout(PATIENCE_S):
        agent = await old_agent(backend, "rotates")
        key = await new_key(agent)
        await stored(agent, key)
        await poll_async(lambda: backend.app.state.connections.get(agent.node_id).key_hash == _hash(key))
        await poll_async(lambda: previous_until(backend, agent.node_id))
        assert await is_accepted(agent, agent.key) and await is_accepted(agent, key)
        await age(backend, agent.node_id, previous_key_until=0)
        assert not await is_accepted(agent, agent.key)
        assert await is_accepted(agent, key)
    entries = (await (await backend.client("viewer")).get(f"/api/v1/audit?node_id={agent.node_id}")).json()["entries"]
    assert [entry["action"] for entry in entries] == ["node.rotate_key"]


def _hash(key: str) -> bytes:
    return sha256(key.encode()).digest()


async def test_a_key_that_the_agent_did_not_store_is_replaced_and_the_old_one_stays_valid(backend: Backend) -> None:
    async with asyncio.timeout(PATIENCE_S):
        agent = await old_agent(backend, "crashes")
        lost = await new_key(agent)
        await agent.websocket.close()
        await agent.connect()
        await agent.greet(rotates_keys=True)
        key = await new_key(agent)
        assert key != lost
        assert await previous_until(backend, agent.node_id) is None
        assert not await is_accepted(agent, lost)
        assert await is_accepted(agent, key)  # as after a crash between storing it and saying so
        await poll_async(lambda: previous_until(backend, agent.node_id))
        await agent.websocket.close()


async def test_the_end_of_the_previous_key_closes_only_connections_that_use_it(backend: Backend) -> None:
    async with asyncio.timeout(PATIENCE_S):
        agent = await old_agent(backend, "keeps-using-it")
        key = await new_key(agent)
        assert await is_accepted(agent, key)  # replaces the connection
        await poll_async(lambda: previous_until(backend, agent.node_id))
        thief = FakeAgent(agent.url, agent.key, agent.node_id)
        await thief.connect()
        await thief.greet(rotates_keys=True)
        await age(backend, agent.node_id, previous_key_until=0)
        for doubt in backend.app.state.trust._watching[_hash(agent.key).hex()]:
            doubt()  # as within a minute
        assert (await thief.closed())[0] == CloseCode.BAD_KEY


async def test_an_agent_that_cannot_rotate_keeps_its_key(backend: Backend) -> None:
    agent = await enrolled(backend.database, backend.url, "of-an-older-version")
    await age(backend, agent.node_id, key_created_at=31)
    async with asyncio.timeout(PATIENCE_S), agent:
        holder = backend.app.state.connections.get(agent.node_id)
        await backend.app.state.agents.keys.note({holder.key_hash: holder})
    assert await is_accepted(agent, agent.key)


@pytest.mark.parametrize(("days", "accepted"), [(89, True), (91, False)])
async def test_a_key_expires_after_ninety_days_without_use(backend: Backend, days: int, accepted: bool) -> None:
    agent = await enrolled(backend.database, backend.url, f"unused-{days}")
    await age(backend, agent.node_id, key_created_at=days, key_used_at=days)
    async with asyncio.timeout(PATIENCE_S):
        await agent.connect()
        if accepted:
            await agent.greet()
        else:
            code, reason = await agent.closed()
            assert (code, f"coresteer readmit unused-{days}" in reason) == (CloseCode.BAD_KEY, True), reason


async def test_a_machine_installed_anew_is_readmitted_with_one_command(backend: Backend) -> None:
    agent = await enrolled(backend.database, backend.url, "web-1")
    operator = await backend.client("operator")
    async with asyncio.timeout(PATIENCE_S), agent:
        refused = await _enrol(backend, await _token(backend), "web-1")
        assert (refused.status_code, "coresteer readmit web-1" in refused.json()["detail"]) == (409, True)
        answer = (await operator.post(f"/api/v1/nodes/{agent.node_id}/readmit")).json()
        assert f"--token {answer['token']} --name web-1" in answer["command"]
        wrong = await _enrol(backend, answer["token"], "web-2")
        assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "names")
        enrolled_again = (await _enrol(backend, answer["token"], "web-1")).json()["nodes"][0]
        assert (await agent.closed())[0] == CloseCode.BAD_KEY
    assert enrolled_again["node_id"] == agent.node_id
    assert await is_accepted(agent, enrolled_again["key"])
    assert (await _enrol(backend, answer["token"], "web-1")).status_code == 403
    entries = (await operator.get(f"/api/v1/audit?node_id={agent.node_id}")).json()["entries"]
    assert [(entry["actor"], entry["action"]) for entry in entries] == [
        ("operator", "node.re-enrol"),
        ("operator", "node.readmit"),
    ]


async def test_only_an_administrator_readmits_a_node_whose_key_was_revoked(backend: Backend) -> None:
    agent = await enrolled(backend.database, backend.url, "revoked-1")
    operator, admin = await backend.client("operator"), await backend.client("admin")
    path = f"/api/v1/nodes/{agent.node_id}"
    before = (await operator.post(f"{path}/readmit")).json()["token"]
    assert (await admin.post(f"{path}/revoke-key")).status_code == 204
    assert (await _enrol(backend, before, "revoked-1")).status_code == 403
    refused = await operator.post(f"{path}/readmit")
    assert (refused.status_code, "administrator" in refused.json()["detail"]) == (403, True)
    answer = (await admin.post(f"{path}/readmit")).json()
    assert (await _enrol(backend, answer["token"], "revoked-1")).status_code == 200


async def _token(backend: Backend) -> str:
    token: str = (await (await backend.client("admin")).post("/api/v1/enrolment-tokens", {})).json()["token"]
    return token


async def _enrol(backend: Backend, token: str, name: str) -> requests.Response:
    return await backend.anonymous().post("/api/enrol", {"token": token, "names": [name]})


async def test_keys_in_use_are_noted_in_the_order_of_nodes_so_that_nobody_deadlocks(backend: Backend) -> None:
    low, high = [await enrolled(backend.database, backend.url, f"order-{name}") for name in ("low", "high")]
    hashes = [hash_key(high.key), hash_key(low.key)]

    async def note() -> None:
        async with backend.database.session() as session:
            await note_key_use(session, hashes, timedelta(days=30))

    async with backend.database.pool.connection() as connection:
        await connection.execute("SELECT FROM node WHERE id = %s FOR UPDATE", (low.node_id,))
        noting = asyncio.create_task(note())
        async with asyncio.timeout(PATIENCE_S):
            while True:
                cursor = await connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted")
                if await cursor.fetchone() != (0,):
                    break
        await connection.execute("SELECT FROM node WHERE id = %s FOR UPDATE NOWAIT", (high.node_id,))
    await noting


async def test_rows_that_refer_to_a_node_do_not_wait_for_its_keys_and_samples(backend: Backend) -> None:
    node = await enrolled(backend.database, backend.url, "referred-to")
    pool = backend.database.pool
    async with asyncio.timeout(PATIENCE_S), pool.connection() as writer, pool.connection() as reader:
        await writer.execute(
            "INSERT INTO node_snapshot (node_id, kind, at, digest, data) VALUES (%s, 'topology', now(), '', '')",
            (node.node_id,),
        )
        await lock_positions(reader, [node.node_id])
        await reader.rollback()
        async with backend.database.session() as session:
            assert await note_key_use(session, [hash_key(node.key)], timedelta(days=30))
        await writer.rollback()
