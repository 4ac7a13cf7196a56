import argparse
import asyncio
import struct
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace

import pytest
from tests.support.polling import PATIENCE_S
from websockets.asyncio.server import ServerConnection, serve
from websockets.uri import parse_uri

from coresteer_agent.runtime import policies
from coresteer_agent.runtime.policies import PolicyRunner
from coresteer_agent.simulate import add_arguments
from coresteer_agent.simulate.agent import FleetStatistics, SimulatedAgent
from coresteer_agent.simulate.cache import SimulationCache
from coresteer_agent.simulate.changes import SimulatedChanges
from coresteer_agent.simulate.effects import cpu_factor, parse_effect
from coresteer_agent.simulate.enrol import SimulationError, load_or_request_keys, node_names
from coresteer_agent.simulate.fleet import run
from coresteer_agent.simulate.machine import Fault, make_machine
from coresteer_agent.simulate.node import SimulatedNode
from coresteer_agent.transport.enrol import EnrolledNode
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState
from coresteer_core.node.rates import Rates
from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.policies.irq_spread.policy import IrqSpread
from coresteer_core.policies.network_process.policy import NetworkProcess
from coresteer_core.protocol import (
    FEATURES,
    PROTOCOL_VERSION,
    Ack,
    Apply,
    Clock,
    CloseCode,
    DecisionMessage,
    Detail,
    FlowsMessage,
    Hello,
    Ping,
    RatesMessage,
    Watch,
    Welcome,
    decode_to_backend,
    encode,
)

INTERVAL_S = 0.05


def a_node() -> SimulatedNode:
    machine = make_machine(cpus=4, irqs=8, kind=1, seed=0)
    return SimulatedNode(
        name="sim8-0001", key="the-key", index=9, seed=0, machine=machine, cache=SimulationCache(INTERVAL_S), stream="s"
    )


