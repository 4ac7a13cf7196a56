import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coresteer_agent.simulate.interval import make_interval
from coresteer_agent.simulate.load import LOAD_LEVELS, failing_nic_counts, link_is_down, load_level, load_profile
from coresteer_agent.simulate.machine import Fault, Machine, fault_of, make_machine
from coresteer_agent.simulate.topology import make_topology
from coresteer_core.cpuset import parse_cpu_list
from coresteer_core.node.rates import CPU_COUNTS, CPU_SHARES, SHARES_PER_UNIT


def irq_target_cpus(machine: Machine) -> tuple[int, ...]:
    return tuple(min(parse_cpu_list(irq.effective or "")) for irq in machine.inventory.irqs)


def u32(column: bytes | None) -> list[int]:
    assert column is not None
    return list(struct.unpack(f"<{len(column) // 4}I", column))


@given(cpus=st.integers(2, 512))
def test_every_cpu_has_one_core_one_numa_node_and_caches_that_know_it(cpus: int) -> None:
    topology = make_topology(cpus)
    assert [cpu.cpu for cpu in topology.cpus] == list(range(cpus))
    for cpu in topology.cpus:
        siblings = parse_cpu_list(cpu.siblings)
        assert cpu.cpu in siblings
        assert {other.core for other in topology.cpus if other.cpu in siblings} == {cpu.core}
    nodes = [parse_cpu_list(node.cpus) for node in topology.numa_nodes]
    assert sorted(cpu for node in nodes for cpu in node) == list(range(cpus))
    for level in (1, 2, 3):
        kind = "Data" if level == 1 else "Unified"
        shared = [parse_cpu_list(c.cpus) for c in topology.caches if c.level == level and c.type == kind]
        assert sorted(cpu for cache in shared for cpu in cache) == list(range(cpus))
        assert all(any(cache <= node for node in nodes) for cache in shared)


@pytest.mark.parametrize(
    ("cpus", "packages", "threads", "last_level_caches"),
    [(2, 1, 1, 1), (4, 1, 1, 1), (20, 1, 2, 1), (7, 1, 1, 1), (72, 2, 2, 2), (128, 2, 2, 8), (256, 2, 2, 16)],
)
def test_machines_have_the_layout_of_servers(cpus: int, packages: int, threads: int, last_level_caches: int) -> None:
    topology = make_topology(cpus)
    assert len({cpu.package for cpu in topology.cpus}) == packages
    assert len(parse_cpu_list(topology.cpus[0].siblings)) == threads
    assert len([cache for cache in topology.caches if cache.level == 3]) == last_level_caches


@given(cpus=st.integers(2, 256), irqs=st.integers(2, 600), kind=st.integers(0, 11), fault=st.sampled_from(list(Fault)))
def test_a_machine_has_the_requested_interrupts_and_every_queue_has_its_own(
    cpus: int, irqs: int, kind: int, fault: Fault
) -> None:
    machine = make_machine(cpus=cpus, irqs=irqs, kind=kind, seed=0, fault=fault)
    rows = machine.inventory.irqs
    assert len(rows) == irqs == len({row.irq for row in rows})
    served = {(row.netdev, queue): row.irq for row in rows for queue in row.queues}
    of_queues = {(dev.name, queue.name): queue.irq for dev in machine.inventory.netdevs for queue in dev.queues}
    assert served == of_queues
    assert of_queues
    assert not any(dev.management for dev in machine.inventory.netdevs)
    for row in rows:
        assert parse_cpu_list(row.effective or "") <= parse_cpu_list(row.requested or "") <= machine.topology.online()
        assert (row.movable is False) == (row.locked_reason is not None)


