import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresteer_core.settings import IrqAffinity, SettingError, parse_setting


@given(st.integers(0, 9_999_999))
def test_a_setting_is_found_again_by_its_key(irq: int) -> None:
    setting = parse_setting(IrqAffinity(irq).key)
    assert setting == IrqAffinity(irq)
    assert setting.path == f"proc/irq/{irq}/smp_affinity_list"


@pytest.mark.parametrize(
    "key",
    ["", "irq/41", "irq/041/affinity", "irq/-1/affinity", "irq/41/affinity\n", "irq/../affinity", "/irq/41/affinity",
     "irq/12345678/affinity", "irq/٣/affinity", "IRQ/41/affinity", "sysctl/kernel.panic"],
)  # fmt: skip
def test_a_key_that_is_not_exactly_a_settings_is_refused(key: str) -> None:
    with pytest.raises(SettingError, match="not a setting Coresteer knows"):
        parse_setting(key)


def test_a_value_has_one_canonical_form() -> None:
    setting = IrqAffinity(41)
    assert {setting.canonical(text) for text in ("3,2", "2-3", " 2-3\n", "2,2,3")} == {"2-3"}
    assert setting.shell("2-3") == "echo 2-3 > /proc/irq/41/smp_affinity_list"


@pytest.mark.parametrize(("value", "says"), [("", "at least one CPU"), ("3-1", "backwards"), ("x", "not a CPU")])
def test_a_value_the_kernel_could_not_take_is_refused(value: str, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        IrqAffinity(41).canonical(value)
