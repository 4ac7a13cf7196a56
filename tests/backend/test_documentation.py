"""The documents: their commands exist with these options, and every setting of the backend is described."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from coresteer.cli.main import _parser as backend_parser
from coresteer.config import REPOSITORY, Config
from coresteer_agent.__main__ import _parser as agent_parser
from coresteer_agent.config_file import ConfigFile

OTHERS = ("README.md", "CONTRIBUTING.md", "examples/gitops/README.md")
DOCUMENTS = [*(REPOSITORY / name for name in OTHERS), *sorted((REPOSITORY / "docs").glob("*.md"))]
PROGRAM = re.compile(r"(?:\S*/)?(coresteer|coresteer-agent)")


def commands(text: str) -> Iterator[list[str]]:
    """The words of each command of ours in a document's code blocks, without assignments, comments and pipes."""
    for block in re.findall(r"^ *```(?:sh|console)?\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.replace("…", ""), comments=True) if line.count("'") % 2 == 0 else []
            while words and (re.fullmatch(r"[A-Z_]+=.*", words[0]) or words[0] in ("sudo", "exec")):
                words.pop(0)
            ends = [index for index, word in enumerate(words) if word in ("|", "&&", ";", "<", ">", "&")]
            words = words[: min(ends, default=len(words))]
            if words and PROGRAM.fullmatch(words[0]):
                yield words


FOUND = [(document.name, words) for document in DOCUMENTS for words in commands(document.read_text(encoding="utf-8"))]


def test_the_documents_have_commands() -> None:
    assert len(FOUND) > 20


@pytest.mark.parametrize(("document", "words"), FOUND, ids=[f"{name}: {' '.join(words)}" for name, words in FOUND])
def test_a_command_of_the_documents_exists_with_its_options(
    document: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    match = PROGRAM.fullmatch(words[0])
    assert match is not None
    try:
        parser = backend_parser() if match[1] == "coresteer" else agent_parser(words[1:])
        parser.parse_args(words[1:])
    except SystemExit as ended:
        assert ended.code == 0, f"{document}: {capsys.readouterr().err}"


def test_every_setting_of_the_backend_is_documented() -> None:
    text = Path(REPOSITORY / "docs/CONFIGURATION.md").read_text(encoding="utf-8")
    internal = {"supervised", "agent_root", "frontend_dir", "migrations_dir"}
    names = {
        "database_url": "DATABASE_URL",
        "pg_bin": "PG_BIN",
    }
    expected = {names.get(name, f"CORESTEER_{name.upper()}") for name in Config.model_fields if name not in internal}
    assert {name for name in expected if f"`{name}`" not in text} == set()


def test_every_setting_of_the_agents_file_is_documented() -> None:
    table = Path(REPOSITORY / "docs/CONFIGURATION.md").read_text(encoding="utf-8").partition("## The agent")[2]
    assert {name for name in ConfigFile.__struct_fields__ if f"| `{name}` |" not in table} == set()
