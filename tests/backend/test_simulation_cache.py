"""The cache of the compiled engine: in the first folder that is writable, and without one the engine works as well."""

import tempfile
from pathlib import Path

import pytest

from coresteer.simulation import compiled

NOWHERE = Path("/dev/null/folder")
"""Not even root can make it."""


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder for temporary files, while that of the package and the user's home are not writable."""
    monkeypatch.setattr(compiled, "_BESIDE", NOWHERE)
    monkeypatch.setenv("HOME", str(NOWHERE))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_in_the_package_else_in_the_home_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(compiled, "_BESIDE", tmp_path / "package")
    beside = compiled._cache_folder()
    monkeypatch.setattr(compiled, "_BESIDE", NOWHERE)
    in_home = compiled._cache_folder()
    assert beside is not None
    assert in_home is not None
    assert (beside.parent, in_home.parent) == (tmp_path / "package", tmp_path / "home/.cache/coresteer")
    assert beside.name == in_home.name


def test_it_is_temporary_where_neither_is_writable(temporary: Path) -> None:
    folder = compiled._cache_folder()
    assert folder is not None
    assert folder.parent.parent == temporary
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert compiled._cache_folder() == folder, "it is used again"


def test_a_temporary_folder_that_others_can_write_is_not_used(temporary: Path) -> None:
    made = compiled._cache_folder()
    assert made is not None
    made.parent.chmod(0o777)
    assert compiled._cache_folder() is None


def test_a_temporary_folder_that_is_a_link_is_not_used(temporary: Path) -> None:
    made = compiled._cache_folder()
    assert made is not None
    made.parent.rename(temporary / "elsewhere")
    made.parent.symlink_to(temporary / "elsewhere")
    assert compiled._cache_folder() is None


def test_without_any_folder_a_function_is_compiled_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_CACHE", None)

    def double(value: int) -> int:
        return 2 * value

    assert compiled.compiled(double)(21) == 42
