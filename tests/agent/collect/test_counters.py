"""The counter files: what they mean, and what becomes of odd and cut ones."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from coresteer_agent.collect import net_counters
from coresteer_agent.collect.cgroup_memory import parse_numa_stat
from coresteer_agent.collect.counter_table import CounterTableReader
from coresteer_agent.collect.errors import ParseError
from coresteer_agent.collect.interrupts import Description, parse_description, parse_descriptions
from coresteer_agent.collect.net_counters import NetCountersParser
from coresteer_agent.collect.netdev import parse_default_routes, parse_netdev
from coresteer_agent.collect.numa import parse_meminfo
from coresteer_agent.collect.numa_maps import parse_numa_maps
from coresteer_agent.collect.rows import MAX_FILES, dropped_rows, forget_dropped_rows, report_unknown
from coresteer_agent.collect.softnet import parse_softnet
from coresteer_agent.collect.stat import parse_stat
from coresteer_agent.collect.tasks import parse_task_stat
from coresteer_core.metrics import COUNTER_SOURCES
from coresteer_core.node.derive import CounterTable

INTERRUPTS = b"""\
           CPU0       CPU2       \n\
 24:          1          0  IO-APIC   5-edge      ACPI:Ged
 38:          0      19583 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
LOC:      34262 4294967295   Local timer interrupts
ERR:          0
"""
SOFTIRQS = b"""\
                    CPU0       CPU1       \n\
          HI:          0          0
      NET_RX:      12483      19078
"""
STAT = b"""\
cpu  8062 0 3804 275018 763 0 190 28 0 0
cpu0 3361 5 1475 138809 174 1 40 9 7 3
cpu1 4701 0 2329 136209 589 0 149 18 0 0
intr 447484 0 0
"""
SOFTNET = b"""\
00000011 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 0 0
00007b6c 00000000 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000003 0 0
"""
DEV = b"""\
Inter-|   Receive                                     |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier comp
    lo:    3193      29    0    0    0     0          0      0     3193      29    0    0    0     0       0      0
  eth0:998946337  31584    3    4    0     0          0      0  1767849   16814    5    6    0     0       0      0
"""
ROUTE = b"""\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth1\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""
SNMP = b"""\
Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm InSegs OutSegs RetransSegs InErrs
Tcp: 1 10 16456 12 0
Udp: InDatagrams
"""
TASK = b"812 (a (b) c) S 1 812 812 0 -1 4194560 0 0 0 0 30 12 0 0 20 0 1 0 777 1 5 0 0 0 0 0 0 0 0 0 0 0 0 0 17 3 0 0\n"


def table(text: bytes) -> CounterTable:
    return CounterTableReader("proc/interrupts").parse(text)


NETSTAT = b"""\
MPTcpExt: MPCapableSYNRX ListenOverflows
MPTcpExt: 1 2
TcpExt: SyncookiesSent ListenDrops ListenOverflows
TcpExt: 0 9 7
"""


def parse_netstat(text: bytes) -> dict[str, int]:
    return NetCountersParser("proc/net/netstat").parse(text)


def parse_snmp(text: bytes) -> dict[str, int]:
    return NetCountersParser("proc/net/snmp").parse(text)


VMSTAT = b"""\
nr_free_pages 1228
numa_hit 30
numa_local 20
numa_other 10
pgmigrate_success 7
pgmigrate_fail 1
"""


def parse_vmstat(text: bytes) -> dict[str, int]:
    return NetCountersParser("proc/vmstat").parse(text)


PARSERS: list[tuple[Callable[[bytes], object], bytes]] = [
    (table, INTERRUPTS),
    (table, SOFTIRQS),
    (lambda text: parse_descriptions(text.splitlines()), INTERRUPTS),
    (parse_stat, STAT),
    (lambda text: parse_softnet(text, [0, 3]), SOFTNET),
    (parse_netdev, DEV),
    (parse_default_routes, ROUTE),
    (parse_snmp, SNMP),
    (parse_netstat, NETSTAT),
    (parse_vmstat, VMSTAT),
    (lambda text: parse_task_stat(text, "proc/812/stat"), TASK),
]


def test_interrupt_counters_belong_to_the_cpus_of_the_header() -> None:
    found = table(INTERRUPTS)
    assert found.cpus == (0, 2)
    assert {label: list(row) for label, row in found.rows.items()} == {
        "24": [1, 0],
        "38": [0, 19583],
        "LOC": [34262, 4294967295],
    }


