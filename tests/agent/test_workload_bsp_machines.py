"""Parallel jobs over two machines: two network namespaces of this one, or its two roles on two nodes."""

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.agent.test_workload_bsp import METRICS, SMALL, job_processes, nothing_is_left
from tests.support.polling import poll
from tests.support.receipts import receipts_of

from coresteer_agent.__main__ import main
from coresteer_agent.linux.network_namespace import network_namespace
from coresteer_agent.observe.job_sockets import JobSockets
from coresteer_agent.workloads import bsp_links
from coresteer_agent.workloads.bsp_links import CONTROL, accept_links, links_of, open_links, ranks_of
from coresteer_agent.workloads.bsp_machine import cpus_of_jobs
from coresteer_agent.workloads.bsp_process import neighbours_of
from coresteer_agent.workloads.load import Load, Prepared
from coresteer_core.experiments.parallel_jobs import Bsp

__all__ = ["nothing_is_left"]  # a fixture for each test
in_namespaces = pytest.mark.skipif(os.geteuid() != 0, reason="Only root makes network namespaces.")
TWO = replace(SMALL, machines=2)
LONG = replace(TWO, jobs=1, loops=10_000, exchange_ms=50)


@contextmanager
def loads(workload: Bsp) -> Iterator[list[Load]]:
    """Yield the started loads of two nodes."""
    both = [Prepared(workload, "server"), Prepared(workload, "client")]
    started = [Load(prepared) for prepared in both]
    try:
        assert all(prepared.ready for prepared in both), both[0].failed
        receipts = receipts_of(both[0])
        started[0].start(workload, "server", receipts=receipts)
        started[1].start(workload, "client", both[0].address, receipts)
        yield started
    finally:
        for load, prepared in zip(started, both, strict=True):
            load.stop()
            prepared.close()


def own_processes() -> set[psutil.Process]:
    """Return the processes of this test's jobs; others may run beside them."""
    return {*job_processes()} & {*psutil.Process().children(recursive=True)}


def ended(load: Load) -> bool:
    return load.done or load.failed is not None


@in_namespaces
@pytest.mark.parametrize(
    "workload",
    [TWO, replace(TWO, processes=4, pattern="aa", wait="block"), replace(TWO, jobs=3, mpl=1, processes=3)],
    ids=["two processes", "all to all, also within a machine", "one job after the other"],
)
def test_the_second_machine_is_a_network_namespace_of_this_node(workload: Bsp) -> None:
    prepared = Prepared(workload, "alone")
    load = Load(prepared)
    try:
        poll(lambda: prepared.ready or prepared.failed)
        load.start(workload, "alone")
        poll(lambda: ended(load))
        assert load.failed is None
        found = load.figures()
    finally:
        load.stop()
        prepared.close()
    assert found.keys() >= METRICS
    assert 0 < found["job_response_s"] <= found["makespan_s"]


@pytest.mark.parametrize(
    "workload",
    [TWO, replace(TWO, processes=4, pattern="aa"), replace(TWO, jobs=3, mpl=1, processes=3, wait="busy-wait")],
    ids=["two processes", "all to all, also within a machine", "one job after the other"],
)
def test_processes_of_a_job_run_on_two_nodes_and_the_first_has_all_results(workload: Bsp) -> None:
    with loads(workload) as (server, client):
        poll(lambda: ended(server) and ended(client))
        assert (server.failed, client.failed) == (None, None)
        assert client.figures() == {}
        found = server.figures()
    assert found.keys() >= METRICS
    assert found["loops_per_s"] == pytest.approx(workload.jobs * workload.loops / found["makespan_s"])


def test_the_nodes_can_run_again_after_a_run_that_was_interrupted() -> None:
    both = [Prepared(TWO, "server"), Prepared(TWO, "client")]
    try:
        for workload, reached in ((LONG, lambda _: len(own_processes()) == 2), (TWO, ended)):
            server, client = (Load(prepared) for prepared in both)
            server.start(workload, "server")
            client.start(workload, "client", both[0].address)
            poll(partial(reached, server))
            assert server.failed is None
            client.stop()
            server.stop()
    finally:
        for prepared in both:
            prepared.close()


def test_a_killed_process_ends_the_jobs_of_both_nodes_with_the_reason() -> None:
    with loads(LONG) as (server, client):
        processes = poll(own_processes, lambda found: len(found) == 2)
        poll(lambda: all(sum(process.num_ctx_switches()) > 10 for process in processes))
        processes.pop().kill()
        poll(lambda: ended(server) and ended(client))
        assert "another process of its job ended." in str(server.failed)


def test_jobs_whose_second_machine_never_comes_end_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bsp_links, "LINKS_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as listener, pytest.raises(TimeoutError, match="did not open its"):
        accept_links(listener, links_of(TWO))