@settings(max_examples=40)
@given(
    cpus=st.sampled_from([2, 3, 8, 20, 72, 256]),
    level=st.integers(0, LOAD_LEVELS - 1),
    fault=st.sampled_from(list(Fault)),
    kind=st.integers(0, 2),
)
def test_columns_have_a_cell_for_each_cpu_and_shares_add_up(cpus: int, level: int, fault: Fault, kind: int) -> None:
    machine = make_machine(cpus=cpus, irqs=40, kind=kind, seed=1, fault=fault)
    interval = make_interval(machine, irq_target_cpus(machine), level, 3, 1.0)
    shares = {name: column or b"" for name, column in interval.shares.items()}
    assert set(shares) == set(CPU_SHARES)
    assert set(interval.counts) == set(CPU_COUNTS)
    assert all(len(column) == cpus and max(column) <= SHARES_PER_UNIT for column in shares.values())
    assert all(len(u32(column)) == cpus for column in interval.counts.values())
    for cpu in range(cpus):
        parts = sum(shares[name][cpu] for name in ("user", "system", "irq", "softirq"))
        assert abs(parts - shares["busy"][cpu]) <= 4  # each is rounded by itself
    cells = len(interval.irq_ids) // 4
    assert len(interval.irq_cpus) == 2 * cells
    assert 0 not in u32(interval.irq_counts)


def test_a_hot_queue_saturates_one_cpu_and_load_moves_with_an_interrupt() -> None:
    machine = make_machine(cpus=16, irqs=40, kind=2, seed=0, fault=Fault.HOT_QUEUE)
    before = irq_target_cpus(machine)
    queue_rows = [row for row, irq in enumerate(machine.inventory.irqs) if irq.queues]
    (hot,) = {before[row] for row in queue_rows}
    free = 0 if hot else 1
    full = make_interval(machine, before, LOAD_LEVELS - 1, 0, 1.0)
    softirq = full.shares["softirq"] or b""
    assert softirq[hot] > 0.9 * SHARES_PER_UNIT > softirq[free]
    assert u32(full.counts["dropped"])[hot] > 0
    assert full.netdevs[0].rx_dropped > 0

    after = list(before)
    for row in queue_rows[: len(queue_rows) // 2]:
        after[row] = free
    moved = make_interval(machine, tuple(after), LOAD_LEVELS - 1, 0, 1.0)
    relieved = moved.shares["softirq"] or b""
    assert relieved[hot] < softirq[hot]
    assert relieved[free] > softirq[free]
    assert moved.netdevs[0].rx_dropped == 0
    assert moved.tcp.rtt_p99_us < full.tcp.rtt_p99_us


def test_a_failing_nic_loses_packets_and_then_its_link() -> None:
    machine = make_machine(cpus=8, irqs=30, kind=1, seed=0, fault=Fault.FAILING_NIC)
    healthy = make_interval(machine, irq_target_cpus(machine), 20, 0, 1.0).netdevs[0]
    errors = [failing_nic_counts(healthy, age_s, 1.0).rx_errors for age_s in (0, 60, 120, 170)]
    assert errors == sorted(set(errors))
    assert not link_is_down(60)
    assert link_is_down(183)
    assert failing_nic_counts(healthy, 183, 1.0).rx_bytes == 0


def test_a_failing_nic_has_older_firmware_than_the_others_of_its_driver() -> None:
    failing, healthy = (
        make_machine(cpus=8, irqs=30, kind=1, seed=0, fault=fault).inventory.netdevs[0]
        for fault in (Fault.FAILING_NIC, Fault.NONE)
    )
    assert failing.driver == healthy.driver
    assert None not in (failing.firmware, healthy.firmware)
    assert failing.firmware != healthy.firmware


def test_the_managed_nodes_nic_is_locked_with_a_reason() -> None:
    machine = make_machine(cpus=8, irqs=30, kind=0, seed=0, fault=Fault.MANAGED_NIC)
    locked = [irq for irq in machine.inventory.irqs if irq.netdev == machine.nic.netdev and irq.queues]
    assert locked
    assert all(irq.movable is False and machine.nic.netdev in (irq.locked_reason or "") for irq in locked)


def test_the_same_seed_makes_the_same_interval_and_another_seed_another() -> None:
    def interval(seed: int) -> object:
        machine = make_machine(cpus=20, irqs=50, kind=4, seed=seed)
        return make_interval(machine, irq_target_cpus(machine), 12, 2, 1.0)

    assert interval(7) == interval(7)
    assert interval(7) != interval(8)


def test_the_load_follows_a_daily_cycle() -> None:
    profile = load_profile(0, 9)
    levels = [load_level(hour * 3600.0, profile, fault_of(9)) for hour in range(24)]
    assert max(levels) - min(levels) >= LOAD_LEVELS // 5
