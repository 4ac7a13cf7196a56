import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresteer_core import cpuset
from coresteer_core.cpuset import (
    MAX_CPUS,
    CpuListError,
    check_cpu_list,
    format_cpu_list,
    parse_cpu_list,
    parse_cpu_mask,
    shortest_cpu_list,
)

VECTORS = json.loads((Path(__file__).parents[1] / "fixtures/cpulist.json").read_text(encoding="utf-8"))
"""Test vectors that frontend/src/lib/cpulist.test.ts uses too."""

cpus = st.frozensets(st.integers(0, MAX_CPUS - 1), max_size=200)


@given(cpus)
def test_a_set_of_cpus_survives_being_written_and_read(chosen: frozenset[int]) -> None:
    assert parse_cpu_list(format_cpu_list(chosen)) == chosen


@given(cpus)
def test_the_written_form_is_its_own_shortest(chosen: frozenset[int]) -> None:
    text = format_cpu_list(chosen)
    assert format_cpu_list(parse_cpu_list(text)) == text
    assert len(text) <= len(",".join(map(str, sorted(chosen))))


@given(cpus)
def test_a_mask_in_groups_of_eight_digits_names_the_same_cpus(chosen: frozenset[int]) -> None:
    digits = f"{sum(1 << cpu for cpu in chosen):x}"
    digits = digits.zfill(-(-len(digits) // 8) * 8)
    assert parse_cpu_mask(",".join(digits[at : at + 8] for at in range(0, len(digits), 8))) == chosen


@pytest.mark.parametrize("vector", VECTORS["parse"], ids=lambda vector: repr(vector["text"]))
def test_a_cpu_list_is_parsed_as_by_the_kernel(vector: dict[str, Any]) -> None:
    assert sorted(parse_cpu_list(vector["text"])) == vector["cpus"]


@pytest.mark.parametrize("vector", VECTORS["refuse"], ids=lambda vector: repr(vector["text"]))
def test_an_invalid_cpu_list_is_rejected_with_its_invalid_part(vector: dict[str, Any]) -> None:
    with pytest.raises(CpuListError) as error:
        parse_cpu_list(vector["text"])
    assert str(error.value) == vector["message"]


@pytest.mark.parametrize("vector", VECTORS["format"], ids=lambda vector: vector["text"])
def test_cpus_are_formatted_as_the_shortest_list(vector: dict[str, Any]) -> None:
    assert format_cpu_list(vector["cpus"]) == vector["text"]


ranges = st.tuples(st.integers(0, 40), st.integers(0, 9), st.sampled_from(["", ":1/1", ":1/3", ":2/3"])).map(
    lambda it: f"{it[0]}-{it[0] + it[1]}{it[2]}"
)


@given(st.lists(ranges, max_size=8).map(",".join))
def test_a_list_is_shortened_without_expanding_it(text: str) -> None:
    assert shortest_cpu_list(text) == format_cpu_list(parse_cpu_list(text))
    assert check_cpu_list(text) >= len(parse_cpu_list(text))


def test_the_lists_that_a_peer_sends_do_not_fill_the_memory() -> None:
    for first in range(300):
        parse_cpu_list(f"{first}-{MAX_CPUS - 1}")
    assert sum(map(len, cpuset._parsed.values())) <= 64 * MAX_CPUS
    assert parse_cpu_list("0-1") is parse_cpu_list("0-1")


@given(st.text(max_size=60))
def test_any_text_is_a_set_of_cpus_or_a_cpu_list_error(text: str) -> None:
    try:
        assert all(0 <= cpu < MAX_CPUS for cpu in parse_cpu_list(text))
    except CpuListError as error:
        assert str(error).endswith((".", ")."))


@pytest.mark.parametrize("text", ["g", "0x", "1,z", "-1", "1_0"])
def test_what_is_no_mask_is_refused(text: str) -> None:
    with pytest.raises(CpuListError, match="hexadecimal"):
        parse_cpu_mask(text)