def test_the_connections_of_strangers_are_closed() -> None:
    wanted = links_of(TWO)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        strangers = [socket.create_connection(address) for _ in range(3)]
        strangers[0].sendall(b"GET / HTTP/1.0")
        strangers[1].sendall(b"CSBSPJOB" + b"\0\x07" * 3)
        strangers[2].close()
        opened = {}
        opening = threading.Thread(target=lambda: opened.update(open_links(address, wanted)))
        opening.start()
        accepted = accept_links(listener, wanted)
        opening.join()
    assert accepted.keys() == opened.keys() == {*wanted}
    assert {link: near.getpeername() for link, near in accepted.items()} == {
        link: far.getsockname() for link, far in opened.items()
    }
    assert all(stranger.recv(1) == b"" for stranger in strangers[:2])
    for connection in (*accepted.values(), *opened.values(), *strangers):
        connection.close()


@given(st.integers(2, 8), st.integers(1, 3), st.sampled_from(["nn", "aa"]))
def test_each_process_has_one_connection_to_each_neighbour_on_the_other_machine(
    processes: int, jobs: int, pattern: str
) -> None:
    workload = Bsp(jobs=jobs, processes=processes, machines=2, pattern="aa" if pattern == "aa" else "nn")
    control, *links = links_of(workload)
    assert control == CONTROL
    for job in range(jobs):
        of_job = [link for link in links if link.job == job]
        assert len({*of_job}) == len(of_job)
        for machine, others in ((0, ranks_of(workload, 1)), (1, ranks_of(workload, 0))):
            for rank in ranks_of(workload, machine):
                found = sorted(link[2 - machine] for link in of_job if link[1 + machine] == rank)
                assert found == [other for other in neighbours_of(workload, rank) if other in others]
    assert links_of(replace(workload, machines=1)) == []
    assert sorted([*ranks_of(workload, 0), *ranks_of(workload, 1)]) == [*range(processes)]


@pytest.mark.parametrize(
    ("processes", "one_node", "cpus", "expected"),
    [
        (2, True, [0, 1, 2, 3], ([[0], [0], [2]], [[1], [1], [3]])),
        (3, True, [0, 1], ([[0, 0]] * 3, [[1]] * 3)),
        (2, False, [4, 5], ([[4]] * 3, [[4]] * 3)),
        (3, False, [4, 5], ([[4, 5]] * 3, [[4]] * 3)),
        (4, False, [7], ([[7, 7]] * 3, [[7, 7]] * 3)),
    ],
    ids=["namespaces", "namespaces, too few CPUs", "two nodes", "two nodes, an odd process", "two nodes of a CPU"],
)
def test_machines_of_one_node_share_its_cpus_and_on_two_nodes_all_jobs_use_the_same(
    processes: int, one_node: bool, cpus: list[int], expected: tuple[list[list[int]], list[list[int]]]
) -> None:
    workload = Bsp(jobs=3, mpl=2, processes=processes, machines=2)
    assert tuple(cpus_of_jobs(workload, cpus, machine, one_node=one_node) for machine in (0, 1)) == expected


@in_namespaces
def test_a_peer_in_another_namespace_of_this_node_is_known_by_its_cpus() -> None:
    prepared, sockets = Prepared(LONG, "alone"), JobSockets()
    load = Load(prepared)
    try:
        poll(lambda: prepared.ready or prepared.failed)
        load.start(LONG, "alone")
        first, second = poll(own_processes, lambda found: len(found) == 2)
        assert network_namespace(first.pid) != network_namespace(second.pid)
        assert os.getpid() not in {first.ppid(), second.ppid()}
        cpus = {process.pid: f"{place}" for place, process in enumerate((first, second))}
        sockets.follow(cpus)
        received = sockets.read(cpus, 100.0)
        assert {(each.pid, each.peer) for each in received} == {(first.pid, "CPUs 1"), (second.pid, "CPUs 0")}
        assert sockets.remote == set()
    finally:
        sockets.close()
        load.stop()
        prepared.close()


@pytest.mark.parametrize("arguments", [["--listen", "nowhere"], ["--join", ":1"], ["--listen", "a:1", "--join", "b:2"]])
def test_an_invalid_address_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["workload", "bsp", *arguments])
    assert "--" in capsys.readouterr().err


def test_the_command_runs_the_two_machines_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    address = f"127.0.0.1:{port}"
    small = ["workload", "bsp", "--jobs", "1", "--loops", "1", "--exchange-ms", "0.05", "--wait", "block"]
    child = os.fork()
    if child == 0:
        try:
            poll(lambda: subprocess.check_output(["ss", "-Hltn", f"sport = :{port}"]))
            os._exit(main([*small, "--join", address]))
        finally:
            os._exit(3)
    assert main([*small, "--listen", address]) == 0
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert '"machines": 2' in capsys.readouterr().out
