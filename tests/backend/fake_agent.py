"""An agent that speaks the real protocol as a test tells it to."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import psycopg
from msgspec.structs import replace
from sqlalchemy import update
from tests.backend.telemetry_data import machine
from tests.support.polling import PATIENCE_S
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from coresteer.bus import Bus, InventoryEvent
from coresteer.db import Database
from coresteer.nodes.service import create_nodes
from coresteer.nodes.tables import NodeRow
from coresteer.telemetry.chunks import cumulative, read_scalars
from coresteer_core.node.rates import Rates
from coresteer_core.node.rates_block import compress_block, pack_block
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.protocol import (
    PROTOCOL_VERSION,
    Ack,
    ColumnsMessage,
    Hello,
    InventoryMessage,
    LearnedMessage,
    Policies,
    RatesMessage,
    TasksMessage,
    ToBackend,
    TopologyMessage,
    Welcome,
    decode_to_agent,
    encode,
)

TEMPLATE = machine(1, cpus=4, irqs=6)[0]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def rates(seq: int, *, time_ms: int | None = None) -> Rates:
    """A small sample of now."""
    return replace(TEMPLATE, seq=seq, time_ms=now_ms() if time_ms is None else time_ms)


def block_message(samples: Sequence[Rates]) -> ColumnsMessage:
    return ColumnsMessage(samples[0].seq, samples[-1].seq, compress_block(pack_block(samples)))


def hello(stream: str = "s1", **changes: object) -> Hello:
    greeting = Hello(
        protocol=PROTOCOL_VERSION,
        agent_version="0.1",
        hostname="host",
        kernel="6.1",
        machine_id="m",
        boot_id="b",
        stream=stream,
        first_seq=1,
        interval_s=1.0,
        mode="observe",
        observe_reason="a test",
    )
    return replace(greeting, **changes)


@dataclass
class FakeAgent:
    """One node's agent; use as an async context manager. acked: of the present connection's Welcome and Acks.

    interval_s: that it says; a node is live for three of them after its last sample.
    """

    url: str
    key: str
    node_id: int
    stream: str = "s1"
    acked: int = 0
    interval_s: float = 1.0
    websocket: ClientConnection = field(init=False)

    async def __aenter__(self) -> "FakeAgent":
        await self.connect()
        await self.greet(interval_s=self.interval_s)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.websocket.close()

    async def connect(self) -> None:
        url = self.url.replace("http", "ws", 1) + "/api/agent"
        headers = {"Authorization": f"Bearer {self.key}"}
        self.websocket = await connect(url, additional_headers=headers, compression=None, proxy=None, max_size=None)

    async def greet(self, **changes: object) -> Welcome:
        await self.say(hello(self.stream, **changes))
        welcome = decode_to_agent(await self.receive())
        assert isinstance(welcome, Welcome)
        self.acked = welcome.acked_seq
        return welcome

    async def say(self, message: ToBackend) -> None:
        await self.websocket.send(encode(message))

    async def receive(self) -> bytes:
        frame = await self.websocket.recv()
        assert isinstance(frame, bytes)
        return frame

    async def send_rates(self, samples: Sequence[Rates]) -> None:
        for sample in samples:
            await self.say(RatesMessage(sample))

    async def send_block(self, samples: Sequence[Rates]) -> None:
        """Send samples as one block; after greet(features=[COLUMNS])."""
        await self.say(block_message(samples))

    async def until_acked(self, seq: int) -> None:
        while self.acked < seq:
            message = decode_to_agent(await self.receive())
            if isinstance(message, Ack):
                self.acked = message.seq

    async def policies(self, names: Sequence[str] | None = None) -> list[PolicyInForce]:
        """Return the next policies in force that arrive; names: wait for exactly these."""
        while True:
            message = decode_to_agent(await self.receive())
            if isinstance(message, Policies) and names in (None, [policy.name for policy in message.policies]):
                return message.policies

    async def closed(self) -> tuple[int, str]:
        """The code and reason with which the backend ends the connection."""
        try:
            while True:
                await self.websocket.recv()
        except ConnectionClosed as error:
            assert error.rcvd is not None, "the connection ended without a close frame"
            return error.rcvd.code, error.rcvd.reason


async def say_and_hear(bus: Bus, agent: FakeAgent, message: ToBackend) -> None:
    """Say something that changes what the backend knows of the node; returns when it tells so."""
    with bus.subscribe() as events:
        await agent.say(message)
        async with asyncio.timeout(PATIENCE_S):
            async for event in events:
                if event == InventoryEvent(agent.node_id):
                    return


async def tell(bus: Bus, agent: FakeAgent, *messages: ToBackend) -> None:
    """Say something; returns when the backend has handled it, and all that the agent said before."""
    for message in messages:
        if isinstance(message, TopologyMessage | InventoryMessage | LearnedMessage):  # stored in the background
            await say_and_hear(bus, agent, message)
        else:
            await agent.say(message)
    await say_and_hear(bus, agent, TasksMessage(0, []))  # messages are handled in order, and tasks at once


async def enrolled(database: Database, url: str, name: str, *, interval_s: float = 1.0) -> FakeAgent:
    """An agent of a new node; one of an earlier try of the same test, whose database it is, gets another name."""
    async with database.session() as session:
        await session.execute(update(NodeRow).where(NodeRow.name == name).values(name=f"earlier-{uuid4().hex}"))
        (node,) = await create_nodes(session, [name], simulated=False)
    return FakeAgent(url, node.key, node.node_id, interval_s=interval_s)


async def stored_seqs(database_url: str, node_id: int) -> list[int]:
    """The sequence numbers of every stored sample of a node, as often as they are stored, sorted."""
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        cursor = await connection.execute("SELECT scalars FROM telemetry_chunk WHERE node_id = %s", (node_id,))
        packed = [scalars for (scalars,) in await cursor.fetchall()]
    return sorted(seq for scalars in packed for seq in cumulative(read_scalars(scalars).seqs).tolist())
