"""The table of the bench of policies. Pure but for printing."""

from collections.abc import Callable, Sequence

import numpy as np
from tests.lab.steering.measured import Measured

from coresteer.experiments.statistics import mean_interval

_COLUMNS: tuple[tuple[str, Callable[[Measured], float | None], float, str], ...] = (
    ("protocol: core %", lambda m: m.protocol_core, 100, ".1f"),
    ("L3 %", lambda m: m.protocol_l3, 100, ".1f"),
    ("node %", lambda m: m.protocol_node, 100, ".1f"),
    ("polling: core %", lambda m: m.polling_core, 100, ".1f"),
    ("at best %", lambda m: m.polling_best_core, 100, ".1f"),
    ("L3 %", lambda m: m.polling_l3, 100, ".1f"),
    ("node %", lambda m: m.polling_node, 100, ".1f"),
    ("RTT p99 ms", lambda m: m.rtt_p99_us, 1e-3, ".1f"),
    ("out of order/s", lambda m: m.out_of_order_per_s, 1, ".2f"),
    ("retransmitted/s", lambda m: m.retransmitted_per_s, 1, ".2f"),
    ("IPIs/s", lambda m: m.ipis_per_s, 1, ".0f"),
    ("RPS wake-ups/s", lambda m: m.received_rps_per_s, 1, ".0f"),
    ("moves/min", lambda m: m.moves_per_min, 1, ".1f"),
    ("busiest CPU %", lambda m: m.busiest, 100, ".0f"),
    ("isolated CPU %", lambda m: m.isolated, 100, ".1f"),
    ("MiB", lambda m: m.mib, 1, ".0f"),
)


def print_table(rows: Sequence[Measured]) -> None:
    """Print the mean of each regime and mix ± half of Student's 95 % interval over the runs."""
    for mix in dict.fromkeys(row.mix for row in rows):
        print(f"\n{mix}\n\n| regime | runs | {' | '.join(name for name, *_ in _COLUMNS)} |")
        print(f"|{'---|' * (len(_COLUMNS) + 2)}")
        for regime in dict.fromkeys(row.regime for row in rows):
            own = [row for row in rows if (row.regime, row.mix) == (regime, mix)]
            cells = [_cell([value(row) for row in own], scale, digits) for _, value, scale, digits in _COLUMNS]
            if own:
                print(f"| {regime} | {len(own)} | {' | '.join(cells)} |", flush=True)


def _cell(values: Sequence[float | None], scale: float, digits: str) -> str:
    known = np.array([value * scale for value in values if value is not None])
    found = mean_interval(known)
    if found is None:
        return f"{known[0]:{digits}}" if len(known) else "–"
    mean, low, _ = found
    return f"{mean:{digits}} ± {mean - low:{digits}}"
