"""Mutated frames of agents through the decoder and checks, and over a live socket: tests.bench.bench_fuzz_frames.

Prints how many frames ended how, and how many exceptions were unexpected; then reads every stored row back as what it
says it is. Exits with 1 when there was any unexpected exception or unreadable row.
"""

import argparse
import asyncio
import contextlib
import itertools
import logging
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock
from uuid import uuid4

from msgspec.structs import replace
from tests.backend.conftest import MIGRATIONS, Backend, running_backend
from tests.backend.fake_agent import FakeAgent, enrolled, now_ms, rates
from tests.support.mutated_frames import FrameMutator
from tests.support.stored_rows import scan
from websockets.exceptions import WebSocketException
from websockets.protocol import State

from coresteer.db import Database
from coresteer.gateway.clock_correction import corrected
from coresteer.gateway.validation import Arrival, validate
from coresteer.postgres import EmbeddedPostgres
from coresteer.telemetry.chunk_decoding import decode
from coresteer.telemetry.chunks import encode
from coresteer.telemetry.rollup import minute_rollups
from coresteer_core.protocol import (
    ProtocolError,
    RatesMessage,
    Rejected,
    decode_numbers,
    decode_to_agent,
    decode_to_backend,
)

AGENTS = 32
_EXAMPLES = 5


def fate_of(frame: bytes, at_ms: int, correction_ms: int) -> str:
    """Decode, correct and check a frame as the backend does, encode what is a sample; return how it ended."""
    try:
        message = corrected(decode_to_backend(frame), correction_ms)
    except ProtocolError:
        return "not decoded" if decode_numbers(frame) is None else "sample rejected by the decoder"
    if validate(message, Arrival(at_ms)):
        return "rejected by a check"
    if isinstance(message, RatesMessage):
        decode(encode([message.rates]))
        minute_rollups([message.rates])
    return "accepted"


def fuzz_decoder(frames: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Return how mutated frames ended, and the tracebacks of unexpected exceptions."""
    at_ms = now_ms()
    mutator = FrameMutator(seed, at_ms)
    corrections = itertools.cycle((0, 0, 0, 86_400_001, -(2**46)))
    fates: Counter[str] = Counter()
    unexpected = []
    for _ in range(frames):
        frame = mutator.next_frame()
        try:
            fates[fate_of(frame, at_ms, next(corrections))] += 1
        except Exception:
            fates["unexpected exception"] += 1
            unexpected.append(f"{frame[:200]!r}\n{traceback.format_exc()}")
    return fates, unexpected


class Errors(logging.Handler):
    """Keeps what the backend logs as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.sentences: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record with its traceback."""
        trace = "" if record.exc_info is None else "".join(traceback.format_exception(*record.exc_info))
        self.sentences.append(f"{record.getMessage()}\n{trace}")


@contextlib.contextmanager
def logged_errors() -> Iterator[list[str]]:
    """Yield what the backend logs as an error from now on."""
    errors = Errors()
    logging.getLogger().addHandler(errors)
    try:
        yield errors.sentences
    finally:
        logging.getLogger().removeHandler(errors)


async def _until_rejected(agent: FakeAgent, seq: int) -> None:
    while True:
        message = decode_to_agent(await agent.receive())
        if isinstance(message, Rejected) and message.first_seq == seq:
            return


async def _send(agent: FakeAgent, mutator: FrameMutator, frames: int, fates: Counter[str]) -> None:
    """Send mutated frames between honest samples, and wait after each until the backend has answered."""
    for number in range(frames):
        try:
            if number == 0 or agent.websocket.state is not State.OPEN:
                agent.stream = uuid4().hex
                await agent.connect()
                await agent.greet()
                seq = 0
            await agent.send_rates([rates(seq + 1)])
            await agent.websocket.send(mutator.next_frame())
            await agent.send_rates([replace(rates(seq + 3), shares={"busy": b""})])  # invalid, which is answered
            seq += 3
            await _until_rejected(agent, seq)
            fates["frames after which the connection went on"] += 1
        except WebSocketException:
            fates["frames after which the connection was closed"] += 1
    await agent.websocket.close()


async def fuzz_socket(backend: Backend, frames: int, seed: int, agents: int) -> Counter[str]:
    """Send mutated frames over connections of several agents, which connect again when they are closed."""
    # each bad frame ends a connection, and the next one begins at once
    with mock.patch.object(backend.app.state.agents.admission, "admit"):
        fates: Counter[str] = Counter()
        made = [await enrolled(backend.database, backend.url, f"fuzz-{seed}-{number}") for number in range(agents)]
        share = -(-frames // agents)
        await asyncio.gather(
            *(_send(agent, FrameMutator(seed + number, now_ms()), share, fates) for number, agent in enumerate(made))
        )
        for agent in made:
            async with agent:  # the backend still answers
                pass
        return fates


def _print(title: str, seconds: float, fates: Counter[str]) -> None:
    print(f"{title}, {seconds:.0f} s")
    for fate, number in fates.most_common():
        print(f"  {number:>10,} {fate}")


async def _live(frames: int, seed: int) -> int:
    folder = Path(tempfile.mkdtemp(prefix="coresteer-fuzz-"))
    postgres = EmbeddedPostgres(folder, durable=False)
    try:
        await postgres.start()
        await Database(postgres.url, MIGRATIONS).migrate()
        with logged_errors() as errors:
            began = time.monotonic()
            async with running_backend(postgres.url, chunk_seconds=1) as backend:
                fates = await fuzz_socket(backend, frames, seed, AGENTS)
            _print(f"{sum(fates.values()):,} frames over {AGENTS} live sockets", time.monotonic() - began, fates)
        database = Database(postgres.url, MIGRATIONS)
        await database.open()
        rows, wrong = await scan(database)
        await database.close()
    finally:
        await postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"  {len(errors):>10,} unexpected exceptions")
    print(f"Stored rows read back: {sum(rows.values()):,} ({', '.join(f'{n:,} {t}' for t, n in rows.items())})")
    print(f"  {len(wrong):>10,} unreadable")
    for sentence in (*errors[:_EXAMPLES], *wrong[:_EXAMPLES]):
        print(sentence)
    return len(errors) + len(wrong)


def main() -> int:
    """Run both and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--decoder", type=int, default=1_000_000, help="frames through the decoder and checks")
    parser.add_argument("--socket", type=int, default=100_000, help="frames over a live socket")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    began = time.monotonic()
    fates, unexpected = fuzz_decoder(arguments.decoder, arguments.seed)
    _print(f"{arguments.decoder:,} frames through the decoder and checks", time.monotonic() - began, fates)
    print(f"  {len(unexpected):>10,} unexpected exceptions")
    for sentence in unexpected[:_EXAMPLES]:
        print(sentence)
    return 1 if asyncio.run(_live(arguments.socket, arguments.seed)) + len(unexpected) else 0


if __name__ == "__main__":
    sys.exit(main())