async def with_backend(
    serve_one: Callable[[ServerConnection], Awaitable[None]], *, duration_s: float | None
) -> tuple[SimulatedAgent, FleetStatistics]:
    """One node against a backend that serves each connection like that, until the run ends by itself."""
    stats = FleetStatistics()
    async with serve(serve_one, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        agent = SimulatedAgent(a_node(), parse_uri(f"ws://127.0.0.1:{port}/api/agent"), stats, record_latencies=True)
        async with asyncio.timeout(PATIENCE_S):
            await run([agent], interval_s=INTERVAL_S, duration_s=duration_s, tls=None)
    return agent, stats


async def test_unacknowledged_samples_are_sent_again_in_order_after_a_reconnect() -> None:
    seqs: list[list[int]] = []

    async def serve_one(link: ServerConnection) -> None:
        hello = decode_to_backend(await link.recv(decode=False))
        assert isinstance(hello, Hello)
        assert hello.simulated
        assert link.request is not None
        assert link.request.headers["Authorization"] == "Bearer the-key"
        acked = 2 if seqs else 0
        await link.send(encode(Welcome(PROTOCOL_VERSION, 1, acked)))
        seqs.append([])
        async for frame in link:
            assert isinstance(frame, bytes)
            message = decode_to_backend(frame)
            if not isinstance(message, RatesMessage):
                continue
            seqs[-1].append(message.rates.seq)
            if len(seqs) == 1 and len(seqs[0]) == 3:
                await link.send(encode(Ack(2)))
                return  # as when the backend is restarted
            if len(seqs) == 2:
                await link.send(encode(Ack(message.rates.seq)))

    agent, stats = await with_backend(serve_one, duration_s=1.5)
    first, second = seqs
    assert second == list(range(3, agent.node.seq + 1))
    assert first[0] == 1
    assert stats.acked == stats.sent == agent.node.seq
    assert len(stats.latencies_ms) == stats.acked
    assert agent.node.overflowed == 0


async def test_a_node_with_a_rejected_key_does_not_reconnect() -> None:
    async def serve_one(link: ServerConnection) -> None:
        await link.close(CloseCode.BAD_KEY, "This key is unknown.")

    agent, stats = await with_backend(serve_one, duration_s=None)
    assert agent.rejected
    assert stats.sent == 0


async def test_ping_is_answered_with_the_nodes_clock() -> None:
    answered = asyncio.Event()

    async def serve_one(link: ServerConnection) -> None:
        await link.recv()
        await link.send(encode(Welcome(PROTOCOL_VERSION, 1, 0)))
        await link.send(encode(Ping(41)))
        async for frame in link:
            assert isinstance(frame, bytes)
            message = decode_to_backend(frame)
            if isinstance(message, Clock):
                assert message.ping_ms == 41
                answered.set()
                await link.close(CloseCode.BAD_KEY, "Enough.")

    await with_backend(serve_one, duration_s=None)
    assert answered.is_set()


def cpus_of(rates: Rates, irq: int) -> set[int]:
    assert rates.irq_ids is not None
    assert rates.irq_cpus is not None
    cells = len(rates.irq_ids) // 4
    ids, cpus = struct.unpack(f"<{cells}I", rates.irq_ids), struct.unpack(f"<{cells}H", rates.irq_cpus)
    return {cpu for number, cpu in zip(ids, cpus, strict=True) if number == irq}


def test_a_moved_interrupt_counts_on_its_new_cpu_and_reverts_on_timeout() -> None:
    machine = make_machine(cpus=8, irqs=20, kind=1, seed=0)
    node = SimulatedNode(name="n", key="", index=9, seed=0, machine=machine, cache=SimulationCache(1.0), stream="s")
    now = 0.0
    changes = SimulatedChanges(node, lambda: now)
    irq = next(irq for irq in node.inventory.irqs if irq.queues)
    was = irq.requested or ""
    plan = Plan([Action(f"irq/{irq.irq}/affinity", was, "7", "a try")])
    noon = 43_200.0
    assert cpus_of(node.sample(noon), irq.irq) == {int(was)}
    changes.handle(Apply("x", plan, 60))
    assert changes.drain_messages()[-1].state is ChangeState.UNCONFIRMED
    assert cpus_of(node.sample(noon), irq.irq) == {7}
    now = 61.0
    changes.advance(node.sample(noon))
    assert changes.drain_messages()[-1].state is ChangeState.ROLLED_BACK
    assert cpus_of(node.sample(noon), irq.irq) == {int(was)}


def test_policies_on_a_simulated_node_move_interrupts_and_processes_and_restore_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = make_machine(cpus=8, irqs=20, kind=1, seed=0, fault=Fault.HOT_QUEUE)
    node = SimulatedNode(name="n", key="", index=0, seed=0, machine=machine, cache=SimulationCache(1.0), stream="s")
    changes = SimulatedChanges(node, lambda: now)
    told: list[DecisionMessage] = []
    runner = PolicyRunner(changes, told.append)
    clock = SimpleNamespace(monotonic=lambda: now, time_ns=lambda: 0)
    monkeypatch.setattr(policies, "time", clock)
    before = node.inventory
    said: list[ChangeMessage] = []
    runner.set_policies(
        [
            PolicyInForce("1", 1, "spread", 1, Mode.ENFORCE, IrqSpread()),
            PolicyInForce("2", 1, "network", 2, Mode.ENFORCE, NetworkProcess()),
        ]
    )

    now: float = 1.0
    for now in (1000.0 + second for second in range(300)):
        changes.advance(node.sample(43_200.0 + now))
        if now % 5 == 0:
            runner.step(node.view(now))
        said += changes.drain_messages()
    cpus = {irq.effective for irq in node.inventory.irqs if irq.queues}
    assert len(cpus) > 1, "the hot queues shared one CPU"
    assert node.affinities
    assert {message.change_id for message in told if message.change_id} == {message.change_id for message in said}
    assert ChangeState.CONFIRMED in {message.state for message in said}
    runner.set_policies([])
    for now in (2000.0, 2011.0, 2020.0):
        changes.advance(node.sample(43_200.0 + now))
        runner.step(node.view(now))
    assert [irq.requested for irq in node.inventory.irqs] == [irq.requested for irq in before.irqs]
    assert {task.affinity for task in node.net_tasks()} == {"0-7"}


class Sent:
    """In place of a Link: what an agent sends."""

    writable = True

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def send(self, frame: bytes) -> None:
        self.frames.append(frame)

    def flows(self) -> int:
        """How many reports of flows were sent since the last call."""
        frames, self.frames = self.frames, []
        return sum(isinstance(decode_to_backend(frame), FlowsMessage) for frame in frames)


def test_every_other_report_of_flows_is_left_out_while_nobody_needs_the_node() -> None:
    uri = parse_uri("ws://127.0.0.1:1/api/agent")
    agent = SimulatedAgent(a_node(), uri, FleetStatistics(), record_latencies=False)
    agent._link = sent = Sent()  # type: ignore[assignment]  # has what is used of a Link
    agent._received(encode(Welcome(PROTOCOL_VERSION, 1, 0, features=list(FEATURES))))
    found = []
    for detail in (Detail.BLOCKS, Detail.SAMPLES):
        agent._received(encode(Watch(detail)))
        found.append(sent.flows())
        for second in (5.0, 10.0, 15.0, 20.0):
            agent.sample(43_200.0 + second + 100 * len(found))
            found.append(sent.flows())
    assert found == [0, 1, 0, 1, 0, 1, 1, 1, 1, 1]


def test_samples_beyond_the_buffer_are_counted_as_overflowed() -> None:
    node = SimulatedNode(
        name="n",
        key="",
        index=9,
        seed=0,
        machine=make_machine(cpus=2, irqs=4, kind=1, seed=0),
        cache=SimulationCache(5.0),
        stream="s",
    )
    for second in range(100):
        node.sample(5.0 * second)
    assert len(node.unacknowledged) == 60
    assert node.overflowed == 40
    assert node.hello().first_seq == 41


def test_without_keys_and_token_the_sentence_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="--token"):
        load_or_request_keys(node_names(3, 8), backend="http://127.0.0.1:1", token=None, state_dir=tmp_path)
    with pytest.raises(SimulationError, match="cannot be reached to enrol sim8-0001"):
        load_or_request_keys(node_names(3, 8), backend="http://127.0.0.1:1", token="t", state_dir=tmp_path)