def test_cells_without_a_space_before_them_are_read_as_well() -> None:
    # arm64 writes "%10u " where other machines write " %10u"
    text = b"           CPU0       CPU1       \nIPI0:         7          8       Rescheduling interrupts\n"
    assert list(table(text).rows["IPI0"]) == [7, 8]


@given(
    st.lists(
        st.lists(st.lists(st.integers(0, 2**32 - 1), min_size=3, max_size=3), min_size=2, max_size=20),
        min_size=1,
        max_size=5,
    )
)
def test_parsing_only_what_changed_gives_what_parsing_all_gives(ticks: list[list[list[int]]]) -> None:
    kept = CounterTableReader("proc/interrupts")
    for rows in ticks:
        text = b"           CPU0       CPU1       CPU2       \n"
        for number, row in enumerate(rows):
            text += f"{number:4d}:{''.join(f' {n:10d}' for n in row)}  IO-APIC   5-edge      x\n".encode()
        assert kept.parse(text) == table(text)


def test_a_row_that_did_not_move_is_the_same_object() -> None:
    reader = CounterTableReader("proc/interrupts")
    before = reader.parse(INTERRUPTS)
    after = reader.parse(INTERRUPTS.replace(b"19583", b"19584"))
    assert after.rows["24"] is before.rows["24"]
    assert list(after.rows["38"]) == [0, 19584]
    assert list(before.rows["38"]) == [0, 19583]


def test_a_cpu_that_goes_offline_takes_its_column_along() -> None:
    reader = CounterTableReader("proc/interrupts")
    reader.parse(INTERRUPTS)
    assert reader.parse(b"           CPU0       \n 24:          2  IO-APIC   5-edge      x\n").cpus == (0,)


@pytest.mark.parametrize(
    ("text", "chip", "name"),
    [
        (" PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0", "PCI-MSIX-0000:00:03.0", "virtio2-input.0"),
        (" IO-APIC   16-fasteoi   ehci_hcd:usb1, mmc0", "IO-APIC", "ehci_hcd:usb1, mmc0"),
        (" GICv3  27 Level     arch_timer", "GICv3", "arch_timer"),
        (" PCI-MSI-edge      eth0-TxRx-0", "PCI-MSI-edge", "eth0-TxRx-0"),
        (" IO-APIC   2-edge", "IO-APIC", ""),
        (" Hyper-V PCIe MSI 4138200989697-edge      mana_q0@pci:7870:00:00.0", "Hyper-V PCIe MSI",
         "mana_q0@pci:7870:00:00.0"),
        (" SiFive PLIC  33 Edge      eth0", "SiFive PLIC", "eth0"),
        (" PCI-MSI-edge      card 5", "PCI-MSI-edge", "card 5"),
        ("", "", ""),
    ],
)  # fmt: skip
def test_a_description_is_chip_and_name(text: str, chip: str, name: str) -> None:
    assert parse_description(text) == Description(chip, name)


def test_descriptions_are_of_numbered_interrupts_only() -> None:
    assert {n: d.name for n, d in parse_descriptions(INTERRUPTS.splitlines()).items()} == {
        24: "ACPI:Ged",
        38: "virtio2-input.0",
    }


def test_cpu_times_leave_out_guest_time_which_user_time_holds() -> None:
    assert parse_stat(STAT) == {0: (3361, 5, 1475, 138809, 174, 1, 40, 9), 1: (4701, 0, 2329, 136209, 589, 0, 149, 18)}


def test_softnet_lines_name_their_cpu() -> None:
    assert parse_softnet(SOFTNET, [0, 1]) == {0: (0x11, 1, 0), 3: (0x7B6C, 0, 2)}


def test_older_softnet_lines_stand_for_the_online_cpus_in_order() -> None:
    text = b"00000005 00000000 00000000\n00000006 00000000 00000001\n"
    assert parse_softnet(text, [2, 0]) == {0: (5, 0, 0), 2: (6, 0, 1)}


def test_netdev_totals_are_in_the_order_of_the_wire() -> None:
    assert parse_netdev(DEV)["eth0"] == (998946337, 1767849, 31584, 16814, 4, 6, 3, 5)


def test_the_default_route_names_its_interface() -> None:
    assert parse_default_routes(ROUTE) == {"eth0"}


