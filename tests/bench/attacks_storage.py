"""Attacks of one enrolled agent on the backend's storage, for bench_attacks."""

import os
import time
from collections.abc import Callable, Iterator
from itertools import count
from uuid import uuid4

from tests.bench.attacked_backend import Access
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from coresteer_core.changes.report import ChangeMessage, ChangeState, Outcome, Result
from coresteer_core.node.rates import MAX_IRQ_CELLS, Rates
from coresteer_core.policies.base import Evaluation, Mode, Skipped
from coresteer_core.protocol import PROTOCOL_VERSION, DecisionMessage, Hello, RatesMessage, ToBackend, encode

_SENTENCE_BYTES = 800


def decisions_and_reports(access: Access) -> Iterator[int]:
    """Send decisions of 1 MB and reports about changes of 0.4 MB without pause, over one agent's connection."""
    for key in access.agent_keys:
        yield from _over_one_connection(access, key, lambda n: _report(n) if n % 2 else _decision(n))


def _over_one_connection(access: Access, key: str, made: Callable[[int], ToBackend]) -> Iterator[int]:
    address = f"ws://{access.host}:{access.port}/api/agent"
    headers = {"Authorization": f"Bearer {key}"}
    try:
        with connect(address, additional_headers=headers, compression=None, max_size=None, proxy=None) as websocket:
            hello = Hello(PROTOCOL_VERSION, "0", "rogue", "6.1", "m", "b", uuid4().hex, 1, 1.0, "control")
            websocket.send(encode(hello))
            for number in count():
                frame = encode(made(number))
                websocket.send(frame)
                yield len(frame)
    except ConnectionClosed as error:
        raise ConnectionError(str(error)) from error


def _decision(number: int) -> DecisionMessage:
    skipped = [Skipped(f"{number} {n}", os.urandom(_SENTENCE_BYTES // 2).hex()) for n in range(1200)]
    now_ms = time.time_ns() // 1_000_000
    return DecisionMessage(now_ms, Evaluation("1", 1, Mode.OBSERVE, f"Decision {number}.", skipped=skipped))


def _report(number: int) -> ChangeMessage:
    results = [Result(f"irq/{n}/affinity", Outcome.FAILED, os.urandom(_SENTENCE_BYTES).hex()) for n in range(256)]
    return ChangeMessage(str(uuid4()), ChangeState.APPLYING, f"Report {number}.", results)


def large_samples(access: Access) -> Iterator[int]:
    """Send samples of 2.8 MB without pause, over one agent's connection: as many interrupt cells as are allowed."""
    for key in access.agent_keys:
        yield from _over_one_connection(access, key, _sample)


def _sample(number: int) -> RatesMessage:
    random = os.urandom(8 * MAX_IRQ_CELLS)
    return RatesMessage(
        Rates(
            seq=number + 1,
            time_ms=time.time_ns() // 1_000_000,
            duration_s=1.0,
            cpus=8192,
            shares={"busy": bytes(8192)},
            counts={"processed": random[: 4 * 8192]},
            irq_ids=random[: 4 * MAX_IRQ_CELLS],
            irq_cpus=random[: 2 * MAX_IRQ_CELLS],
            irq_counts=random[4 * MAX_IRQ_CELLS :],
            netdevs=None,
            tcp=None,
            agent_cpu_s=None,
            agent_rss_bytes=None,
        )
    )
