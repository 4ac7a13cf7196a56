import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresteer_core.cpuset import MAX_CPUS, CpuListError, format_cpu_list, parse_cpu_list, parse_cpu_mask

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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", set()),
        ("\n", set()),
        ("3", {3}),
        ("0-3,8\n", {0, 1, 2, 3, 8}),
        ("8, 0-1", {0, 1, 8}),
        ("0-15:2/4", {0, 1, 4, 5, 8, 9, 12, 13}),
        ("1-1", {1}),
    ],
)
def test_what_the_kernel_writes_is_read(text: str, expected: set[int]) -> None:
    assert parse_cpu_list(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a", "“a” is not a CPU"),
        ("3-1", "write 1-3"),
        ("0-9999", "CPU 9999 is beyond"),
        ("8192", "beyond"),
        (",", "is not a CPU"),
        ("0,,1", "is not a CPU"),
        ("-1", "is not a CPU"),
        ("1-", "is not a CPU"),
        ("0-7:0/4", "stride"),
        ("0-7:5/4", "stride"),
        ("٣", "is not a CPU"),
        ("0x1", "is not a CPU"),
        ("1" * 5000, "is not a CPU"),
    ],
)
def test_what_is_no_cpu_list_is_refused_with_the_part_that_is_wrong(text: str, says: str) -> None:
    with pytest.raises(CpuListError, match=says):
        parse_cpu_list(text)


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
