"""Connections are bounded in bytes, number and time, without a proxy in front."""

import asyncio
import json
import select
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.backend.conftest import Backend, running_backend
from tests.backend.fake_agent import FakeAgent, enrolled, rates
from tests.support.polling import PATIENCE_S, poll_async

from coresteer.auth.secrets import SESSION_COOKIE
from coresteer.gateway.presented_key import MAX_CONNECTIONS
from coresteer.http_server import limits, protocol
from coresteer.http_server.limits import MAX_WAIT_S, MAX_WAITING, MAX_WAITING_PER_ADDRESS, ConnectionLimits, Peer
from coresteer.origin import network_of

BEGIN = b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n"


class Raw:
    """A connection on which a test sends what it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, backend: Backend, sent: bytes = b"") -> "Raw":
        raw = cls(*await asyncio.open_connection("127.0.0.1", int(backend.url.rpartition(":")[2])))
        raw.writer.write(sent)
        return raw

    async def answer(self) -> tuple[int, str]:
        """The status and type of the response, after which the backend ends the connection."""
        text = (await asyncio.wait_for(self.reader.read(), PATIENCE_S)).decode()
        head, _, body = text.partition("\r\n\r\n")
        return int(head.split()[1]), str(json.loads(body)["type"])

    async def ended(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                pass


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_WAIT_S", 0.3)


HEADS = [
    ("one long header", BEGIN + b"X-a: " + b"a" * protocol.MAX_HEAD_BYTES, 431),
    ("a long complete head", BEGIN + b"X-a: " + b"a" * protocol.MAX_HEAD_BYTES + b"\r\n\r\n", 431),
    ("a long address", b"GET /" + b"a" * protocol.MAX_HEAD_BYTES, 431),
    ("many short headers", BEGIN + b"a:\r\n" * protocol.MAX_HEADERS + b"\r\n", 431),
    ("long trailers", BEGIN + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"a:\r\n" * protocol.MAX_HEADERS, 431),
    ("no HTTP", b"\x16\x03\x01\x00\r\n\r\n", 400),
]


@pytest.mark.parametrize(("sent", "status"), [row[1:] for row in HEADS], ids=[row[0] for row in HEADS])
async def test_heads_are_limited_in_bytes_and_lines(backend: Backend, sent: bytes, status: int) -> None:
    raw = await Raw.open(backend, sent)
    assert await raw.answer() == (
        status,
        "urn:coresteer:headers-too-large" if status == 431 else "urn:coresteer:bad-request",
    )
    raw.writer.close()


async def test_one_long_trailer_is_limited_like_a_head(backend: Backend) -> None:
    begin = b"POST /api/v1/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    raw = await Raw.open(backend, begin + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
    await asyncio.wait_for(raw.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)  # so that the trailer is read by itself
    raw.writer.write(b"0\r\nX-a: " + b"a" * protocol.MAX_HEAD_BYTES)
    assert await raw.answer() == (431, "urn:coresteer:headers-too-large")
    raw.writer.close()


async def test_chunks_of_one_byte_do_not_count_as_trailers(backend: Backend) -> None:
    begin = b"POST /api/v1/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    raw = await Raw.open(backend, begin + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
    for part in (b"1\r\n[\r\n", *[b"1\r\n \r\n"] * protocol.MAX_HEAD_BYTES, b"1\r\n]\r\n0\r\n\r\n"):
        raw.writer.write(part)
    assert (await raw.answer())[0] == 422
    raw.writer.close()


async def test_headers_of_ordinary_length_are_read(backend: Backend) -> None:
    ordinary = {f"X-{number}": "a" * 300 for number in range(40)}
    assert (await backend.anonymous().get("/api/v1/health", headers=ordinary)).status_code == 200


async def test_a_head_that_follows_a_large_body_counts_for_itself(backend: Backend) -> None:
    client = backend.anonymous()
    for _ in range(2):
        answer = await client.request("POST", "/api/v1/auth/login", data=b"[" + b" " * 200_000 + b"]")
        assert answer.status_code == 422


async def test_incomplete_requests_leave_room_for_others_and_for_agents(backend: Backend) -> None:
    async with await enrolled(backend.database, backend.url, "limits-agent") as agent:
        held = [await Raw.open(backend, BEGIN) for _ in range(MAX_WAITING_PER_ADDRESS + 20)]
        await asyncio.gather(*(raw.ended() for raw in held[:20]))
        assert not held[-1].reader.at_eof()
        assert (await backend.anonymous().get("/api/v1/health")).status_code == 200
        await agent.send_rates([rates(1)])
        await agent.websocket.ping()
        for raw in held:
            raw.writer.close()


async def test_strangers_do_not_displace_the_idle_connection_of_a_signed_in_user(backend: Backend) -> None:
    viewer = await backend.client("viewer")
    cookie = f"Cookie: {SESSION_COOKIE}={viewer.session.cookies[SESSION_COOKIE]}\r\n\r\n".encode()
    user = await Raw.open(backend)
    held: list[Raw] = []
    for _ in range(2):
        user.writer.write(b"GET /api/v1/auth/me HTTP/1.1\r\nHost: localhost\r\n" + cookie)
        head = await asyncio.wait_for(user.reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        assert head.startswith(b"HTTP/1.1 200")
        length = head.lower().partition(b"content-length: ")[2].split()[0]
        await user.reader.readexactly(int(length))
        held = held or [await Raw.open(backend, BEGIN) for _ in range(MAX_WAITING_PER_ADDRESS + 1)]
        await held[0].ended()
    for raw in [user, *held]:
        raw.writer.close()


@pytest.mark.usefixtures("short_waits")
@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (BEGIN, b"X-a: b\r\n"),
        (b"POST /api/v1/auth/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n", b" "),
    ],
    ids=["headers", "body"],
)
async def test_a_request_that_arrives_slowly_is_ended_with_408(backend: Backend, begin: bytes, more: bytes) -> None:
    raw = await Raw.open(backend, begin)

    async def drip() -> None:
        while not raw.reader.at_eof():
            raw.writer.write(more)
            await asyncio.sleep(0.02)

    dripping = asyncio.create_task(drip())
    assert await raw.answer() == (408, "urn:coresteer:slow-request")
    dripping.cancel()
    raw.writer.close()


async def test_one_key_holds_only_so_many_connections_without_a_hello(backend: Backend) -> None:
    agent = await enrolled(backend.database, backend.url, "spare-sockets")
    held = [FakeAgent(agent.url, agent.key, agent.node_id) for _ in range(MAX_CONNECTIONS + 1)]
    for spare in held:
        await spare.connect()
    code, reason = await held[-1].closed()
    assert (code, reason) == (1013, f"This key has {MAX_CONNECTIONS} connections already.")
    async with await enrolled(backend.database, backend.url, "another-key") as other:
        assert backend.app.state.registry.get(other.node_id).connected
    for spare in held:
        await spare.websocket.close()


@pytest.mark.usefixtures("short_waits")
async def test_a_connection_without_a_request_ends(backend: Backend) -> None:
    await (await Raw.open(backend)).ended()


async def test_an_agent_that_says_nothing_for_longer_than_a_wait_stays(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await enrolled(backend.database, backend.url, "quiet-agent") as agent:
        monkeypatch.setattr(limits, "MAX_WAIT_S", 0.3)  # it has connected, which may take longer
        await (await Raw.open(backend)).ended()
        await (await Raw.open(backend)).ended()
        await agent.websocket.ping()
        state = backend.app.state.registry.get(agent.node_id)
        assert state.connected


@pytest_asyncio.fixture(loop_scope="session")
async def with_a_large_file(database_url: str, tmp_path: Path) -> AsyncIterator[Backend]:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("")
    (tmp_path / "assets" / "large.png").write_bytes(bytes(32 * 1024 * 1024))
    async with running_backend(database_url, frontend_dir=tmp_path) as backend:
        yield backend


@pytest.mark.usefixtures("short_waits")
async def test_a_peer_that_does_not_read_the_response_is_disconnected(with_a_large_file: Backend) -> None:
    port = int(with_a_large_file.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"GET /assets/large.png HTTP/1.1\r\nHost: localhost\r\n\r\n")
        hung_up = select.poll()
        hung_up.register(connection, 0)  # only errors and the end are reported
        await poll_async(lambda: hung_up.poll(0), timeout_s=PATIENCE_S)


async def test_requests_are_not_piled_up_by_pipelining(backend: Backend) -> None:
    raw = await Raw.open(backend, (BEGIN + b"\r\n") * 1000)
    await raw.ended()
    raw.writer.close()


class Clocked:
    """ConnectionLimits with a clock of the test's and a record of who was ended."""

    def __init__(self, most: int = 10_000) -> None:
        self.now_s = 0.0
        self.limits = ConnectionLimits(most, lambda: self.now_s)
        self.ended: list[str] = []

    def connect(self, name: str, network: str = "192.0.2.1") -> Peer:
        peer = Peer(network, lambda _: self.ended.append(name))
        assert self.limits.admit(peer)
        return peer


