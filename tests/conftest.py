"""What holds for every test."""

import os

import pytest
from hypothesis import HealthCheck, settings

from coresteer_agent.collect.rows import forget_dropped_rows

# How long an example takes says how busy the machine is; speed is measured by the benches. Fewer examples than
# hypothesis' own hundred keep all of CI well under its 25 minutes. In CI the examples are the same in every run, as
# hypothesis' own CI profile has them: a change fails for what it did, and a rare example is found on a developer's run.
settings.register_profile(
    "coresteer",
    max_examples=40,
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("coresteer")

LONG_S = 10.0


@pytest.fixture(autouse=True)
def _no_dropped_rows() -> None:
    """An agent begins without reports of dropped rows, and so does each test."""
    forget_dropped_rows()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List tests that took longer than LONG_S without a slow marker. It fails none: time depends on the machine."""
    for report in terminalreporter.getreports("passed"):
        if report.when == "call" and report.duration > LONG_S and "slow" not in report.keywords:
            terminalreporter.write_line(f"{report.nodeid} took {report.duration:.0f} s: shorten it or mark it slow.")
