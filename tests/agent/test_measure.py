"""What only an experiment asks the kernel."""

import os
from pathlib import Path

import pytest

from coresteer_agent.runtime.meter import (
    Meter,
    MigrationCounter,
    parse_context_switches,
    parse_numastat,
    parse_pages_moved,
    read_numa_pages,
)
from coresteer_core.experiments.run_metrics import run_result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"cpu  1 2\nintr 5 0 0\nctxt 123456\nbtime 1\n", 123456),
        (b"cpu  1 2\n", None),
        (b"ctxt \n", None),
        (b"", None),
    ],
)
def test_context_switches_are_parsed(text: bytes, expected: int | None) -> None:
    assert parse_context_switches(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"numa_hit 9\nlocal_node 7\nother_node 2\n", (7, 2)),
        (b"numa_hit 9\nlocal_node 7\n", None),
        (b"\n", None),
    ],
)
def test_pages_of_a_numa_node_are_read(text: bytes, expected: tuple[int, int] | None) -> None:
    assert parse_numastat(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"nr_free_pages 5\npgmigrate_success 4096\npgmigrate_fail 3\n", 4096),
        (b"pgmigrate_success \n", None),
        (b"nr_free_pages 5\n", None),
        (b"", None),
    ],
)
def test_moved_pages_are_parsed(text: bytes, expected: int | None) -> None:
    assert parse_pages_moved(text) == expected


@pytest.mark.parametrize(("nodes", "expected"), [(0, None), (1, None), (2, (14, 4))])
def test_a_machine_with_one_numa_node_has_no_remote_pages(
    nodes: int, expected: tuple[int, int] | None, tmp_path: Path
) -> None:
    for node in range(nodes):
        folder = tmp_path / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "numastat").write_text("local_node 7\nother_node 2\n")
    assert read_numa_pages(tmp_path) == expected


def test_a_task_that_is_moved_to_another_cpu_is_counted() -> None:
    counter = MigrationCounter()
    before = counter.read()
    if before is None:
        pytest.skip("the kernel does not let this account count migrations")
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        pytest.skip("there is one CPU only")
    try:
        for cpu in (first, others[0], first):
            os.sched_setaffinity(0, {cpu})
    finally:
        os.sched_setaffinity(0, {first, *others})
    after = counter.read()
    counter.close()
    assert after is not None
    assert after >= before + 2
    assert counter.read() is None


def test_this_machine_is_measured() -> None:
    meter = Meter(Path("/"))
    before = meter.read()
    os.sched_yield()
    run = run_result(before, meter.read(), irqs={}, load={}, load_before=0)
    meter.close()
    assert run.duration_s > 0
    assert {"context_switches_per_s", "packets_per_s", "squeezed_per_s"} <= run.figures.keys()
