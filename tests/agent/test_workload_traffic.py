"""Load between another network namespace and this one: throughput, rate limits, and cleanup.

Rates are far below the capacity of the machine, and the bounds leave room for buffered data.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path

import psutil
import pytest
from tests.support.polling import PATIENCE_S, poll
from tests.support.receipts import receipts_of

from coresteer_agent.__main__ import main
from coresteer_agent.workloads.iperf3 import parse_interval
from coresteer_agent.workloads.load import Load, Prepared
from coresteer_agent.workloads.netns import find_free_network, parse_routes
from coresteer_core.experiments.model import (
    Classes,
    Command,
    Iperf3,
    Observe,
    Role,
    TcpRequest,
    TcpStream,
    UdpFlood,
    Workload,
)

pytestmark = pytest.mark.filterwarnings("error")
needs_namespaces = pytest.mark.skipif(os.geteuid() != 0, reason="A network namespace needs root.")
WINDOW_S = 0.5


def works(load: Prepared | Load) -> Callable[[], None]:
    """Return a check for poll() that fails with the load's reason."""

    def check() -> None:
        assert load.failed is None, load.failed

    return check


def indexes() -> set[int]:
    """Return the indexes of this namespace's netdevs, which unlike names are not reused."""
    return {index for index, _ in socket.if_nameindex()}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    files = len(list(Path("/proc/self/fd").iterdir()))
    others = psutil.Process().children(recursive=True)  # of other tests, such as multiprocessing's own
    yield
    assert [child for child in psutil.Process().children(recursive=True) if child not in others] == []
    assert len(list(Path("/proc/self/fd").iterdir())) <= files  # those of earlier tests may be collected meanwhile


def figures_of(
    workload: Workload, role: Role = "alone", commands: Mapping[str, Sequence[str]] | None = None
) -> dict[str, float]:
    """Return the metrics of half a second, or of a workload that ends by itself."""
    prepared = Prepared(workload, role)
    load = Load(prepared, commands)
    index = None
    try:
        poll(lambda: prepared.ready, check=works(prepared))
        index = socket.if_nametoindex(prepared.netdev) if prepared.netdev else None
        load.start(workload, role)
        poll(lambda: load.ready, check=works(load))
        load.begin_window()
        if isinstance(workload, Classes | Command):
            poll(lambda: load.done, check=works(load))
        else:
            time.sleep(WINDOW_S)  # what is measured
        load.end_window()
        assert load.failed is None
        return load.figures()
    finally:
        load.stop()
        prepared.close()
        poll(lambda: index not in indexes())


@pytest.mark.root
@needs_namespaces
def test_a_stream_respects_its_rate_limit() -> None:
    found = figures_of(TcpStream(connections=2, limit_mbit_per_s=100))
    assert set(found) == {"throughput_bit_per_s"}
    assert 0 < found["throughput_bit_per_s"] < 300e6


@pytest.mark.root
@needs_namespaces
def test_requests_respect_their_rate_limit_and_have_response_times() -> None:
    found = figures_of(TcpRequest(connections=3, limit_per_s=600, request_bytes=3000, response_bytes=70_000))
    assert 0 < found["requests_per_s"] < 700
    assert 0 < found["rtt_p50_us"] <= found["rtt_p95_us"] <= found["rtt_p99_us"]


@pytest.mark.root
@needs_namespaces
def test_the_servers_work_is_part_of_the_response_time() -> None:
    found = figures_of(TcpRequest(connections=1, work_us=5_000, limit_per_s=100))
    assert found["rtt_p50_us"] > 5_000


@pytest.mark.root
@needs_namespaces
def test_a_flood_respects_its_rate_limit() -> None:
    found = figures_of(UdpFlood(flows=8, packets_per_s=2_000, payload_bytes=100))
    assert 0 < found["packets_per_s"] < 6_000
    assert found["throughput_bit_per_s"] == pytest.approx(found["packets_per_s"] * 800)


