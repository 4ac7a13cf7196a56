"""The echo server experiment on a small scale: service order, disturbances, and cleanup."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from tests.support.polling import PATIENCE_S, poll

from coresteer_agent.__main__ import main
from coresteer_agent.workloads.classes import run
from coresteer_agent.workloads.classes_model import Result, Setup, WorkloadError
from coresteer_core.experiments.model import THREADS_PER_CLASS, ClassesMethod
from coresteer_core.metrics import CLASS_NAMES

REQUESTS = 8
EACH = THREADS_PER_CLASS * REQUESTS
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for negative nice values and cgroups")


def cgroups_of(pid: int) -> list[Path]:
    return [*Path("/sys/fs/cgroup").rglob(f"coresteer-workload-{pid}")]


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("workload")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    before = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
    children = {*psutil.Process().children(recursive=True)}
    yield
    assert {*psutil.Process().children(recursive=True)} - children == set()
    assert cgroups_of(os.getpid()) == []
    assert [*folder.glob("coresteer-workload-*")] == []
    assert (os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)) == before


@pytest.mark.parametrize(
    "method",
    [
        "default",
        "gate",
        pytest.param("nice", marks=needs_root),
        pytest.param("cgroup", marks=needs_root),
        pytest.param("weight", marks=needs_root),
    ],
)
def test_every_request_is_answered_by_every_method(method: ClassesMethod) -> None:
    result = run(Setup(method=method, requests=REQUESTS, seed=1))
    assert [(row.name, row.completed, row.failed) for row in result.classes] == [
        (name, EACH, 0) for name in CLASS_NAMES
    ]
    assert (result.all.completed, result.all.failed) == (EACH * len(CLASS_NAMES), 0)
    for row in result.classes:
        assert row.mean_us is not None and row.longest_wait_us is not None and row.max_us is not None
        assert row.p50_us is not None and row.p99_us is not None
        assert 0 < row.p50_us <= row.p99_us <= row.max_us
        assert row.longest_wait_us < row.max_us
    assert result.server_cpu not in result.client_cpus


def test_the_gate_serves_the_first_class_before_the_last() -> None:
    first, *_, last = run(Setup(method="gate", requests=4 * REQUESTS)).classes
    assert first.mean_us is not None and last.mean_us is not None
    assert first.mean_us < last.mean_us
    assert first.finished_s is not None and last.finished_s is not None
    assert first.finished_s < last.finished_s


@pytest.mark.parametrize("method", ["default", "gate"])
def test_a_killed_worker_fails_its_own_request_and_no_other(method: ClassesMethod) -> None:
    result = run(Setup(method=method, requests=REQUESTS, disturbance="worker"))
    assert [(row.completed, row.failed) for row in result.classes] == [(EACH - 1, 1)] * len(CLASS_NAMES)


def test_workers_continue_without_a_killed_gate_and_use_the_next_one() -> None:
    result = run(Setup(method="gate", requests=4 * REQUESTS, disturbance="gate"))
    assert [(row.completed, row.failed) for row in result.classes] == [(4 * EACH, 0)] * len(CLASS_NAMES)


def test_a_class_without_requests_has_no_response_times_and_delays_no_other() -> None:
    result = run(Setup(method="gate", requests=REQUESTS, disturbance="silent"))
    assert [row.completed for row in result.classes] == [EACH, EACH, 0, EACH, EACH]
    assert (result.classes[2].mean_us, result.classes[2].max_us, result.classes[2].longest_wait_us) == (None,) * 3


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
@pytest.mark.parametrize("method", ["gate", pytest.param("cgroup", marks=needs_root)])
def test_a_killed_workload_leaves_no_processes_or_cgroups(
    method: ClassesMethod, signal_number: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("killed")  # short, as the path of a socket is
    command = [
        sys.executable,
        "-m",
        "coresteer_agent",
        "workload",
        "classes",
        "--method",
        method,
        "--requests",
        "10000",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"TMPDIR": str(folder)}) as workload:
        try:
            processes = until_it_serves(workload)
        finally:
            workload.send_signal(signal_number)
        _, alive = psutil.wait_procs(processes, timeout=PATIENCE_S)
    assert alive == []
    poll(lambda: not cgroups_of(workload.pid))


def until_it_serves(workload: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return its processes, as soon as its servers have children."""

    def check() -> None:
        assert workload.poll() is None, "it ended by itself"

    parent = psutil.Process(workload.pid)
    poll(lambda: any(child.children() for child in parent.children()), timeout_s=60, check=check)
    return parent.children(recursive=True)


def test_the_command_prints_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "classes", "--requests", "1", "--seed", "7", "-o", "json"]) == 0
    result = msgspec.json.decode(capsys.readouterr().out, type=Result)
    assert result.setup == Setup(method="default", requests=1, seed=7)
    assert result.all.completed == THREADS_PER_CLASS * len(CLASS_NAMES)


def test_an_argument_out_of_bounds_is_refused_with_its_bound(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "classes", "--requests", "0"]) == 2
    assert "requests" in (error := capsys.readouterr().err) and ">= 1" in error


def test_one_cpu_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    with pytest.raises(WorkloadError, match="one CPU only"):
        run(Setup(method="default", requests=1))
    monkeypatch.undo()
