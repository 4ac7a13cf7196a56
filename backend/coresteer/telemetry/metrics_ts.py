"""``python -m coresteer.telemetry.metrics_ts``: coresteer_core.metrics as a TypeScript module, for ``make types``."""

import json
import sys

from coresteer_core.changes.guardrail import VIOLATION_PERIOD
from coresteer_core.metrics import METRICS, Metric

_HEAD = f"""\
/** How long a metric must exceed a guardrail's bound to violate it. */
export const VIOLATION_PERIOD = {json.dumps(VIOLATION_PERIOD)};

/**
 * Every metric by name. Generated from coresteer_core.metrics by `make types`.
 *
 * better: the direction of an improvement; short: for legends and headings; chart: the one of the node's page;
 * history: a series, and in live frames; fleet: a figure of the fleet's page; experiment: measured in runs;
 * guardrail: a guardrail can watch it.
 */
export const METRICS = {{
"""


def metrics_module() -> str:
    """Return the source of the TypeScript module, one line per metric."""
    rows = [f"  {name}: {json.dumps(_row(one), ensure_ascii=False)}," for name, one in METRICS.items()]
    return _HEAD + "\n".join(rows) + "\n} as const;\n"


def _row(metric: Metric) -> dict[str, str | bool]:
    return {
        "label": metric.label,
        "unit": metric.unit,
        "better": metric.better,
        "short": metric.short,
        "chart": metric.chart,
        "history": metric.history,
        "fleet": metric.fleet,
        "experiment": metric.experiment,
        "guardrail": metric.guardrail != "",
    }


if __name__ == "__main__":
    sys.stdout.write(metrics_module())