@pytest.mark.root
@needs_namespaces
def test_the_servers_netdev_has_one_queue_and_receives_packets_of_wire_size() -> None:
    workload = TcpStream(connections=1, limit_mbit_per_s=200)
    prepared = Prepared(workload, "alone")
    load = Load(prepared)
    try:
        poll(lambda: prepared.ready, check=works(prepared))
        assert prepared.address.startswith(("198.18.", "198.19."))
        folder = Path("/sys/class/net") / prepared.netdev
        assert [path.name for path in (folder / "queues").iterdir() if path.name.startswith("rx-")] == ["rx-0"]
        load.start(workload, "alone")
        poll(lambda: load.ready, check=works(load))
        poll(lambda: int((folder / "statistics/rx_packets").read_text()) > 1_000)
        size = int((folder / "statistics/rx_bytes").read_text()) / int((folder / "statistics/rx_packets").read_text())
        assert size <= 1_514
    finally:
        load.stop()
        prepared.close()


@pytest.mark.root
@needs_namespaces
def test_interrupt_coalescing_of_the_kernel_can_be_set_on_the_servers_netdev() -> None:
    workload, waits_us = TcpRequest(connections=1), 4_000
    prepared = Prepared(workload, "alone")
    load = Load(prepared)
    try:
        poll(lambda: prepared.ready, check=works(prepared))
        for name, value in (("napi_defer_hard_irqs", 1), ("gro_flush_timeout", waits_us * 1000)):
            (Path("/sys/class/net") / prepared.netdev / name).write_text(str(value))
        load.start(workload, "alone")
        poll(lambda: load.ready, check=works(load))
        load.begin_window()
        time.sleep(WINDOW_S)  # what is measured
        load.end_window()
        assert load.figures()["rtt_p50_us"] > waits_us / 2
    finally:
        load.stop()
        prepared.close()


def test_the_server_listens_on_the_first_netdev_that_has_an_address() -> None:
    prepared = Prepared(TcpRequest(), "server", ["none0", "lo"])
    try:
        assert (prepared.netdev, prepared.address.partition(":")[0]) == ("lo", "127.0.0.1")
    finally:
        prepared.close()


def test_server_and_client_of_two_nodes_connect_in_every_run() -> None:
    workload = TcpRequest(connections=2, limit_per_s=400)
    with_server, with_client = Prepared(workload, "server"), Prepared(workload, "client")
    try:
        assert with_server.ready and with_client.ready, with_server.failed
        for _ in range(2):
            server, client = Load(with_server), Load(with_client)
            receipts = receipts_of(with_server)
            server.start(workload, "server", receipts=receipts)
            poll(lambda its=server: its.ready, check=works(server))  # type: ignore[misc]  # mypy knows no type for a lambda's default
            client.start(workload, "client", with_server.address, receipts)
            poll(lambda both=(server, client): all(load.ready for load in both), check=works(client))  # type: ignore[misc]  # mypy knows no type for a lambda's default
            for load in (server, client):
                load.begin_window()
            time.sleep(WINDOW_S)  # what is measured
            for load in (server, client):
                load.end_window()
            server_metrics, client_metrics = server.figures(), client.figures()
            server.stop()
            client.stop()
            assert server_metrics["requests_per_s"] > 0
            assert set(server_metrics) == {"requests_per_s", "throughput_bit_per_s"}
            assert client_metrics["rtt_p50_us"] > 0
    finally:
        with_server.close()
        with_client.close()


def test_a_client_without_a_server_fails_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    load = Load(Prepared(TcpStream(), "client"))
    load.start(TcpStream(), "client", f"127.0.0.1:{port}")
    poll(lambda: load.failed is not None)
    assert "Connection refused" in str(load.failed)
    assert load.figures() == {}
    load.stop()


