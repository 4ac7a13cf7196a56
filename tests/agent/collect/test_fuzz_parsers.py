"""A small, repeatable version of tests/bench/bench_fuzz_parsers.py."""

import pytest
from tests.fixtures.large_tree import LargeTree
from tests.support.parser_fuzz import fuzz_texts, fuzz_tree, text_parsers


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
