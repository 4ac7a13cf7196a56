"""Conditions of the machine that change how fast it is: frequency, idle states, SMT, mitigations, microcode."""

from pathlib import Path

from coresteer_agent.collect.files import list_numbered, names, read_text

_CPU = "sys/devices/system/cpu"
_FILES = {
    "idle driver": f"{_CPU}/cpuidle/current_driver",
    "smt": f"{_CPU}/smt/control",
    "microcode": f"{_CPU}/cpu0/microcode/version",
    "boost": f"{_CPU}/cpufreq/boost",
    "no_turbo": f"{_CPU}/intel_pstate/no_turbo",
}
_MAX_POLICIES = 64


def read_conditions(root: Path) -> dict[str, str]:
    """Return conditions by name, as the kernel spells their values; those that the machine does not have are missing.

    governor: of the CPUs' frequency, several if they differ. deepest idle state: the last one of CPU 0 that is enabled.
    vulnerable: names of hardware vulnerabilities that the kernel does not mitigate.
    """
    found = {name: read_text(root, path) for name, path in _FILES.items()}
    found["governor"] = _governors(root)
    found["deepest idle state"] = _deepest_idle_state(root)
    found["vulnerable"] = _vulnerable(root)
    return {name: value for name, value in sorted(found.items()) if value is not None}


def _governors(root: Path) -> str | None:
    policies = list_numbered(root, f"{_CPU}/cpufreq", "policy")[:_MAX_POLICIES]
    found = {read_text(root, f"{_CPU}/cpufreq/policy{policy}/scaling_governor") for policy in policies} - {None}
    return ", ".join(sorted(name for name in found if name is not None)) or None


def _deepest_idle_state(root: Path) -> str | None:
    path = f"{_CPU}/cpu0/cpuidle"
    enabled = [
        read_text(root, f"{path}/state{state}/name")
        for state in list_numbered(root, path, "state")
        if read_text(root, f"{path}/state{state}/disable") != "1"
    ]
    return enabled[-1] if enabled else None


def _vulnerable(root: Path) -> str | None:
    path = f"{_CPU}/vulnerabilities"
    states = {name: read_text(root, f"{path}/{name}") for name in sorted(names(root, path))}
    if not states:
        return None
    return ", ".join(name for name, state in states.items() if (state or "").startswith("Vulnerable")) or "none"