@pytest.mark.root
@needs_namespaces
def test_a_load_whose_server_is_killed_in_the_window_fails() -> None:
    workload = TcpRequest(connections=2)
    prepared = Prepared(workload, "alone")
    load = Load(prepared)
    poll(lambda: prepared.ready, check=works(prepared))
    load.start(workload, "alone")
    poll(lambda: load.ready, check=works(load))
    load.begin_window()
    [server] = [child for child in psutil.Process().children() if "traffic_server" in " ".join(child.cmdline())]
    server.kill()
    poll(lambda: load.failed is not None)
    load.stop()
    prepared.close()


def test_observing_starts_nothing() -> None:
    assert figures_of(Observe()) == {}


def test_service_classes_report_metrics_of_every_class() -> None:
    found = figures_of(Classes(requests=10))
    assert set(found) == {
        *(f"c{number}_mean_us" for number in range(1, 6)),
        "all_mean_us",
        "c5_by_c1",
        "longest_wait_us",
        "requests_per_s",
    }
    assert found["c5_by_c1"] == pytest.approx(found["c5_mean_us"] / found["c1_mean_us"])


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ('echo working; echo \'{"score": 3, "rate": 0.5}\'', {"command.score": 3.0, "command.rate": 0.5}),
        ("echo only words", {}),
        ('echo \'{"score": "high"}\'', {}),
        ("true", {}),
    ],
)
def test_the_last_line_of_a_command_may_be_its_metrics(script: str, expected: dict[str, float]) -> None:
    assert figures_of(Command(name="mine"), commands={"mine": ["sh", "-c", script]}) == expected


@pytest.mark.parametrize(
    ("name", "argv", "sentence"),
    [
        ("other", ["true"], "allows no command 'other'"),
        ("mine", ["sh", "-c", "exit 3"], "ended with exit code 3"),
        ("mine", ["/nowhere/at-all"], "No such file"),
    ],
)
def test_a_failed_command_has_a_reason(name: str, argv: list[str], sentence: str) -> None:
    load = Load(Prepared(Command(name=name), "alone"), {"mine": argv})
    load.start(Command(name=name), "alone")
    poll(lambda: load.failed is not None)
    assert sentence in str(load.failed)
    assert load.figures() == {}
    load.stop()


def test_endless_output_of_a_command_does_not_block_polling() -> None:
    load = Load(Prepared(Command(name="mine"), "alone"), {"mine": ["yes"]})
    load.start(Command(name="mine"), "alone")
    for _ in range(20):
        assert load.ready
    load.stop()


def test_stopped_service_classes_remove_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    load = Load(Prepared(Classes(), "alone"))
    load.start(Classes(requests=10_000), "alone")
    poll(lambda: load.ready and len(psutil.Process().children(recursive=True)) > 20)  # requests are served
    assert len(list(tmp_path.iterdir())) == 1
    load.stop()
    assert list(tmp_path.iterdir()) == []