def test_the_longest_wait_ends_first_when_too_many_wait() -> None:
    clocked = Clocked()
    peers = [clocked.connect(str(number), f"192.0.2.{number % 250}") for number in range(MAX_WAITING)]
    clocked.limits.begin_wait(peers[0])
    clocked.connect("new", "198.51.100.1")
    assert clocked.ended == ["1"]


def test_one_address_displaces_only_its_own() -> None:
    clocked = Clocked()
    other = clocked.connect("other", "198.51.100.1")
    for number in range(MAX_WAITING_PER_ADDRESS + 3):
        clocked.connect(str(number))
    assert clocked.ended == ["0", "1", "2"]
    assert other.end is not None


def test_users_wait_apart_from_strangers_and_displace_only_users() -> None:
    clocked = Clocked()
    stranger = clocked.connect("stranger")
    for number in range(MAX_WAITING + 2):
        user = clocked.connect(str(number), f"198.51.100.{number % 250}")
        user.is_signed_in = True
        clocked.limits.begin_wait(user)
    assert clocked.ended == ["0", "1"]
    stranger.is_signed_in = True
    clocked.limits.begin_wait(stranger)
    assert clocked.ended == ["0", "1", "2"]


def test_connections_at_work_are_never_displaced() -> None:
    clocked = Clocked(most=2)
    for name in ("a", "b"):
        clocked.limits.end_wait(clocked.connect(name))
    assert not clocked.limits.admit(Peer("192.0.2.1", lambda _: None))
    assert clocked.ended == []


def test_with_no_descriptor_left_a_waiting_connection_makes_room() -> None:
    clocked = Clocked(most=2)
    working, _waiting = clocked.connect("working"), clocked.connect("waiting")
    clocked.limits.end_wait(working)
    clocked.connect("new")
    assert clocked.ended == ["waiting"]


def test_a_wait_ends_after_its_time_and_progress_begins_it_anew() -> None:
    clocked = Clocked()
    clocked.connect("idle")
    moving = clocked.connect("moving")
    clocked.now_s = MAX_WAIT_S - 1
    clocked.limits.begin_wait(moving)
    clocked.now_s = MAX_WAIT_S
    clocked.limits.end_overdue()
    assert clocked.ended == ["idle"]


def test_a_connection_that_has_left_is_not_counted() -> None:
    clocked = Clocked(most=1)
    first = clocked.connect("first")
    for leave in (clocked.limits.leave, clocked.limits.leave):
        leave(first)
    clocked.limits.begin_wait(first)
    clocked.connect("second")
    assert clocked.ended == []


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_addresses_of_one_ipv6_network_count_together(address: str, network: str) -> None:
    assert network_of(address) == network
