"""Revoked keys, deleted tokens and changed roles take effect on open connections, whichever process changes them."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from uuid import uuid4

import psycopg
import pytest
from tests.backend.conftest import Backend, Client
from tests.backend.fake_agent import FakeAgent, enrolled, hello, rates
from tests.support.polling import PATIENCE_S, poll_async
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from coresteer.auth.secrets import SESSION_COOKIE
from coresteer.auth.trust import TrustWatch
from coresteer.live import socket as live_socket
from coresteer.live.hub import LiveHub
from coresteer_core.protocol import CloseCode, RatesMessage

EFFECT_S = 20.0
"""It takes less than a second, but on a busy machine; what is checked anyway takes 30 s and more."""


async def after_hello(agent: FakeAgent) -> None:
    await agent.greet()
    await agent.send_rates([rates(1)])


async def before_hello(agent: FakeAgent) -> None:
    pass


STAGES = {"before Hello": before_hello, "after Hello": after_hello}


async def revoke_over_http(backend: Backend, agent: FakeAgent) -> None:
    admin = await backend.client("admin")
    assert (await admin.post(f"/api/v1/nodes/{agent.node_id}/revoke-key")).status_code == 204


async def delete_over_http(backend: Backend, agent: FakeAgent) -> None:
    admin = await backend.client("admin")
    assert (await admin.delete(f"/api/v1/nodes/{agent.node_id}")).status_code == 204


async def revoke_in_another_process(backend: Backend, agent: FakeAgent) -> None:
    async with await psycopg.AsyncConnection.connect(backend.database.url) as connection:
        await connection.execute("UPDATE node SET key_hash = NULL WHERE id = %s", (agent.node_id,))


WAYS = {"revoked": revoke_over_http, "deleted": delete_over_http, "revoked elsewhere": revoke_in_another_process}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stage", STAGES)
async def test_an_agent_whose_key_ends_is_disconnected_at_every_stage_of_its_connection(
    backend: Backend, stage: str, way: str
) -> None:
    agent = await enrolled(backend.database, backend.url, f"ends-{uuid4()}")
    async with asyncio.timeout(PATIENCE_S):
        await agent.connect()
        await STAGES[stage](agent)
        await WAYS[way](backend, agent)
        async with asyncio.timeout(EFFECT_S):
            assert (await agent.closed())[0] == CloseCode.BAD_KEY


async def test_nothing_of_a_revoked_agent_that_does_not_read_is_accepted_any_more(backend: Backend) -> None:
    agent = await enrolled(backend.database, backend.url, "does-not-read")
    async with asyncio.timeout(PATIENCE_S), agent:
        agent.websocket.transport.pause_reading()
        await revoke_over_http(backend, agent)
        await poll_async(lambda: not backend.app.state.connections.is_connected(agent.node_id))
        with contextlib.suppress(ConnectionClosed):
            await agent.say(RatesMessage(rates(1)))
        agent.websocket.transport.resume_reading()
        assert (await agent.closed())[0] == CloseCode.BAD_KEY


async def test_what_changes_while_nobody_listens_takes_effect_when_the_database_answers_again(backend: Backend) -> None:
    agent = await enrolled(backend.database, backend.url, "unheard")
    trust: TrustWatch = backend.app.state.trust
    async with asyncio.timeout(PATIENCE_S), agent:
        await trust.stop()
        await revoke_in_another_process(backend, agent)
        trust.start()
        assert (await agent.closed())[0] == CloseCode.BAD_KEY


@contextlib.asynccontextmanager
async def page(client: Client) -> AsyncIterator[ClientConnection]:
    """The feed of somebody, by session cookie or API token."""
    cookie = client.session.cookies.get(SESSION_COOKIE)
    headers = {"Cookie": f"{SESSION_COOKIE}={cookie}"} if cookie else {}
    headers |= {
        name: str(client.session.headers[name]) for name in ("Authorization",) if name in client.session.headers
    }
    url = client.url.replace("http", "ws", 1) + "/api/v1/live"
    async with connect(url, additional_headers={**headers, "Origin": client.url}, proxy=None) as websocket:
        yield websocket


async def script(backend: Backend, role: str) -> tuple[int, Client]:
    """Somebody with a new API token of the admin's, and its id."""
    admin = await backend.client("admin")
    made = (await admin.post("/api/v1/tokens", {"name": f"feed {uuid4()}", "role": role})).json()
    client = backend.anonymous()
    client.session.headers["Authorization"] = f"Bearer {made['token']}"
    return made["id"], client


async def until_open(backend: Backend, pages: int = 1) -> None:
    hub: LiveHub = backend.app.state.live
    await poll_async(lambda: len(hub._browsers) == pages)


async def closed(websocket: ClientConnection) -> tuple[int, str]:
    try:
        while True:
            await websocket.recv()
    except ConnectionClosed as error:
        assert error.rcvd is not None
        return error.rcvd.code, error.rcvd.reason


