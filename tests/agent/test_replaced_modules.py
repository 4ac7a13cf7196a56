"""Imports with modules replaced."""

import sys

import pytest

from coresteer_agent.replaced_modules import replaced_modules

NAMES = ("this", "colorsys")


@pytest.fixture(autouse=True)
def unload(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_an_import_gets_the_given_attributes_and_loads_nothing() -> None:
    with replaced_modules({"this": {"given": 1}}):
        from this import given  # type: ignore[attr-defined]  # given above
    assert (given, "this" in sys.modules) == (1, False)


def test_another_attribute_is_that_of_the_real_module() -> None:
    with replaced_modules({"colorsys": {}}):
        import colorsys
    assert "colorsys" not in sys.modules
    assert colorsys.rgb_to_hsv(0.0, 0.0, 0.0) == (0.0, 0.0, 0.0)
    assert sys.modules["colorsys"] is not colorsys


def test_a_module_that_is_loaded_is_not_replaced() -> None:
    with replaced_modules({"sys": {"given": 1}}):
        import sys as found
    assert found is sys
    assert not hasattr(sys, "given")