def test_simulations_that_enrol_at_the_same_time_keep_the_keys_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend, together = "http://127.0.0.1:1", Barrier(8)

    def request_keys(backend: str, token: str, names: list[str]) -> tuple[list[EnrolledNode], str]:
        together.wait(PATIENCE_S)
        return [EnrolledNode(number, name, f"{token} of {name}") for number, name in enumerate(names)], ""

    def enrol(cpus: int) -> None:
        for token in ("first", "second"):
            load_or_request_keys(node_names(2, cpus), backend=backend, token=token, state_dir=tmp_path)

    monkeypatch.setattr("coresteer_agent.simulate.enrol.request_keys", request_keys)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(enrol, range(1, 9)))
    names = [name for cpus in range(1, 9) for name in node_names(2, cpus)]
    stored = load_or_request_keys(names, backend=backend, token=None, state_dir=tmp_path)
    assert stored == {name: f"second of {name}" for name in names}


@pytest.mark.parametrize(
    "arguments", [["--nodes", "0"], ["--nodes", "x"], ["--cpus", "1"], ["--interval", "0"], ["--duration", "nan"]]
)
def test_a_number_out_of_bounds_is_refused_with_its_bounds(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(arguments)
    assert f"argument {arguments[0]}: “{arguments[1]}” is not a number" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("policies", "factor"),
    [
        ([], 1.0),
        ([("spread", 2, Mode.ENFORCE, False)], 0.5),
        ([("spread", 1, Mode.ENFORCE, False)], 1.0),
        ([("spread", 2, Mode.RECOMMEND, False)], 1.0),
        ([("spread", 2, Mode.ENFORCE, True)], 1.0),
        ([("spread", 2, Mode.ENFORCE, False), ("place", 1, Mode.ENFORCE, False)], 0.6),
    ],
)
def test_a_planted_effect_lasts_while_the_version_is_enforced(
    policies: list[tuple[str, int, Mode, bool]], factor: float
) -> None:
    effects = dict(map(parse_effect, ("spread@2=0.5", "place@1=1.2")))
    in_force = [
        PolicyInForce("1", version, name, 1, mode, IrqSpread(), holdout=holdout)
        for name, version, mode, holdout in policies
    ]
    assert cpu_factor(effects, in_force) == pytest.approx(factor)


def test_a_planted_effect_changes_the_cpu_time_and_not_the_traffic() -> None:
    totals = []
    for factor in (1.0, 0.8):
        node = a_node()
        node.cpu_factor = factor
        samples = [node.sample(1e9 + at) for at in range(200)]
        busy = sum(sum(sample.shares["busy"] or b"") for sample in samples)
        totals.append((busy, sum(sample.netdevs[0].rx_bytes for sample in samples if sample.netdevs)))
    (without, traffic), (with_effect, same) = totals
    assert with_effect / without == pytest.approx(0.8, rel=0.01)
    assert same == traffic


@pytest.mark.parametrize("text", ["spread=0.9", "spread@2", "spread@2=0", "spread@2=-1", "@2=1.1", "spread@x=1"])
def test_an_effect_that_cannot_be_planted_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not an effect such as"):
        parse_effect(text)