def test_tcp_segments_are_found_by_the_names_of_their_columns() -> None:
    found = parse_snmp(SNMP)
    assert found == {"tcp_out_segments": 16456, "tcp_retransmits": 12}


def test_a_table_is_not_mistaken_for_one_whose_name_ends_like_it() -> None:
    assert parse_netstat(NETSTAT) == {"tcp_listen_overflows": 7}


def test_a_counter_without_a_table_is_the_line_of_its_name() -> None:
    assert parse_vmstat(VMSTAT) == {"numa_local": 20, "numa_other": 10, "pages_moved": 7}
    assert parse_vmstat(b"numa_other 3\n") == {"numa_other": 3}
    assert parse_vmstat(b"") == {}


def test_a_counter_that_a_kernel_does_not_have_is_left_out() -> None:
    assert parse_netstat(b"TcpExt: SyncookiesSent\nTcpExt: 3\n") == {}


def test_a_table_that_a_kernel_does_not_have_leaves_the_other_tables_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {field: replace(source, path="proc/net/netstat") for field, source in COUNTER_SOURCES.items()}
    monkeypatch.setattr(net_counters, "COUNTER_SOURCES", sources)
    assert parse_netstat(NETSTAT) == {"tcp_listen_overflows": 7}


def test_a_process_may_have_brackets_in_its_name() -> None:
    found = parse_task_stat(TASK, "proc/812/stat")
    assert (found.name, found.ticks, found.started_ticks, found.cpu) == ("a (b) c", 42, 777, 3)


def test_control_characters_in_a_name_are_told_as_question_marks() -> None:
    assert parse_task_stat(TASK.replace(b"a (b) c", b"a\x1b[2J\n"), "proc/812/stat").name == "a?[2J?"


@pytest.mark.parametrize(
    ("parse", "text", "line"),
    [
        (table, b"CPUs\n", 1),
        (table, b"           CPU0       CPU1       \n 24:          1  \n 25 x\n", 3),
        (table, b"           CPU0       CPU1       CPU2       \n 24:          1          2\n", 2),
        (table, b"           CPU0       CPU1       \n 24:          1          x\n", 2),
        (table, b"           CPU0       \n 24: 4294967296\n", 2),
        (table, b"           CPU0       \n 24:          1", 2),
        (parse_stat, b"intr 1\n", 1),
        (parse_stat, b"cpu  1 2 3 4 5 6 7\ncpu0 1 2 3\n", 2),
        (parse_stat, b"cpu  1 2 3 4 5 6 7\ncpu0 1 2 3 4 5 6 x\n", 2),
        (lambda text: parse_softnet(text, [0]), b"zz 0 0\n", 1),
        (lambda text: parse_softnet(text, [0]), b"1 0\n", 1),
        (lambda text: parse_softnet(text, [0]), b"1 0 0\n2 0 0\n", 1),
        (table, b"           CPU70000   \n 24:          1\n", 1),
        (table, b"           CPU0       \n" + b"9" * 5000 + b":          1\n", 2),
        (parse_stat, b"cpu  1 2 3 4 5 6 7\ncpu999999999 1 2 3 4 5 6 7\n", 2),
        (parse_stat, b"cpu\n", 1),
        (lambda text: parse_softnet(text, [0]), b"0 " * 12 + b"fffff\n", 1),
        (lambda text: parse_task_stat(text, ""), TASK.replace(b" 17 3 ", b" 17 70000 "), 1),
        (parse_netdev, b"a\nb\n eth0: 1 2\n", 3),
        (parse_default_routes, b"Iface\neth0\t0\n", 2),
        (parse_snmp, b"Ip: 1\nTcp: OutSegs RetransSegs\n", 2),
        (parse_snmp, b"Ip: 1\nTcp: OutSegs RetransSegs\nTcp: 1 x\n", 2),
        (parse_vmstat, b"numa_local 1\nnuma_other x\n", 2),
    ],
)
def test_what_is_wrong_is_located(parse: Callable[[bytes], object], text: bytes, line: int) -> None:
    """Of a file of which nothing can be parsed, or of the first dropped row of one."""
    try:
        parse(text)
    except ParseError as error:
        report_unknown(error)
    (sentence,) = dropped_rows().values()
    assert f"Line {line}: " in sentence


