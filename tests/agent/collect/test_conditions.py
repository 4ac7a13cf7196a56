"""Conditions of the machine, from made-up trees."""

from pathlib import Path

import pytest

from coresteer_agent.collect.conditions import read_conditions

CPU = "sys/devices/system/cpu"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        pytest.param({}, {}, id="nothing is known"),
        pytest.param({f"{CPU}/smt/control": "on"}, {"smt": "on"}, id="SMT"),
        pytest.param(
            {f"{CPU}/cpufreq/policy{n}/scaling_governor": "powersave" for n in range(4)},
            {"governor": "powersave"},
            id="one governor",
        ),
        pytest.param(
            {
                f"{CPU}/cpufreq/policy0/scaling_governor": "powersave",
                f"{CPU}/cpufreq/policy8/scaling_governor": "performance",
            },
            {"governor": "performance, powersave"},
            id="governors that differ",
        ),
        pytest.param(
            {
                f"{CPU}/cpu0/cpuidle/state{n}/{file}": value
                for n, (name, disable) in enumerate([("POLL", "0"), ("C1", "0"), ("C6", "1")])
                for file, value in (("name", name), ("disable", disable))
            },
            {"deepest idle state": "C1"},
            id="a disabled idle state",
        ),
        pytest.param(
            {
                f"{CPU}/vulnerabilities/meltdown": "Not affected",
                f"{CPU}/vulnerabilities/spectre_v2": "Vulnerable, IBPB: disabled",
                f"{CPU}/vulnerabilities/mds": "Vulnerable",
                f"{CPU}/vulnerabilities/srbds": "Mitigation: Microcode",
            },
            {"vulnerable": "mds, spectre_v2"},
            id="mitigations off",
        ),
        pytest.param(
            {f"{CPU}/vulnerabilities/meltdown": "Mitigation: PTI", f"{CPU}/cpu0/microcode/version": "0x2007006"},
            {"vulnerable": "none", "microcode": "0x2007006"},
            id="mitigated",
        ),
    ],
)
def test_conditions_are_what_the_kernel_says(tmp_path: Path, files: dict[str, str], found: dict[str, str]) -> None:
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    assert read_conditions(tmp_path) == found
