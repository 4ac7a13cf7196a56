"""Handover of settings to other tools: what each format can have, and texts that their parsers read."""

import configparser
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from coresteer_core.changes.handover import File, export, express
from coresteer_core.changes.handover_formats import FORMATS, FormatName, Line
from coresteer_core.settings import KINDS, Setting, SettingError, parse_setting

ROOT = Path(__file__).resolve().parents[2]
SOME_VALUES = ("1", "on", "0-1", "combined 4", "0,1", "flow-type tcp4 dst-port 80 action 3")


def value_of(setting: Setting) -> str:
    for value in SOME_VALUES:
        try:
            return setting.canonical(value)
        except SettingError:
            continue
    raise AssertionError(setting.key)


EVERY = {example.key: value_of(example) for kind in KINDS for example in kind.examples()}
MIXED = {
    "netdev/enp3s0/channels": "combined 4",
    "netdev/enp3s0/coalesce/rx-usecs": "90",
    "netdev/enp3s0/coalesce/adaptive-rx": "off",
    "netdev/eth1/ring/rx": "2048",
    "netdev/enp3s0/rx-0/rps": "0-3",
    "kernel/busy_poll": "50",
    "cgroup/web.slice/nginx.service/cpu.weight": "400",
    "irq/41/affinity": "2-3",
}


def exported(name: FormatName, values: dict[str, str], *evidence: str) -> list[File]:
    return export(name, values, "coresteer-3f0d4f5e", evidence)


def content(file: File) -> str:
    """A file without its comments."""
    return "\n".join(line for line in file.text.splitlines() if not line.startswith("#"))


def marks(key: str) -> list[bool]:
    return [isinstance(express(name, key, EVERY[key]), Line) for name in FORMATS]


def documented() -> Iterator[tuple[str, list[bool]]]:
    """Each setting of the document's table with whether a format has it."""
    text = (ROOT / "docs/HANDOVER.md").read_text(encoding="utf-8")
    for line in text.splitlines():
        first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if len(cells) == len(FORMATS) and set(cells) <= {"yes", "–"}:
            for key in re.findall(r"`([^`]+)`", first):
                yield key, [cell == "yes" for cell in cells]


def test_the_document_says_which_format_has_which_setting() -> None:
    assert dict(documented()) == {key: marks(key) for key in EVERY}


@pytest.mark.parametrize("name", FORMATS)
def test_every_setting_is_written_or_left_out_with_a_reason(name: FormatName) -> None:
    files = exported(name, EVERY)
    for key, value in EVERY.items():
        line = express(name, key, value)
        assert isinstance(line, Line) or all(f"#   {key} = {value}: {line}" in file.text for file in files)


def test_udev_rules_contain_no_character_that_udev_or_the_shell_would_interpret() -> None:
    for key, value in EVERY.items():
        line = express(FormatName.UDEV, key, value)
        assert isinstance(line, str) or not re.search(r"[\"'$%\\`]", line.value), line


def test_udev_reads_its_rules(tmp_path: Path) -> None:
    (file,) = exported(FormatName.UDEV, EVERY)
    rules = tmp_path / "90-coresteer.rules"
    rules.write_text(file.text)
    verify = [shutil.which("udevadm") or "udevadm", "verify"]
    if not shutil.which("udevadm") or subprocess.run([*verify, "--help"], capture_output=True, check=False).returncode:
        pytest.skip("udevadm verify needs systemd 254")
    subprocess.run([*verify, str(rules)], check=True)


def test_ansible_reads_its_tasks() -> None:
    (file,) = exported(FormatName.ANSIBLE, MIXED, "{{ lookup('pipe', 'id') }}")
    assert not [line for line in content(file).splitlines() if "lookup" in line]
    tasks = yaml.safe_load(file.text)
    modules = [next(name for name in task if name.startswith("ansible.builtin.")) for task in tasks]
    assert modules == [f"ansible.builtin.{name}" for name in ("copy", "command", "copy", "command", "command")]
    assert tasks[0]["ansible.builtin.copy"]["content"] == "net.core.busy_poll = 50\n"
    assert tasks[2]["ansible.builtin.copy"]["content"].count("RUN+=") == 5
    assert tasks[-1]["ansible.builtin.command"]["argv"][2:] == ["nginx.service", "CPUWeight=400"]


