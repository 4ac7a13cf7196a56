"""Import rules that import-linter (pyproject.toml, tool.importlinter) cannot state: third-party modules, start-up."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def imported(source: Path) -> Iterator[str]:
    """Top-level names of what a module imports, wherever in it."""
    for node in ast.walk(ast.parse(source.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source} imports relatively; the rules are checked by full names"
            yield (node.module or "").partition(".")[0]


STANDARD = set(sys.stdlib_module_names)
CORE = STANDARD | {"msgspec", "coresteer_core"}
AGENT = CORE | {"psutil", "pyudev", "websockets", "coresteer_agent"}


@pytest.mark.parametrize(
    ("folder", "least", "allowed"),
    [
        ("agent/coresteer-core/coresteer_core", 6, CORE),
        ("agent/coresteer_agent", 6, AGENT),
        ("agent/coresteer-gate/coresteer_gate", 2, STANDARD | {"coresteer_gate"}),
    ],
    ids=["core", "agent", "gate"],
)
def test_what_goes_onto_nodes_imports_only_what_the_design_allows(folder: str, least: int, allowed: set[str]) -> None:
    sources = sorted((ROOT / folder).rglob("*.py"))
    assert len(sources) >= least
    strange = {str(s.relative_to(ROOT)): extra for s in sources if (extra := set(imported(s)) - allowed)}
    assert strange == {}


def test_agent_and_backend_depend_on_the_core_and_not_on_each_other() -> None:
    for folder in ("agent", "backend"):
        needs = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]["dependencies"]
        assert "coresteer-core" in needs
        assert not {"coresteer-agent", "coresteer"} & set(needs)


IMPURE = {
    "os",
    "socket",
    "time",
    "random",
    "subprocess",
    "threading",
    "asyncio",
    "pathlib",
    "io",
    "logging",
    "datetime",
}


def test_the_core_has_neither_clock_nor_files_nor_chance() -> None:
    sources = sorted((ROOT / "agent/coresteer-core/coresteer_core").rglob("*.py"))
    assert {str(s.relative_to(ROOT)): bad for s in sources if (bad := set(imported(s)) & IMPURE)} == {}


def test_the_agents_loop_loads_neither_asyncio_nor_numpy() -> None:
    program = (
        "import sys, coresteer_agent.runtime.loop, coresteer_gate\n"
        "print(sorted({'asyncio', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


def test_the_command_line_loads_only_what_a_subcommand_needs() -> None:
    program = (
        "import sys; from coresteer_agent.__main__ import main; main(['restore', '--state-dir', '/nonexistent'])\n"
        "print(sorted({'websockets', 'ssl', 'pyudev', 'psutil', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_running_agent_loads_no_modules_that_it_can_do_without() -> None:
    program = (
        "import sys, coresteer_agent.__main__, coresteer_agent.runtime.loop\n"
        "from coresteer_agent.linux.hotplug import HotplugMonitor\n"
        "try: HotplugMonitor()\n"
        "except OSError: pass\n"
        "unused = {'ast', 'importlib.metadata', 'inspect', 'subprocess', 'tomllib'}\n"
        "print(sorted(unused & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
