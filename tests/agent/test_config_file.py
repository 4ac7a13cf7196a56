from pathlib import Path

import pytest

from coresteer_agent.__main__ import _config, _parser
from coresteer_agent.config import Config, ConfigError

FILE = """
backend = ["https://one.example", "https://two.example"]
interval = 2.0
name = "db-1"
token_file = "/etc/coresteer/token"
[labels]
rack = "r01"
"""
VARIABLES = ("CORESTEER_BACKEND", "CORESTEER_LABELS", "CORESTEER_LOAD_OPTION_PORTS", "CORESTEER_NODE_NAME")


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def configured(path: Path, *arguments: str) -> Config:
    return _config(_parser().parse_args(["run", "--config", str(path), *arguments]))


def test_the_file_says_what_neither_an_option_nor_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(FILE)
    of_file = configured(path)
    assert of_file.backends == ("https://one.example", "https://two.example")
    assert (of_file.interval_s, of_file.name, of_file.labels) == (2.0, "db-1", {"rack": "r01"})
    assert of_file.token_file == Path("/etc/coresteer/token")
    monkeypatch.setenv("CORESTEER_BACKEND", "https://three.example")
    monkeypatch.setenv("CORESTEER_LABELS", "rack=r02")
    monkeypatch.setenv("CORESTEER_NODE_NAME", "db-2")
    of_environment = configured(path)
    assert (of_environment.backends, of_environment.name) == (("https://three.example",), "db-2")
    assert of_environment.labels == {"rack": "r02"}
    of_options = configured(path, "--backend", "https://four.example", "--name", "db-3", "--label", "rack=r03")
    assert (of_options.backends, of_options.name) == (("https://four.example",), "db-3")
    assert of_options.labels == {"rack": "r03"}


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    found = configured(tmp_path / "none.toml")
    assert (found.backends, found.interval_s, found.labels) == (("http://127.0.0.1:8420",), 1.0, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('nmae = "a"', "unknown field `nmae`"),
        ("interval = 0.0", "0.1 to 60 seconds"),
        ("backend = ", "Invalid value"),
        ('backend = "http://far.example"', "http is not encrypted"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        configured(path)