@pytest.mark.parametrize("name", [FormatName.TUNED, FormatName.LINK, FormatName.NETWORK_MANAGER, FormatName.SYSCTL])
def test_files_of_sections_have_no_option_twice(name: FormatName) -> None:
    for file in exported(name, MIXED):
        parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=True)
        parser.optionxform = str  # type: ignore[method-assign, assignment]  # as its documentation says
        parser.read_string(content(file) if name is not FormatName.SYSCTL else f"[all]\n{content(file)}")
        assert parser.sections()


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("netdev/eth0/rx-0/gro_flush_timeout", "1000", "only netlink"),
        ("netdev/eth0/flow-rule/7", "none", "after a reboot there is no rule"),
        ("netdev/eth0/flow-rule/7", "flow-type tcp4 dst-port 80 context 1", "ethtool numbers a new context itself"),
        ("cgroup/docker/1/cpu.weight", "400", "a cgroup is made anew"),
        ("cgroup/user.slice/user@1000.service/app.slice/cpu.weight", "400", "a cgroup is made anew"),
        ("cgroup/web.slice/cpu.shares", "400", "a cgroup is made anew"),
    ],
)
def test_what_no_tool_keeps_is_left_out(key: str, value: str, why: str) -> None:
    parse_setting(key)
    for name in FORMATS:
        (file,) = exported(name, {key: value})
        assert (file.path, content(file), why in file.text) == ("", "", True), file


@given(st.sampled_from(list(FORMATS)), st.text())
def test_no_text_leaves_its_comment(name: FormatName, text: str) -> None:
    plain, told = exported(name, MIXED), exported(name, MIXED, text)
    for before, after in zip(plain, told, strict=True):
        assert content(after) == content(before)
        assert not [line for line in after.text.splitlines() if line.startswith("#") and line.endswith("\\")]


@pytest.mark.parametrize(
    ("netdev", "match"),
    [
        ("eno1", "Property=ID_NET_NAME_ONBOARD"),
        ("end0", "Property=ID_NET_NAME_ONBOARD"),
        ("ens3f0np0", "Property=ID_NET_NAME_SLOT"),
        ("enP53091s1", "Property=ID_NET_NAME_SLOT"),
        ("enX0", "Property=ID_NET_NAME_SLOT"),
        ("enp3s0", "Property=ID_NET_NAME_PATH"),
        ("enP2p1s0", "Property=ID_NET_NAME_PATH"),
        ("ibp5s0", "Property=ID_NET_NAME_PATH"),
        ("wlp2s0", "Property=ID_NET_NAME_PATH"),
        ("enx525400123456", "Property=ID_NET_NAME_MAC"),
        ("eth0", "OriginalName"),
    ],
)
def test_a_link_file_finds_its_device_before_it_is_named(netdev: str, match: str) -> None:
    (file,) = exported(FormatName.LINK, {f"netdev/{netdev}/ring/rx": "512"})
    assert f"[Match]\n{match}={netdev}\n" in file.text


def test_a_device_that_neither_kernel_nor_systemd_names_gets_no_link_file() -> None:
    (file,) = exported(FormatName.LINK, {"netdev/lan0/ring/rx": "512"})
    assert (file.path, "neither the kernel nor systemd names" in file.text) == ("", True)


@pytest.mark.parametrize("name", [FormatName.TUNED, FormatName.ANSIBLE])
@pytest.mark.parametrize("netdev", ["sysctl", "sysfs", "unit"])
def test_a_device_may_be_called_as_a_section_is(name: FormatName, netdev: str) -> None:
    (file,) = exported(name, {"kernel/busy_poll": "50", f"netdev/{netdev}/ring/rx": "512"})
    assert "busy_poll" in content(file)
    assert f"devices={netdev}\n" in file.text or f'KERNEL=="{netdev}"' in file.text