WHOLE = [
    (table, INTERRUPTS, 1),
    (table, SOFTIRQS, 1),
    (parse_stat, STAT, 1),
    (lambda text: parse_softnet(text, [0, 3]), SOFTNET, 0),
    (parse_netdev, DEV, 2),
    (parse_default_routes, ROUTE, 1),
    (parse_vmstat, VMSTAT, 0),
    (lambda text: parse_numa_stat(text, "numa_stat"), b"anon N0=1 N1=2\nfile N0=3 N1=4\n", 0),
    (lambda text: parse_meminfo(text, "meminfo"), b"Node 0 MemTotal: 8 kB\nNode 0 MemFree: 4 kB\n", 0),
    (lambda text: parse_numa_maps(text, "numa_maps"), b"7f00 default anon=2 N0=2\n8f00 default N1=3\n", 0),
]
"""Parsers of files with a row for each thing, a text of each, and its number of headers."""


WRONG = [b"", b"\0", b"cpux 1", b": x", b"eth0 1", b"Node", b"9" * 5000]


@given(st.sampled_from(WHOLE), st.sampled_from(WRONG), st.data())
def test_a_row_that_cannot_be_parsed_is_dropped_alone_and_reported(
    whole: tuple[Callable[[bytes], object], bytes, int], wrong: bytes, data: st.DataObject
) -> None:
    parse, text, headers = whole
    expected = parse(text)
    forget_dropped_rows()
    end = text.index(b"intr") if b"intr" in text else len(text)
    lines = text[:end].splitlines(keepends=True)
    place = data.draw(st.integers(headers, len(lines)))
    assert parse(b"".join([*lines[:place], wrong + b"\n", *lines[place:]]) + text[end:]) == expected
    if parse is not parse_vmstat:  # which looks for its lines only
        (sentence,) = dropped_rows().values()
        assert sentence.startswith(f"1 row is dropped. Line {place + 1}: ")
    parse(text)
    assert dropped_rows() == {}


def test_a_row_that_stays_wrong_is_reported_while_the_others_move() -> None:
    whole, reader = table(INTERRUPTS), CounterTableReader("proc/interrupts")
    wrong = INTERRUPTS.replace(b" 38:", b"\n 38:")
    assert reader.parse(wrong) == whole
    moved = reader.parse(wrong.replace(b"19583", b"19584"))
    assert list(moved.rows["38"]) == [0, 19584]
    assert dropped_rows() == {"proc/interrupts": "1 row is dropped. Line 3: There is no “:” after the name of the row."}


def test_lines_that_name_no_cpu_are_not_assigned_when_one_is_missing() -> None:
    with pytest.raises(ParseError, match="2 lines for 3 online CPUs"):
        parse_softnet(b"1 0 0\n2 0 0\n", [0, 1, 2])


def test_a_value_of_one_table_leaves_the_other_tables() -> None:
    wrong = NETSTAT.replace(b"TcpExt: 0 9 7", b"TcpExt: 0 9 x")
    with pytest.raises(ParseError):
        parse_netstat(wrong)
    found = parse_snmp(SNMP.replace(b"Udp: InDatagrams\n", b"Udp: InErrors\nUdp: x\n"))
    assert found["tcp_out_segments"] == 16456


def test_reports_of_processes_are_one_and_their_number_is_bounded() -> None:
    for pid in range(1000):
        report_unknown(ParseError(f"proc/{pid}/numa_maps", 1, "wrong\x1b"))
        report_unknown(ParseError(f"sys/{pid}x", None, "wrong" * 1000))
    found = dropped_rows()
    assert found["proc/*/numa_maps"] == "It cannot be parsed. Line 1: wrong?"
    assert len(found) == MAX_FILES
    assert max(map(len, found.values())) == 200


@given(st.sampled_from(PARSERS), st.data())
def test_a_text_cut_anywhere_gives_a_value_or_a_parse_error(
    parser: tuple[Callable[[bytes], object], bytes], data: st.DataObject
) -> None:
    parse, text = parser
    cut = text[: data.draw(st.integers(0, len(text) - 1))]
    try:
        parse(cut)
    except ParseError as error:
        assert error.sentence


@given(st.sampled_from([parse for parse, _ in PARSERS]), st.binary(max_size=300))
def test_garbage_gives_a_value_or_a_parse_error(parse: Callable[[bytes], object], text: bytes) -> None:
    try:
        parse(text)
    except ParseError as error:
        assert error.path
