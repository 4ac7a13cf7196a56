import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.rates import UNREAD, make_rates

from coresteer_core.bounds import MAX_INTEGER, MAX_NAME, MAX_UNIX_MS
from coresteer_core.changes.guardrail import Guardrail
from coresteer_core.changes.plan import Action, Plan
from coresteer_core.changes.report import ChangeMessage, ChangeState, EndedBy, Outcome, Result
from coresteer_core.cpuset import MAX_CPUS
from coresteer_core.metrics import GUARDRAIL_METRICS
from coresteer_core.node.metric_values import guardrail_values
from coresteer_core.node.rates import NetdevCounts, TcpLatency, decode_irq_id, encode_irq_id
from coresteer_core.node.tasks import Task
from coresteer_core.protocol import (
    PROTOCOL_VERSION,
    Ack,
    Apply,
    ChangeAck,
    Clock,
    Confirm,
    Extend,
    Ping,
    ProtocolError,
    Rollback,
    TasksMessage,
    ToAgent,
    ToBackend,
    Welcome,
    decode_to_agent,
    decode_to_backend,
    encode,
)

numbers = st.integers(0, 2**63 - 1)
times = st.integers(0, MAX_UNIX_MS - 1)
counts = st.integers(0, MAX_INTEGER - 1)
seconds = st.floats(allow_nan=False)
finite = st.floats(-MAX_INTEGER, MAX_INTEGER, exclude_min=True, exclude_max=True)
results = st.builds(
    Result, st.text(), st.sampled_from(Outcome), st.text(), st.none() | st.text(), st.none() | st.text()
)
messages_to_agent = st.one_of(
    st.builds(Welcome, numbers, numbers, numbers),
    st.builds(Extend, st.text(), seconds),
    *[st.builds(kind, st.text()) for kind in (Confirm, Rollback, ChangeAck)],
    *[st.builds(kind, numbers) for kind in (Ack, Ping)],
)
messages_to_backend = st.one_of(
    st.builds(Clock, numbers, times),
    st.builds(
        TasksMessage,
        numbers,
        st.lists(
            st.builds(
                Task,
                st.integers(0, 2**31 - 1),
                st.text(max_size=MAX_NAME),
                st.integers(0, MAX_CPUS - 1),
                st.floats(0, 2**20),
            )
        ),
    ),
    st.builds(
        ChangeMessage,
        st.text(max_size=64),
        st.sampled_from(ChangeState),
        st.text(),
        st.lists(results, max_size=256),
        st.none() | st.sampled_from(EndedBy),
        st.none() | counts,
        st.none() | finite,
    ),
)
labels = st.integers(0, 0x2100_0000 - 1).map(str) | st.text("ABCXYZ0123456789", min_size=1, max_size=4)


@given(messages_to_agent)
def test_what_the_backend_says_arrives_as_it_was_said(message: ToAgent) -> None:
    assert decode_to_agent(encode(message)) == message


@given(messages_to_backend)
def test_what_an_agent_says_arrives_as_it_was_said(message: ToBackend) -> None:
    assert decode_to_backend(encode(message)) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_protocol_error(frame: bytes) -> None:
    for decode in (decode_to_agent, decode_to_backend):
        try:
            decode(frame)
        except ProtocolError as error:
            assert str(error).startswith(f"Invalid message of protocol {PROTOCOL_VERSION}")


@given(st.integers(0, 200))
def test_a_frame_that_was_cut_is_a_protocol_error(cut: int) -> None:
    plan = Plan([Action("irq/41/affinity", "0-7", "2", "because")])
    frame = encode(Apply("c1", plan, 60, [Guardrail("rtt_p99_us", 1000)]))
    with pytest.raises(ProtocolError):
        decode_to_agent(frame[: min(cut, len(frame) - 1)])


def test_a_field_of_a_newer_peer_is_ignored() -> None:
    frame = msgspec.msgpack.encode({"type": "ack", "seq": 4, "mood": "good"})
    assert decode_to_agent(frame) == Ack(4)


def test_nesting_without_end_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError):
        decode_to_agent(b"\x81\xa4type" + b"\x91" * 100_000)


@given(
    st.one_of(
        st.integers(0, 0x2100_0000 - 1).map(str),
        st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=1, max_size=4),
    )
)
def test_a_row_label_survives_being_a_number(label: str) -> None:
    irq_id = encode_irq_id(label)
    assert irq_id is not None
    assert decode_irq_id(irq_id) == (str(int(label)) if label.isdecimal() else label)


@pytest.mark.parametrize("label", ["", "ABCDE", "A B", "Ä", "\n", str(0x2100_0000), " "])
def test_a_label_that_is_no_row_of_proc_interrupts_is_none(label: str) -> None:
    assert encode_irq_id(label) is None


def test_the_guardrails_figures_are_read_from_one_interval() -> None:
    netdevs = [NetdevCounts("eth0", 0, 0, 0, 0, 6, 2, 0, 0), NetdevCounts("eth1", 0, 0, 0, 0, 2, 0, 0, 0)]
    shares = {"busy": bytes([10, 255, 181])}
    measured = guardrail_values(make_rates(duration_s=2.0, shares=shares, netdevs=netdevs, tcp=TcpLatency(3, 1, 2, 9)))
    assert measured == {"rtt_p99_us": 9.0, "dropped_per_s": 5.0, "busiest_cpu_percent": 90.5}
    assert measured.keys() == GUARDRAIL_METRICS.keys()


def test_what_was_not_read_is_none_and_not_zero() -> None:
    assert set(guardrail_values(UNREAD).values()) == {None}
    assert guardrail_values(make_rates(tcp=TcpLatency(0, 0, 0, 0)))["rtt_p99_us"] is None
    softnet = (4).to_bytes(4, "little") + b"\xff" * 4
    assert guardrail_values(make_rates(duration_s=2.0, counts={"dropped": softnet}))["dropped_per_s"] == 2.0


def test_a_result_keeps_what_was_found_apart_from_what_was_not_read() -> None:
    assert msgspec.to_builtins(Result("k", Outcome.FAILED, "s"))["found"] is None
