"""Memory of cgroups by NUMA node, and when it is the memory of one process."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresteer_agent.collect.cgroup_memory import parse_numa_stat, read_headroom, read_only_process_memory
from coresteer_agent.collect.errors import ParseError

STAT = b"anon N0=1048576 N1=4096\nfile N0=0 N1=8192\nfile_mapped N0=0 N1=0\n"


def test_bytes_are_parsed_by_node_and_kind() -> None:
    assert parse_numa_stat(STAT, "numa_stat")["anon"] == {0: 1_048_576, 1: 4096}
    assert parse_numa_stat(b"anon N0=1\nfile N0:1\n", "numa_stat") == {"anon": {0: 1}}
    with pytest.raises(ParseError, match="line 1"):
        parse_numa_stat(b"file N0:1\n", "numa_stat")


@given(st.one_of(st.integers(0, len(STAT)).map(lambda cut: STAT[:cut]), st.binary(max_size=60)))
def test_any_text_is_parsed_or_refused(text: bytes) -> None:
    try:
        assert parse_numa_stat(text, "numa_stat").get("anon", {}).keys() <= set(range(8192))
    except ParseError as error:
        assert str(error)


STATUS = (
    "VmRSS:\t 1100 kB\nRssAnon:\t    1028 kB\nRssFile:\t      64 kB\nRssShmem:\t       0 kB\nHugetlbPages:\t 0 kB\n"
)
FILES: dict[str, str | None] = {
    "job/memory.numa_stat": STAT.decode(),
    "job/cgroup.procs": "812\n",
    "job/cgroup.stat": "nr_descendants 0\n",
}
OTHERS: dict[str, tuple[dict[str, str | None], dict[int, int] | None]] = {
    "the memory of its only process": ({}, {0: 1_048_576, 1: 4096}),
    "another process in it": ({"job/cgroup.procs": "812\n813\n"}, None),
    "cgroups below": ({"job/cgroup.stat": "nr_descendants 1\n"}, None),
    "no memory controller": ({"job/memory.numa_stat": None}, None),
    "pages charged elsewhere": ({"job/memory.numa_stat": "anon N0=4096 N1=0\n"}, None),
    "pages left by an earlier process": ({"job/memory.numa_stat": "anon N0=1048576 N1=1048576\n"}, None),
    "much shared memory": ({"status": STATUS.replace("64 kB", "6400 kB")}, None),
    "huge pages": ({"status": STATUS.replace("HugetlbPages:\t 0", "HugetlbPages:\t 2048")}, None),
    "a process that ended": ({"status": None}, None),
    "nothing": ({"job/memory.numa_stat": "anon N0=0 N1=0\n"}, None),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_cgroup_counts_the_memory_of_a_process_only_if_both_agree(tmp_path: Path, name: str) -> None:
    changes, expected = OTHERS[name]
    for path, text in {"status": STATUS, **FILES, **changes}.items():
        file = tmp_path / ("proc/812/status" if path == "status" else f"sys/fs/cgroup/{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            file.write_text(text)
    assert read_only_process_memory(tmp_path, "/job", 812) == expected
    assert read_only_process_memory(tmp_path, "/", 812) is None


def test_memory_is_left_within_the_limits_of_a_processs_own_cgroup_and_those_above_it(tmp_path: Path) -> None:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    write("proc/self/cgroup", "0::/a.slice/b.service\n")
    write("sys/fs/cgroup/a.slice/b.service/memory.max", "max\n")
    write("sys/fs/cgroup/a.slice/b.service/memory.current", "300\n")
    assert read_headroom(tmp_path) == sys.maxsize
    write("sys/fs/cgroup/a.slice/memory.max", "2000\n")
    write("sys/fs/cgroup/a.slice/memory.current", "500\n")
    assert read_headroom(tmp_path) == 1500
    write("sys/fs/cgroup/a.slice/b.service/memory.max", "200\n")
    assert read_headroom(tmp_path) == 0
