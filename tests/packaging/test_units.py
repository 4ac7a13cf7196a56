"""The systemd units: what each may do, rated by systemd itself."""

import re
import shutil
import subprocess
from pathlib import PurePosixPath

import pytest
import yaml

from coresteer.config import REPOSITORY
from coresteer_agent.linux.capabilities import NEEDED
from coresteer_agent.linux.ethtool import WRITE_TIMEOUT_S

UNITS = REPOSITORY / "packaging/systemd"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize(("unit", "most"), [("coresteer-backend", 2.0), ("coresteer-agent", 4.5)])
def test_the_exposure_of_a_unit_stays_low(unit: str, most: float) -> None:
    file = UNITS / f"{unit}.service"
    argv = ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={most * 10:.0f}", str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"more exposed than {most}:\n{done.stdout}{done.stderr}"


def test_the_agents_unit_has_the_capabilities_that_the_agent_keeps() -> None:
    unit = (UNITS / "coresteer-agent.service").read_text()
    (line,) = re.findall("^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    assert line.split() == list(NEEDED)


def test_whatever_stops_the_agent_gives_it_the_time_of_a_rollback() -> None:
    container = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]["agent"]
    found = [
        re.findall(r"^TimeoutStopSec=(\d+)$", (UNITS / "coresteer-agent.service").read_text(), re.MULTILINE),
        re.findall(r"^(\d+)s$", container["stop_grace_period"]),
        re.findall(
            r"terminationGracePeriodSeconds: (\d+)$",
            (REPOSITORY / "packaging/helm/coresteer/templates/agent.yaml").read_text(),
            re.MULTILINE,
        ),
    ]
    assert found == [["120"]] * 3
    assert 5 * WRITE_TIMEOUT_S < 120


def test_the_container_of_the_agent_has_the_namespaces_that_it_observes() -> None:
    container = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]["agent"]
    assert (container["network_mode"], container["pid"], container["cgroup"]) == ("host", "host", "host")


def test_the_service_may_write_the_export_of_the_audit_log_that_the_documents_name() -> None:
    unit = (UNITS / "coresteer-backend.service").read_text()
    (folder,) = re.findall("^LogsDirectory=(.*)$", unit, re.MULTILINE)
    (file,) = re.findall('audit_export = "(.*)"', (REPOSITORY / "docs/INSTALL.md").read_text())
    assert PurePosixPath(file).parent == PurePosixPath("/var/log") / folder


def test_a_load_that_exceeds_the_units_memory_ends_without_the_agent() -> None:
    unit = (UNITS / "coresteer-agent.service").read_text()
    assert re.findall("^(MemoryMax|OOMPolicy)=(.*)$", unit, re.MULTILINE) == [
        ("MemoryMax", "2G"),
        ("OOMPolicy", "continue"),
    ]
