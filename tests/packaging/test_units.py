"""The systemd units: what each may do, rated by systemd itself."""

import re
import shutil
import subprocess

import pytest

from coresteer.config import REPOSITORY
from coresteer_agent.linux.capabilities import NEEDED

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
