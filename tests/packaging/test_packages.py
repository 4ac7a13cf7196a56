"""The packages as far as they can be checked without building them; tests/packaging/cycle.py installs them."""

import importlib.util
import re
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from coresteer.config import REPOSITORY, Config
from coresteer_agent.config_file import ConfigFile

PACKAGES = REPOSITORY / "packaging/packages"
ROLES = ("agent", "backend")


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_packages", PACKAGES / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("role", ROLES)
def test_a_package_keeps_its_configuration_and_its_scripts_are_valid(role: str) -> None:
    described = (PACKAGES / role / "nfpm.yaml").read_text()
    assert re.findall(r"dst: (\S+), type: config\|noreplace", described) == [f"/etc/coresteer/{role}.toml"]
    scripts = dict(re.findall(r"^  (\w+): (\S+\.sh)$", described, re.MULTILINE))
    assert set(scripts) == {"postinstall", "preremove", "postremove"}
    for script in scripts.values():
        subprocess.run(["sh", "-n", REPOSITORY / script], check=True)


def test_the_configuration_that_a_package_installs_is_valid() -> None:
    text = re.sub("^#([a-z[])", r"\1", (PACKAGES / "agent/agent.toml").read_text(), flags=re.MULTILINE)
    assert msgspec.convert(tomllib.loads(text), ConfigFile).labels == {"rack": "r01"}
    text = re.sub("^#([a-z])", r"\1", (PACKAGES / "backend/backend.toml").read_text(), flags=re.MULTILINE)
    assert Config(**tomllib.loads(text)).state_dir == Path("/var/lib/coresteer-backend")


@pytest.mark.parametrize("role", ROLES)
def test_a_unit_starts_the_program_of_its_package(build: ModuleType, role: str) -> None:
    package = {each.role: each for each in (build.AGENT, build.BACKEND)}[role]
    unit = (REPOSITORY / f"packaging/systemd/{package.name}.service").read_text()
    assert f"\nExecStart=/usr/bin/{package.program} " in unit


@pytest.mark.parametrize("role", ROLES)
def test_manual_page_and_completions_have_every_command(build: ModuleType, role: str, tmp_path: Path) -> None:
    package = {each.role: each for each in (build.AGENT, build.BACKEND)}[role]
    texts = build.descriptions(package)
    assert len(texts) == 4
    commands = {"agent": ["accept-lost-journal"], "backend": ["enrolment-token", "predict-outcomes", "roll-back"]}[role]
    for text in texts.values():
        for command in commands:
            assert command in text.replace("\\-", "-")
