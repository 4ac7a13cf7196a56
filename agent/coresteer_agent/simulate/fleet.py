"""Runs all simulated nodes on one event loop, with one scheduler for all samples."""

import asyncio
import ssl
import time
from collections.abc import Callable

from coresteer_agent.simulate.agent import SimulatedAgent

_CONNECTING_AT_ONCE = 64
_TICK_S = 0.01
_ALL_CONNECTED_S = 120.0
_LAST_ACK_S = 90.0
"""Wait for acknowledgements at the end of a run; a backend seals its chunks at least once a minute."""


async def run(
    agents: list[SimulatedAgent], *, interval_s: float, duration_s: float | None, tls: ssl.SSLContext | None
) -> float:
    """Run all agents until cancelled, rejected by the backend, or for duration_s after all are connected.

    Returns the duration of the run in seconds.
    """
    gate = asyncio.Semaphore(_CONNECTING_AT_ONCE)
    links = [asyncio.create_task(agent.maintain_connection(gate, tls)) for agent in agents]
    all_rejected = asyncio.create_task(_all_done(links))
    sampling = asyncio.create_task(_sample(agents, interval_s))
    try:
        began = time.monotonic()
        if duration_s is not None:
            await _wait_until(lambda: all(agent.connected or agent.rejected for agent in agents), _ALL_CONNECTED_S)
            began = time.monotonic()
        done, _ = await asyncio.wait({all_rejected, sampling}, timeout=duration_s, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # raises what went wrong there
        took = time.monotonic() - began
        sampling.cancel()
        for agent in agents:
            agent.flush()
        await _wait_until(lambda: not any(m.node.unacknowledged for m in agents if not m.rejected), _LAST_ACK_S)
        return took
    finally:
        sampling.cancel()
        all_rejected.cancel()
        for link in links:
            link.cancel()
        await asyncio.gather(all_rejected, sampling, *links, return_exceptions=True)
        await asyncio.gather(*(agent.close() for agent in agents))


async def _sample(agents: list[SimulatedAgent], interval_s: float) -> None:
    """Sample each node once per interval, evenly spread over it; skip samples that a stalled process missed."""
    began = time.monotonic()
    apart = interval_s / len(agents)
    turn = 0
    while True:
        due = int((time.monotonic() - began) / apart)
        if due - turn > len(agents):
            turn += (due - turn) // len(agents) * len(agents)
        while turn < due:
            agents[turn % len(agents)].sample(time.time())
            turn += 1
        await asyncio.sleep(max(_TICK_S, apart))


async def _all_done(links: list[asyncio.Task[None]]) -> None:
    for link in links:
        await link


async def _wait_until(done: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    # polling costs less than an event from each of thousands of nodes
    while not done() and time.monotonic() < deadline:  # noqa: ASYNC110 - see above
        await asyncio.sleep(0.1)