async def test_the_feed_of_a_deleted_api_token_ends(backend: Backend) -> None:
    token_id, client = await script(backend, "viewer")
    admin = await backend.client("admin")
    async with asyncio.timeout(PATIENCE_S), page(client) as feed:
        await until_open(backend)
        assert (await admin.delete(f"/api/v1/tokens/{token_id}")).status_code == 204
        async with asyncio.timeout(EFFECT_S):
            assert (await closed(feed))[0] == 1008


LOSSES = {
    "signs out": ("viewer", "POST", "/api/v1/auth/logout", None, "Sign in"),
    "is disabled": ("admin", "PATCH", "/api/v1/users/{user_id}", {"disabled": True}, "Sign in"),
    "gets another role": ("admin", "PATCH", "/api/v1/users/{user_id}", {"role": "operator"}, "operator"),
}


@pytest.mark.parametrize("loss", LOSSES)
async def test_the_page_of_a_user_who_loses_rights_is_closed_with_the_reason(backend: Backend, loss: str) -> None:
    by, method, path, body, reason = LOSSES[loss]
    clients = {role: await backend.client(role) for role in ("viewer", "admin")}
    users = (await clients["admin"].get("/api/v1/users")).json()
    user_id = next(user["id"] for user in users if user["username"] == "viewer")
    try:
        async with asyncio.timeout(PATIENCE_S), page(clients["viewer"]) as feed:
            await until_open(backend)
            await clients[by].request(method, path.format(user_id=user_id), json=body)
            async with asyncio.timeout(EFFECT_S):
                code, told = await closed(feed)
        assert (code, reason in told) == (1008, True), told
    finally:
        await clients["admin"].patch(f"/api/v1/users/{user_id}", {"role": "viewer", "disabled": False})


async def test_a_page_that_sends_too_much_is_not_read_and_then_closed(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_socket, "_PENALTY_S", 0.1)
    monkeypatch.setattr(live_socket, "_MESSAGES_PER_S", 0.0)  # however long the messages take
    applied = 0
    hub: LiveHub = backend.app.state.live
    subscribe = hub.subscribe

    def counted(*arguments: object) -> None:
        nonlocal applied
        applied += 1
        subscribe(*arguments)  # type: ignore[arg-type]  # as they were given

    monkeypatch.setattr(hub, "subscribe", counted)
    async with asyncio.timeout(PATIENCE_S), page(await backend.client("viewer")) as feed:
        with contextlib.suppress(ConnectionClosed):
            for node in range(1, 500):
                await feed.send(json.dumps({"node": node}))
        code, reason = await closed(feed)
    assert (code, "messages a second" in reason) == (1008, True), reason
    assert applied == live_socket._BURST + 1, "the last one is of none, when the page is closed"


async def test_one_user_has_a_limited_number_of_pages_and_others_are_not_affected(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coresteer.live.hub._MAX_PAGES_PER_USER", 2)
    hub: LiveHub = backend.app.state.live
    viewer, operator = await backend.client("viewer"), await backend.client("operator")
    await until_open(backend, 0)
    async with asyncio.timeout(PATIENCE_S), page(viewer), page(viewer) as second:
        await until_open(backend, 2)
        async with page(viewer) as third:
            code, reason = await closed(third)
        assert (code, "2 pages of viewer" in reason) == (1013, True)
        async with page(operator):
            await until_open(backend, 3)
        await second.close()
        await until_open(backend, 1)
        async with page(viewer):
            await until_open(backend, 2)
    await poll_async(lambda: not hub._browsers and not hub._pages_of and not hub._subscribers)


async def test_a_greeting_after_the_revocation_is_not_answered(backend: Backend) -> None:
    agent = await enrolled(backend.database, backend.url, "spare-socket")
    async with asyncio.timeout(PATIENCE_S):
        await agent.connect()
        await revoke_over_http(backend, agent)
        with contextlib.suppress(ConnectionClosed):
            await agent.say(hello())
        async with asyncio.timeout(EFFECT_S):
            assert (await agent.closed())[0] == CloseCode.BAD_KEY
    assert not backend.app.state.connections.is_connected(agent.node_id)


async def test_an_upload_whose_sender_loses_its_rights_meanwhile_is_refused(backend: Backend) -> None:
    token_id, client = await script(backend, "operator")
    admin = await backend.client("admin")
    begun, revoked = threading.Event(), threading.Event()

    def trace() -> Iterator[bytes]:
        yield b"; a trace\n"
        begun.set()
        revoked.wait(PATIENCE_S)
        yield b"1 0 0 10 1 -1 -1 1 10 -1 1 1 1 1 1 1 -1 -1\n"

    uploading = asyncio.create_task(client.request("PUT", "/api/v1/simulation-traces/late.swf", data=trace()))
    await asyncio.to_thread(begun.wait, PATIENCE_S)
    assert (await admin.delete(f"/api/v1/tokens/{token_id}")).status_code == 204
    revoked.set()
    assert (await uploading).status_code == 401
    assert (await admin.get("/api/v1/simulation-traces")).json() == []