def test_a_load_whose_client_cannot_be_started_leaves_no_server() -> None:
    workload = TcpRequest(connections=1)
    prepared = Prepared(workload, "server", ["lo"])
    load = Load(prepared)
    load.start(workload, "alone", "nowhere")
    assert load.failed == "The load could not be started: 'nowhere' is not HOST:PORT."
    prepared.close()


ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0
tun0\t000012C6\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
tun1\t00000080\t00000000\t0001\t0\t0\t0\t00000080\t0\t0\t0
"""


@pytest.mark.skipif(sys.byteorder == "big", reason="The kernel writes addresses as its CPU has them.")
def test_routes_of_the_kernel_are_parsed_with_their_prefix_length() -> None:
    assert [str(route) for route in parse_routes(ROUTES)] == ["0.0.0.0/0", "198.18.0.0/16", "128.0.0.0/1"]


def test_a_routed_or_assigned_network_is_not_used() -> None:
    routed, address = IPv4Network("198.18.0.0/16"), IPv4Network("198.19.0.1")
    found = find_free_network([routed, address])
    assert found.subnet_of(IPv4Network("198.19.0.0/16"))
    assert not found.overlaps(address)
    with pytest.raises(OSError, match=r"every network of 198\.18\.0\.0/15 is in use"):
        find_free_network([IPv4Network("198.18.0.0/15")])


def test_a_stopped_command_leaves_no_processes(tmp_path: Path) -> None:
    script = f"(setsid sh -c 'echo $$ > {tmp_path}/pid; exec sleep 60' &) ; sleep 60"
    load = Load(Prepared(Command(name="mine"), "alone"), {"mine": ["sh", "-c", script]})
    load.start(Command(name="mine"), "alone")
    poll(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    load.stop()
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


_AGENT = """
import sys, time
from coresteer_agent.workloads.load import Load, Prepared
from coresteer_core.experiments.model import Command, TcpRequest
prepared = Prepared(TcpRequest(), "alone")
while not prepared.ready: time.sleep(0.01)
load, command = Load(prepared), Load(prepared, {"mine": ["sh", "-c", "setsid sleep 60; true"]})
load.start(TcpRequest(), "alone")
command.start(Command(name="mine"), "alone")
while not load.ready: time.sleep(0.01)
print(prepared.netdev, flush=True)
time.sleep(60)
"""


@pytest.mark.root
@needs_namespaces
def test_a_killed_agent_leaves_neither_namespace_nor_process() -> None:
    with subprocess.Popen([sys.executable, "-c", _AGENT], stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        index = socket.if_nametoindex(agent.stdout.readline().strip())
        poll(lambda: "sleep" in [child.name() for child in psutil.Process(agent.pid).children(recursive=True)])
        everything = psutil.Process(agent.pid).children(recursive=True)
        agent.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(everything, timeout=PATIENCE_S)
    assert alive == []
    poll(lambda: index not in indexes())


@pytest.mark.root
@needs_namespaces
def test_the_command_prints_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "tcp-request", "--seconds", "0.2", "--connections", "1", "--limit-per-s", "500"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["workload"]["type"] == "tcp-request"
    assert printed["figures"]["requests_per_s"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["udp-flood", "--flows", "0"], "flows"),
        (["tcp-stream", "--seconds", "0"], "--seconds"),
        (["tcp-stream", "--server-cpus", "a"], "a"),
    ],
)
def test_invalid_arguments_are_refused_with_the_reason(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["workload", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_missing_iperf3_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    prepared = Prepared(Iperf3(), "server")
    load = Load(prepared)
    load.start(Iperf3(), "server")
    assert "not installed" in str(load.failed)
    assert load.figures() == {}
    load.stop()
    prepared.close()


@pytest.mark.parametrize(
    ("line", "bits", "total"),
    [
        ("[  5]   0.00-0.10   sec  1.13 MBytes  95000 Kbits/sec                  ", 9_500_000, False),
        ("[SUM]   0.10-0.20   sec  2.25 MBytes  189000 Kbits/sec    3             ", 18_900_000, True),
        ("[  6]   1.00-1.50   sec   122 KBytes  2000 Kbits/sec  0.012 ms  0/87 (0%)  ", 1_000_000, False),
        ("[  5][RX-S]   0.00-0.10   sec  1.13 MBytes  95000 Kbits/sec", 9_500_000, False),
        ("[ ID] Interval           Transfer     Bitrate", None, False),
        ("Server listening on 45000 (test #1)", None, False),
        ("- - - - - - - - - - - - - - - - - - - - - - - - -", None, False),
    ],
)
def test_lines_of_iperf3_are_parsed(line: str, bits: float | None, total: bool) -> None:
    interval = parse_interval(line)
    assert (interval is None) == (bits is None)
    if interval is not None:
        assert interval.bits == pytest.approx(bits)
        assert interval.total is total
