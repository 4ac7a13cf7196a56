"""JSON output of ``coresteer-agent topology`` and ``coresteer-agent sample``."""

from pathlib import Path

import msgspec

from coresteer_agent.collect.topology import read_topology
from coresteer_agent.observe.sampler import Sampler
from coresteer_core.node.derive import CounterTable
from coresteer_core.node.rates import NetdevCounts

_FIELDS = {
    "times": ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"),
    "softnet": ("processed", "dropped", "time_squeeze"),
    "netdevs": NetdevCounts.__struct_fields__[1:],
}


def topology_json(root: Path) -> bytes:
    """Return the CPU topology below root as indented JSON. Raises ParseError for an invalid file."""
    return _indented(msgspec.to_builtins(read_topology(root)))


def sample_json(root: Path) -> bytes:
    """Return one Sample as indented JSON: raw counters by source, then by CPU, row or netdev; null: unknown."""
    sampler = Sampler(root)
    sample = sampler.sample()
    sampler.close()
    by_name = msgspec.structs.asdict(sample)
    for name in ("interrupts", "softirqs"):
        table: CounterTable | None = by_name[name]
        if table is not None:
            by_name[name] = {
                label: {str(cpu): count for cpu, count in zip(table.cpus, row, strict=True)}
                for label, row in table.rows.items()
            }
    for name, fields in _FIELDS.items():
        if by_name[name] is not None:
            by_name[name] = {str(key): dict(zip(fields, values, strict=True)) for key, values in by_name[name].items()}
    return _indented(msgspec.to_builtins(by_name))


def _indented(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1)
