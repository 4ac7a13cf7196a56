"""The file in which an operator allows commands to experiments."""

import os
from pathlib import Path

import pytest

from coresteer_agent.runtime.commands import CommandsError, allowed_command


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "commands.toml"
    path.write_text('[commands]\nweb-load = ["/usr/bin/wrk", "-d10s"]\nempty = []\nrelative = ["wrk"]\n')
    path.chmod(0o600)
    tmp_path.chmod(0o700)
    return path


def test_an_allowed_command_is_its_arguments(path: Path) -> None:
    assert allowed_command(path, "web-load") == ["/usr/bin/wrk", "-d10s"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("other", "does not allow the command other"),
        ("empty", "needs the absolute path of a program"),
        ("relative", "needs the absolute path of a program"),
    ],
)
def test_a_command_that_is_not_allowed_is_refused(path: Path, name: str, sentence: str) -> None:
    with pytest.raises(CommandsError, match=sentence) as error:
        allowed_command(path, name)
    assert str(path) in str(error.value)


def test_without_a_file_nothing_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(CommandsError, match="does not allow the command x"):
        allowed_command(tmp_path / "commands.toml", "x")


@pytest.mark.parametrize(
    "text",
    ['[commands]\na = "rm -rf /"\n', "[commands\n", '[command]\na = ["/bin/true"]\n', "[commands]\na = [1]\n", "\xff"],
)
def test_an_invalid_file_allows_nothing(path: Path, text: str) -> None:
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CommandsError, match="cannot be parsed"):
        allowed_command(path, "a")


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_allows_nothing(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(CommandsError, match="can be written by others"):
        allowed_command(path, "web-load")


def test_a_folder_that_others_may_write_allows_nothing(path: Path) -> None:
    path.parent.chmod(0o777)
    with pytest.raises(CommandsError, match="can be written by others"):
        allowed_command(path, "web-load")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_account_allows_nothing(path: Path) -> None:
    os.chown(path, 65534, -1)
    with pytest.raises(CommandsError, match="belongs to another account"):
        allowed_command(path, "web-load")


def test_a_link_is_not_followed(path: Path) -> None:
    path.rename(path.with_name("real.toml"))
    path.symlink_to("real.toml")
    with pytest.raises(CommandsError, match="cannot be read"):
        allowed_command(path, "web-load")
