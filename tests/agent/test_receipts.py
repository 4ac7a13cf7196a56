"""A load between two nodes: none without a program that receives it, and none for longer than that program reports."""

import secrets
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.support.polling import poll
from tests.support.receipts import receipts_of

from coresteer_agent.workloads.load import Load, Prepared
from coresteer_agent.workloads.receipts import SILENCE_S
from coresteer_core.experiments.model import Iperf3, Receipts, TcpRequest, TcpStream, UdpFlood, Workload
from coresteer_core.experiments.parallel_jobs import Bsp

FLOOD = UdpFlood(flows=2, packets_per_s=2000)
KEY = secrets.token_hex(32)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A TCP listener of a machine that takes no part in an experiment."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        one.setblocking(False)
        yield one


@pytest.fixture
def bystander(listener: socket.socket) -> Iterator[socket.socket]:
    """A UDP socket of that machine with the same port, which hardly anything else uses: few programs use UDP."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(listener.getsockname())
        one.setblocking(False)
        yield one


@pytest.fixture
def server() -> Iterator[Prepared]:
    prepared = Prepared(FLOOD, "server", ["lo"])
    yield prepared
    prepared.close()


def ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def failure(load: Load) -> str:
    return load.failed or ""


def received(bystander: socket.socket) -> list[bytes]:
    found = []
    try:
        while True:
            found.append(bystander.recv(9000))
    except BlockingIOError:
        return found


def test_nothing_is_sent_to_an_address_at_which_no_program_answers(
    listener: socket.socket, bystander: socket.socket
) -> None:
    port = bystander.getsockname()[1]
    workloads: list[Workload] = [FLOOD, TcpStream(), TcpRequest(), Bsp(machines=2)]
    loads = [Load(Prepared(workload, "client")) for workload in workloads]
    try:
        for load, workload in zip(loads, workloads, strict=True):
            load.start(workload, "client", f"127.0.0.1:{port}", Receipts(port, KEY))
        for load in loads:
            while load.failed is None:
                time.sleep(0.01)
            assert "No load is sent to 127.0.0.1: no program of the experiment answers" in load.failed
    finally:
        for load in loads:
            load.stop()
    with pytest.raises(BlockingIOError):
        listener.accept()
    questions = received(bystander)
    assert len(loads) <= len(questions) < 100
    assert {len(question) for question in questions} == {48}


def test_a_program_that_does_not_know_the_key_cannot_answer(server: Prepared) -> None:
    receiving, sending = Load(server), Load(Prepared(FLOOD, "client"))
    try:
        receiving.start(FLOOD, "server", receipts=receipts_of(server))
        poll(lambda: receiving.ready)
        sending.start(FLOOD, "client", server.address, receipts_of(server))  # with another key
        poll(lambda: sending.failed is not None)
        assert not receiving.has_traffic
    finally:
        sending.stop()
        receiving.stop()


def test_a_load_ends_a_second_after_the_reports_of_the_receiving_program(server: Prepared) -> None:
    receiving, sending = Load(server), Load(Prepared(FLOOD, "client"))
    try:
        receipts = receipts_of(server)
        receiving.start(FLOOD, "server", receipts=receipts)
        poll(lambda: receiving.ready)
        sending.start(FLOOD, "client", server.address, receipts)
        poll(lambda: receiving.has_traffic)
        time.sleep(1.5 * SILENCE_S)  # it goes on for as long as it is reported
        assert failure(sending) == ""
        receiving.stop()
        poll(lambda: sending.failed is not None)
        assert failure(sending) == "The load ended: no report of the program that receives it arrived for 1 s."
        poll(lambda: not received_again(server))
    finally:
        sending.stop()
        receiving.stop()


IPERF3 = """#!/bin/sh
echo "Server listening on $2"
while :; do echo "[SUM]   0.00-0.10   sec  1.00 MBytes  1000 Kbits/sec"; sleep 0.1; done
"""


def test_a_program_of_others_that_sends_ends_with_the_receiving_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "iperf3"
    program.write_text(IPERF3)
    program.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(program))
    prepared = Prepared(Iperf3(), "server", ["lo"])
    receiving, sending = Load(prepared), Load(Prepared(Iperf3(), "client"))
    receipts = receipts_of(prepared)
    others = set(psutil.Process().children(recursive=True))  # of the tests before
    try:
        receiving.start(Iperf3(), "server", receipts=receipts)
        poll(lambda: receiving.ready)
        sending.start(Iperf3(), "client", prepared.address, receipts)
        poll(lambda: sending.ready)
        receiving.stop()
        poll(lambda: sending.failed is not None)
        assert "no report of the program that receives it" in failure(sending)
        poll(lambda: all(map(ended, set(psutil.Process().children(recursive=True)) - others)))
    finally:
        sending.stop()
        receiving.stop()
        prepared.close()


def received_again(server: Prepared) -> int:
    """Return how many packets arrive at the server's sockets within a short time, without those already there."""
    for one in server.sockets:
        one.setblocking(False)
        received(one)
    time.sleep(0.1)
    return sum(len(received(one)) for one in server.sockets)
