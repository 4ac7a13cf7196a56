import inspect
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coresteer_core.settings import (
    KINDS,
    CgroupWeight,
    Channels,
    CpusetCpus,
    CpusetMems,
    FlowRuleSlot,
    IrqAffinity,
    KernelParameter,
    NetdevParam,
    QueueParam,
    Rps,
    RssTable,
    Setting,
    SettingError,
    TaskAffinity,
    TaskNice,
    Xps,
    parse_setting,
)
from coresteer_core.settings.cgroup import WEIGHTS
from coresteer_core.settings.kernel import PARAMETERS
from coresteer_core.settings.params import PARAMS


def left_open(member: object) -> bool:
    """Whether a member of Setting raises NotImplementedError."""
    function = getattr(member, "fget", None) or getattr(member, "__func__", member)
    return inspect.isfunction(function) and "NotImplementedError" in function.__code__.co_names


REQUIRED = [name for name, member in vars(Setting).items() if left_open(member)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_setting_defines_what_the_base_class_leaves_open(kind: type[Setting]) -> None:
    missing = [name for name in REQUIRED if inspect.getattr_static(kind, name) is vars(Setting)[name]]
    assert missing == []
    assert {"examples", "key", "canonical"} <= set(REQUIRED)


@given(st.integers(0, 9_999_999))
def test_parsing_the_key_of_an_irq_affinity_returns_the_setting(irq: int) -> None:
    setting = parse_setting(IrqAffinity(irq).key)
    assert setting == IrqAffinity(irq)
    assert setting.path == f"proc/irq/{irq}/smp_affinity_list"


@pytest.mark.parametrize(
    "key",
    ["", "irq/41", "irq/041/affinity", "irq/-1/affinity", "irq/41/affinity\n", "irq/../affinity", "/irq/41/affinity",
     "irq/12345678/affinity", "irq/٣/affinity", "IRQ/41/affinity", "sysctl/kernel.panic"],
)  # fmt: skip
def test_a_key_that_is_not_exactly_that_of_a_setting_is_refused(key: str) -> None:
    with pytest.raises(SettingError, match="not a setting Coresteer knows"):
        parse_setting(key)


def test_many_threads_may_have_the_same_cpus_but_not_many_different_long_lists() -> None:
    same = "0;" + ";".join(f"{thread}=0-8191" for thread in range(1, 2000))
    assert TaskAffinity(1).canonical(same).count("0-8191") == 1999
    different = "0;" + ";".join(f"{thread}={thread}-8191" for thread in range(1, 10))
    with pytest.raises(SettingError, match="more than 65536 CPUs together"):
        TaskAffinity(1).canonical(different)


def test_a_value_has_one_canonical_form() -> None:
    setting = IrqAffinity(41)
    assert {setting.canonical(text) for text in ("3,2", "2-3", " 2-3\n", "2,2,3")} == {"2-3"}
    assert setting.shell_command("2-3") == "echo 2-3 > /proc/irq/41/smp_affinity_list"


@pytest.mark.parametrize(("value", "says"), [("", "at least one CPU"), ("3-1", "backwards"), ("x", "not a CPU")])
def test_a_value_that_the_kernel_would_not_accept_is_refused(value: str, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        IrqAffinity(41).canonical(value)


ANY_SETTING = st.one_of(
    st.builds(IrqAffinity, st.integers(0, 9_999_999)),
    st.builds(TaskAffinity, st.integers(1, 9_999_999)),
    st.builds(TaskNice, st.integers(1, 9_999_999)),
    st.builds(
        CgroupWeight,
        st.sampled_from(
            ["web.slice", "system.slice/nginx.service", "kubepods.slice/cri-1.scope", "a b/..c/d..", "cpu.weight"]
        ),
        st.sampled_from(sorted(WEIGHTS)),
    ),
    st.builds(CpusetCpus, st.sampled_from(["web.slice", "system.slice/nginx.service", "cpuset.cpus"])),
    st.builds(CpusetMems, st.just("web.slice")),
    st.builds(Rps, st.sampled_from(["eth0", "enp3s0f1np1", "eth0.100", "br-lan"]), st.integers(0, 99_999)),
    st.builds(Xps, st.just("eth0"), st.integers(0, 99_999)),
    st.builds(RssTable, st.just("eth0")),
    st.builds(Channels, st.just("eth0")),
    st.builds(FlowRuleSlot, st.sampled_from(["eth0", "enp3s0f1np1"]), st.integers(0, 99_999)),
    st.builds(
        NetdevParam,
        st.sampled_from(["eth0", "enp3s0f1np1"]),
        st.sampled_from(sorted(name for name, param in PARAMS.items() if param.of_netdev)),
    ),
    st.builds(KernelParameter, st.sampled_from(sorted(PARAMETERS))),
    st.builds(
        lambda param, queue: QueueParam("eth0", param.name, f"{param.queue}-{queue}"),
        st.sampled_from([param for param in PARAMS.values() if param.queue]),
        st.integers(0, 99_999),
    ),
)


@given(ANY_SETTING)
def test_parsing_the_key_of_any_setting_returns_the_setting(setting: Setting) -> None:
    assert parse_setting(setting.key) == setting


@pytest.mark.parametrize(
    "key",
    ["netdev/../rss", "netdev/./rss", "netdev/eth0;reboot/rss", "netdev/-eth0/rss", "netdev/a/b/rss", "netdev//rss",
     "netdev/abcdefghijklmnop/rss", "netdev/eth0/tx-0/rps", "netdev/eth0/rx-0/xps", "netdev/eth0/rx-00/rps",
     "netdev/eth0/coalesce/rx-msecs", "netdev/eth0/rx-0/coalesce/tx-usecs", "netdev/eth0/rx-0/ring/rx",
     "netdev/eth0/rss-context", "netdev/eth0/rss-context/0", "netdev/eth0/rss-context/01", "netdev/eth0/rss/1",
     "netdev/eth0/flow-rule", "netdev/eth0/flow-rule/", "netdev/eth0/flow-rule/07", "netdev/eth0/rx-0/flow-rule/7",
     "netdev/eth0/rps_flow_cnt", "netdev/eth0/tx-0/rps_flow_cnt", "netdev/eth0/rx-0/threaded", "kernel/somaxconn",
     "netdev/eth0/tx-0/gro_flush_timeout", "netdev/eth0/rx-00/coalesce/rx-usecs", "netdev/eth0/ring/rx\n",
     "task/0/affinity", "task/-1/affinity", "task/812/nicer", "task/0/nice", "cgroup/cpu.weight", "cgroup//cpu.weight",
     "cgroup/web.slice/../../x/cpu.weight", "cgroup/./cpu.weight", "cgroup/web.slice//cpu.weight",
     "cgroup/web.slice/cpu.max", "cgroup/web.slice/cpu.weight\n", "cgroup/a\nb/cpu.weight"],
)  # fmt: skip
def test_an_inexact_key_of_any_kind_is_refused(key: str) -> None:
    with pytest.raises(SettingError, match="not a setting Coresteer knows"):
        parse_setting(key)


@pytest.mark.parametrize(
    ("setting", "value", "canonical"),
    [
        (TaskAffinity(812), "3,2", "2-3"),
        (TaskAffinity(812), "0-3;814=2;813=1;815=3,2,1,0", "0-3;813=1;814=2"),
        (TaskNice(812), " +5", "5"),
        (TaskNice(812), "0;814=-20;813=0", "0;814=-20"),
        (CgroupWeight("web.slice", "cpu.weight"), " 0100\n", "100"),
        (CpusetCpus("web.slice"), "3,2\n", "2-3"),
        (CpusetMems("web.slice"), "\n", "inherited"),
        (CpusetMems("web.slice"), " inherited", "inherited"),
        (Rps("eth0", 0), "3,2", "2-3"),
        (Rps("eth0", 0), " none ", "none"),
        (Rps("eth0", 0), "", "none"),
        (RssTable("eth0"), "0,1,0,1", "0,1"),
        (RssTable("eth0"), "0, 1,0", "0,1,0"),
        (RssTable("eth0"), "3,3,3,3", "3"),
        (Channels("eth0"), "combined 4", "combined 4"),
        (Channels("eth0"), "tx 2, rx 2,combined 0", "rx 2,tx 2"),
        (NetdevParam("eth0", "coalesce/rx-usecs"), " 0050", "50"),
        (NetdevParam("eth0", "coalesce/adaptive-rx"), "1", "on"),
        (NetdevParam("eth0", "gro_flush_timeout"), "18446744073709551615", "18446744073709551615"),
        (QueueParam("eth0", "coalesce/adaptive-tx", "tx-3"), "off", "off"),
    ],
)
def test_each_kind_has_one_canonical_form(setting: Setting, value: str, canonical: str) -> None:
    assert setting.canonical(value) == canonical
    assert setting.canonical(canonical) == canonical
    assert setting.equal(canonical, setting.canonical(value))


@pytest.mark.parametrize(
    ("setting", "value", "says"),
    [
        (TaskAffinity(812), "", "at least one CPU"),
        (TaskAffinity(812), "0;813", "not a thread with its CPUs"),
        (TaskAffinity(812), "0;813=", "at least one CPU"),
        (TaskAffinity(812), "0;x=1", "not a thread with its CPUs"),
        (TaskAffinity(812), "x", "not a CPU"),
        (TaskNice(812), "20", "not a nice value, which is from -20 to 19."),
        (TaskNice(812), "-21", "not a nice value"),
        (TaskNice(812), "0;813=x", "not a nice value"),
        (TaskNice(812), "0;813", "not a thread with its nice value"),
        (TaskNice(812), "1_0", "not a nice value"),
        (CgroupWeight("web.slice", "cpu.weight"), "-1", "not a weight; write a number"),
        (CgroupWeight("web.slice", "cpu.weight"), "٣", "not a weight"),
        (CpusetCpus("web.slice"), "x", "not a list of CPUs; write for example 1, 0-1 or inherited."),
        (CpusetMems("web.slice"), "1-", "not a list of NUMA nodes"),
        (Rps("eth0", 0), "f", "not a CPU"),
        (RssTable("eth0"), "", "not the number of a receive queue"),
        (RssTable("eth0"), "0,,1", "not the number of a receive queue"),
        (RssTable("eth0"), ",".join(["0", "1"] * 9000), "too long"),
        (Channels("eth0"), "", "is invalid or repeats"),
        (Channels("eth0"), "4", "is invalid or repeats"),
        (Channels("eth0"), "rx 1,rx 2", "is invalid or repeats"),
        (Channels("eth0"), "combined 0", "at least one channel"),
        (NetdevParam("eth0", "coalesce/rx-usecs"), "-1", "not a number of µs; write for example 64."),
        (NetdevParam("eth0", "coalesce/rx-usecs"), "٣", "not a number of µs"),
        (NetdevParam("eth0", "ring/rx"), "on", "not a number of descriptors"),
        (NetdevParam("eth0", "gro_flush_timeout"), "18446744073709551616", "not a number of ns"),
        (NetdevParam("eth0", "threaded"), "on", "not a number; write for example 1."),
        (NetdevParam("eth0", "coalesce/adaptive-rx"), "yes", "neither on nor off, the only values of adaptive-rx"),
    ],
)
def test_a_value_that_a_kind_does_not_accept_is_refused(setting: Setting, value: str, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        setting.canonical(value)


@given(ANY_SETTING, st.text(max_size=40))
def test_any_text_is_canonical_or_refused_with_a_message(setting: Setting, text: str) -> None:
    try:
        value = setting.canonical(text)
    except SettingError as error:
        assert str(error).endswith((".", "…"))
        return
    assert setting.canonical(value) == value
    assert setting.format_value(value)
    assert setting.key.split("/")[0] in ("irq", "task", "cgroup", "netdev", "kernel")
    assert setting.canonical(setting.value_in_view(value)) == setting.value_in_view(value)


@given(st.lists(st.integers(0, 7), min_size=1, max_size=12), st.integers(24, 130))
def test_the_pattern_of_an_rss_table_is_the_one_that_filled_it(queues: list[int], entries: int) -> None:
    wanted = RssTable("eth0").canonical(",".join(map(str, queues)))
    assert RssTable.pattern(RssTable.table(wanted, entries)) == wanted


def test_an_rss_table_is_shown_as_its_shortest_pattern_with_a_possibly_cut_last_repetition() -> None:
    assert RssTable.pattern([0, 1, 2, 0, 1, 2, 0, 1]) == "0,1,2"
    with pytest.raises(SettingError, match=r"longer than the RSS table \(2 entries\)"):
        RssTable.table("0,1,2", 2)


@pytest.mark.parametrize(
    ("setting", "value", "command"),
    [
        (TaskAffinity(812), "2-3", "taskset --all-tasks --cpu-list --pid 2-3 812"),
        (Rps("eth0", 1), "0-1,32", "echo 1,00000003 > /sys/class/net/eth0/queues/rx-1/rps_cpus"),
        (Xps("eth0", 1), "none", "echo 0 > /sys/class/net/eth0/queues/tx-1/xps_cpus"),
        (RssTable("eth0"), "0,1,2", "ethtool -X eth0 start 0 equal 3"),
        (RssTable("eth0"), "2,3", "ethtool -X eth0 start 2 equal 2"),
        (RssTable("eth0"), "0,2,2", "ethtool -X eth0 weight 1 0 2"),
        (Channels("eth0"), "rx 2,tx 2", "ethtool -L eth0 rx 2 tx 2"),
        (NetdevParam("eth0", "coalesce/rx-usecs"), "90", "ethtool -C eth0 rx-usecs 90"),
        (NetdevParam("eth0", "coalesce/adaptive-rx"), "on", "ethtool -C eth0 adaptive-rx on"),
        (NetdevParam("eth0", "ring/rx"), "512", "ethtool -G eth0 rx 512"),
        (NetdevParam("eth0", "threaded"), "1", "echo 1 > /sys/class/net/eth0/threaded"),
        (
            QueueParam("eth0", "rps_flow_cnt", "rx-3"),
            "4096",
            "echo 4096 > /sys/class/net/eth0/queues/rx-3/rps_flow_cnt",
        ),
        (KernelParameter("busy_poll"), "50", "sysctl net.core.busy_poll=50"),
        (
            NetdevParam("eth0", "gro_flush_timeout"),
            "20000",
            "echo 20000 > /sys/class/net/eth0/gro_flush_timeout",
        ),
        (
            QueueParam("eth0", "coalesce/rx-usecs", "rx-3"),
            "50",
            "ethtool --per-queue eth0 queue_mask 0x8 --coalesce rx-usecs 50",
        ),
    ],
)
def test_each_kind_has_a_shell_command(setting: Setting, value: str, command: str) -> None:
    assert setting.shell_command(value) == command


def test_the_shell_command_of_a_queues_polling_first_finds_its_napi(tmp_path: Path) -> None:
    """Run by a shell with a ynl that only writes down what it is asked."""
    for name, text in {
        "ynl": 'echo "$@" >> asked; echo "{\\"napi-id\\": 8193}"',
        "jq": "cat > /dev/null; echo 8193",
        "cat": '[ $# = 0 ] && exec /bin/cat; echo "cat $1" >> asked; echo 2',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    command = QueueParam("eth0", "napi_defer_hard_irqs", "rx-3").shell_command("2")
    subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, env={"PATH": str(tmp_path)}, check=True, timeout=10)
    assert (tmp_path / "asked").read_text().splitlines() == [
        "cat /sys/class/net/eth0/ifindex",
        '--family netdev --output-json --do queue-get --json {"ifindex": 2, "type": "rx", "id": 3}',
        '--family netdev --do napi-set --json {"id": 8193, "defer-hard-irqs": 2}',
    ]
