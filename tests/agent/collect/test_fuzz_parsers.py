"""A small, repeatable version of tests/bench/bench_fuzz_parsers.py."""

from pathlib import Path

import pytest
from tests.fixtures.large_tree import LargeTree
from tests.support.parser_fuzz import fuzz_texts, fuzz_tree, text_parsers

import coresteer_agent


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> LargeTree:
    return LargeTree(tmp_path_factory.mktemp("fuzzed") / "machine", cpus=4, irqs=48, processes=2)


def test_every_parser_takes_its_captured_text(machine: LargeTree) -> None:
    for parse, texts in text_parsers(machine.root).values():
        for text in texts:
            parse(text)


def test_a_mutated_text_is_parsed_or_refused(machine: LargeTree) -> None:
    assert fuzz_texts(20_000, 19, machine.root).unexpected == {}


def test_an_agent_has_something_to_send_of_a_tree_with_mutated_files(machine: LargeTree) -> None:
    assert fuzz_tree(40, 19, machine).unexpected == {}


def test_no_parser_of_kernel_files_ends_a_line_before_its_newline() -> None:
    """The name of a process or cgroup may contain any other character at which splitlines() splits."""
    agent = Path(coresteer_agent.__file__).parent
    sources = [file for part in ("collect", "linux", "observe", "apply") for file in (agent / part).glob("*.py")]
    assert sources
    assert [file.name for file in sources if "splitlines" in file.read_text()] == []
