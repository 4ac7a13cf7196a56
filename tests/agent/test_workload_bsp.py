"""The workload of parallel jobs on a small scale: real processes and sockets, waiting, places, limits, and cleanup."""

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.polling import poll

from coresteer_agent.__main__ import main
from coresteer_agent.collect.process_identity import parse_command
from coresteer_agent.workloads import bsp
from coresteer_agent.workloads.bsp import Outcome, figures
from coresteer_agent.workloads.bsp_machine import cpu_groups
from coresteer_agent.workloads.bsp_process import Exchange, Report, neighbours_of, run_loops
from coresteer_agent.workloads.load import Load, Prepared
from coresteer_core.experiments.parallel_jobs import COMMAND, Bsp, JobType, MessageWait
from coresteer_core.metrics import EXPERIMENT_METRICS

SMALL = Bsp(jobs=2, mpl=2, loops=3, exchange_ms=0.1)
LONG = replace(SMALL, loops=10_000, exchange_ms=50)
METRICS = {
    "job_response_s",
    "makespan_s",
    "loops_per_s",
    "spin_s",
    "voluntary_switches_per_loop",
    "involuntary_switches_per_loop",
}


def job_processes() -> list[psutil.Process]:
    """Return the processes of all parallel jobs on this machine, also orphaned ones."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.cmdline()[:1] == [COMMAND] and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before, affinity = {*psutil.Process().children(recursive=True)}, os.sched_getaffinity(0)
    others = {*job_processes()}
    yield
    assert {*psutil.Process().children(recursive=True)} - before == set()
    poll(lambda: {*job_processes()} <= others)
    assert os.sched_getaffinity(0) == affinity


def ended(workload: Bsp) -> Load:
    load = Load(Prepared(workload, "alone"))
    load.start(workload, "alone")
    poll(lambda: load.done or load.failed is not None)
    return load


def running() -> tuple[Load, set[psutil.Process]]:
    """Return a load that lasts long and its processes."""
    others = {*job_processes()}
    load = Load(Prepared(LONG, "alone"))
    load.start(LONG, "alone")
    return load, poll(lambda: {*job_processes()} - others, lambda found: len(found) == LONG.jobs * LONG.processes)


@pytest.mark.parametrize(
    "workload",
    [
        SMALL,
        replace(SMALL, wait="block", pattern="aa", processes=4, job_type="j3"),
        replace(SMALL, wait="busy-wait", processes=3, job_type="j2"),
        replace(SMALL, jobs=4, mpl=1, imbalance=0.0),
        replace(SMALL, cpus="0"),
    ],
    ids=["spin, then block", "block, all to all", "busy-wait, ring", "one job after the other", "pinned"],
)
def test_the_workload_ends_by_itself_and_reports_its_metrics(workload: Bsp) -> None:
    load = ended(workload)
    found = load.figures()
    assert load.failed is None
    assert METRICS <= found.keys() <= METRICS | {"idle_percent"} <= EXPERIMENT_METRICS.keys()
    assert 0 < found["job_response_s"] <= found["makespan_s"]
    assert found["loops_per_s"] == pytest.approx(workload.jobs * workload.loops / found["makespan_s"])
    assert (found["spin_s"] == 0) if workload.wait == "block" else (found["spin_s"] >= 0)
    assert 0 <= found.get("idle_percent", 0) <= 100
    load.stop()


@pytest.mark.parametrize(
    ("workload", "part"),
    [
        (replace(SMALL, cpus="4095"), "failed on CPU 4095: Invalid argument."),
        (replace(SMALL, cpus="3-1"), "The parallel jobs failed: "),
    ],
    ids=["absent CPU", "not a list"],
)
def test_a_workload_that_cannot_run_says_why(workload: Bsp, part: str) -> None:
    load = ended(workload)
    assert part in str(load.failed)
    assert load.figures() == {}
    load.stop()


def test_a_killed_process_ends_all_jobs_with_the_reason() -> None:
    load, processes = running()
    poll(lambda: all(sum(process.num_ctx_switches()) > 10 for process in processes))
    processes.pop().kill()
    poll(lambda: load.failed is not None)
    assert "another process of its job ended." in str(load.failed)
    load.stop()


def test_a_stopped_workload_leaves_no_process() -> None:
    load, _ = running()
    load.stop()


def test_a_program_ended_by_sigterm_leaves_no_process() -> None:
    load, processes = running()
    [parent] = {process.ppid() for process in processes}
    os.kill(parent, signal.SIGTERM)
    poll(lambda: not {*job_processes()} & processes)
    poll(lambda: load.failed is not None)
    load.stop()


def test_jobs_that_take_too_long_end_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    sentences: list[str] = []

    def fail(sentence: str) -> None:
        sentences.append(sentence)
        raise SystemExit(1)

    monkeypatch.setattr(bsp, "exit_with_error", fail)
    with pytest.raises(SystemExit):
        next(bsp._reports([reading], 1, 0.0))
    os.close(writing)
    os.close(reading)
    assert sentences == ["The parallel jobs were not finished after 600 s."]


def test_processes_have_a_name_that_a_policy_can_match() -> None:
    load, processes = running()
    for process in processes:
        assert parse_command(Path(f"/proc/{process.pid}/cmdline").read_bytes()) == process.name() == COMMAND
    load.stop()


@pytest.mark.parametrize(
    ("jobs", "processes", "mpl", "cpus", "expected"),
    [
        (3, 2, 3, [0, 1], [[0, 1]] * 3),
        (3, 2, 2, [0, 1], [[0, 1]] * 3),
        (3, 2, 2, [4, 5, 6, 7], [[4, 5], [4, 5], [6, 7]]),
        (5, 2, 2, [4, 5, 6, 7, 8], [[4, 5], [4, 5], [6, 7], [6, 7], [4, 5]]),
        (2, 4, 1, [0, 1], [[0, 1, 0, 1]] * 2),
        (2, 2, 1, [7], [[7, 7]] * 2),
    ],
    ids=["one group", "the third waits", "two groups", "the fifth waits", "fewer CPUs than processes", "one CPU"],
)
def test_jobs_fill_one_group_of_cpus_before_the_next(
    jobs: int, processes: int, mpl: int, cpus: list[int], expected: list[list[int]]
) -> None:
    assert cpu_groups(Bsp(jobs=jobs, processes=processes, mpl=mpl), cpus) == expected


def test_at_most_the_multiprogramming_level_of_jobs_run_on_the_same_cpus() -> None:
    workload = Bsp(jobs=3, processes=2, mpl=1)
    pipes = [os.pipe() for _ in range(3)]
    started: list[int] = []

    def reports() -> Iterator[Report]:
        for job in range(3):
            for reading, _ in pipes[job + 1 :]:
                os.set_blocking(reading, False)
                with pytest.raises(BlockingIOError):
                    os.read(reading, 2)
            assert len(os.read(pipes[job][0], 3)) == 2
            started.append(job)
            yield from [Report(job, 1.0)] * 2

    finished = bsp._run_jobs(workload, cpu_groups(workload, [0, 1]), [end for _, end in pipes], reports())
    assert (started, len(finished)) == ([0, 1, 2], 6)
    for pipe in pipes:
        for end in pipe:
            os.close(end)


@given(st.integers(2, 8), st.sampled_from(["nn", "aa"]))
def test_neighbours_are_mutual_and_of_the_pattern(processes: int, pattern: str) -> None:
    workload = Bsp(processes=processes, pattern="aa" if pattern == "aa" else "nn")
    of_rank = [neighbours_of(workload, rank) for rank in range(processes)]
    assert all(rank in of_rank[other] and other != rank for rank, others in enumerate(of_rank) for other in others)
    expected = processes - 1 if pattern == "aa" else min(2, processes - 1)
    assert {len(others) for others in of_rank} == {expected}


@pytest.mark.parametrize("wait", ["block", "spin-block", "busy-wait"])
def test_a_message_is_exchanged_however_a_process_waits(wait: MessageWait) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    exchange = Exchange(replace(SMALL, wait=wait, spin_us=1), [near], 3)
    child = os.fork()
    if child == 0:
        far.recv(3)  # not before the parent has begun to wait
        far.send(b"abc")
        os._exit(0)
    exchange.run()
    os.waitpid(child, 0)
    assert wait != "block" or exchange.spun_ns == 0
    far.close()
    with pytest.raises(ConnectionError):
        exchange.run()
    near.close()


def test_a_process_spins_for_the_given_time_then_sleeps() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        exchange = Exchange(replace(SMALL, wait="spin-block", spin_us=500), [near], 3)
        before_ns = time.monotonic_ns()
        assert not exchange._spin({}, {near: 3})
        assert time.monotonic_ns() - before_ns >= 500_000
        assert exchange.spun_ns > 0
        far.send(b"abc")
        missing = {near: 3}
        assert exchange._spin({}, missing)
        assert missing == {}


def test_the_imbalance_depends_on_seed_job_and_rank_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    work: list[int] = []
    monkeypatch.setattr("coresteer_agent.workloads.bsp_process.compute", work.append)
    monkeypatch.setattr("coresteer_agent.workloads.bsp_process.Exchange.run", lambda _: None)
    workload = replace(SMALL, loops=50, exchange_ms=0.5, job_type="j2", imbalance=1.5)
    near, far = socket.socketpair()
    with near, far:
        for seed, job, rank in ((1, 0, 0), (1, 0, 0), (2, 0, 0), (1, 1, 0), (1, 0, 1)):
            run_loops(replace(workload, seed=seed), job, rank, [near])
        runs = [work[at : at + 50] for at in range(0, 250, 50)]
        assert runs[0] == runs[1]
        assert len({tuple(each) for each in runs}) == 4
        mean = 0.0005 * 50_000
        assert all(mean * 0.25 - 1 <= each <= mean * 1.75 + 1 for each in work)
        work.clear()
        run_loops(replace(workload, imbalance=0.0), 0, 0, [near])
        assert {*work} == {25}


@pytest.mark.parametrize(
    ("kind", "shares"), [("j1", (0.70, 0.05, 0.25)), ("j2", (0.40, 0.20, 0.40)), ("j3", (0.25, 0.05, 0.70))]
)
def test_a_loop_has_the_shares_of_its_job_type(kind: JobType, shares: tuple[float, float, float]) -> None:
    workload = Bsp(job_type=kind, exchange_ms=7)
    whole = sum(workload.loop_s)
    assert [part / whole for part in workload.loop_s] == pytest.approx(shares)
    assert workload.loop_s[2] == 0.007
    assert workload.work_s == pytest.approx(3 * 40 * whole)


def test_the_response_time_of_a_job_ends_with_its_last_process() -> None:
    reports = [Report(0, 14.0, 0.5, 6, 2), Report(0, 12.0, 0.0, 4, 0), Report(1, 11.0, 0.25, 2, 2), Report(1, 12.0)]
    workload = Bsp(jobs=2, loops=2)
    assert figures(workload, Outcome(10.0, reports, 12.5)) == {
        "job_response_s": 3.0, "makespan_s": 4.0, "loops_per_s": 1.0, "spin_s": 0.75,
        "voluntary_switches_per_loop": 3.0, "involuntary_switches_per_loop": 1.0, "idle_percent": 12.5,
    }  # fmt: skip
    assert "idle_percent" not in figures(workload, Outcome(10.0, reports, None))


def test_the_command_prints_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "bsp", "--jobs", "1", "--loops", "1", "--exchange-ms", "0.05", "--wait", "block"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["workload"]["type"] == "bsp"
    assert printed["figures"]["job_response_s"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"), [(["--imbalance", "3"], "imbalance"), (["--cpus", "a"], "is not a CPU")]
)
def test_invalid_arguments_are_refused_with_the_reason(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["workload", "bsp", *arguments]) == 2
    assert words in capsys.readouterr().err
