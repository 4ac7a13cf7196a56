"""Writes coresteer.json, the dashboard for Grafana ≥ 10.1: python packaging/grafana/generate.py."""

from pathlib import Path

from grafana_foundation_sdk.builders.common import ReduceDataOptions, VizLegendOptions
from grafana_foundation_sdk.builders.dashboard import Dashboard, DatasourceVariable, Row
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.builders.stat import Panel as Stat
from grafana_foundation_sdk.builders.timeseries import Panel as Timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import DataSourceRef

OUTPUT = Path(__file__).with_name("coresteer.json")
_SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")
_HEIGHT, _STAT_WIDTH, _WIDTH = 8, 6, 12

STATS = {
    "Nodes whose samples arrive": "sum(coresteer_node_up)",
    "Nodes without samples": "count(coresteer_node_up == 0) or vector(0)",
    "Changes that wait": "sum(coresteer_node_open_changes)",
    "Problems of backends": "sum(coresteer_problem)",
}
"""Title and query of the figures at the top."""

NODES = {
    ("Softirq of the busiest CPU, 10 highest", "percentunit", "{{node}}"): "topk(10, coresteer_node_softirq_cpu_ratio)",
    ("Busiest CPU, 10 highest", "percentunit", "{{node}}"): "topk(10, coresteer_node_busiest_cpu_ratio)",
    ("Dropped packets, 10 highest", "pps", "{{node}}"): "topk(10, coresteer_node_softnet_dropped_per_second)",
    ("Softirq budget used up, 10 highest", "ops", "{{node}}"): "topk(10, coresteer_node_squeezed_per_second)",
    ("Wrong-node bytes, 10 highest", "percentunit", "{{node}}"): "topk(10, coresteer_node_wrong_node_ratio)",
    ("Round-trip time, 99th percentile, 10 highest", "s", "{{node}}"): "topk(10, coresteer_node_rtt_p99_seconds)",
    ("Received", "Bps", "all nodes"): "sum(coresteer_node_rx_bytes_per_second)",
    ("Sent", "Bps", "all nodes"): "sum(coresteer_node_tx_bytes_per_second)",
    ("Packets received", "pps", "all nodes"): "sum(coresteer_node_rx_packets_per_second)",
    ("Device interrupts", "ops", "all nodes"): "sum(coresteer_node_interrupts_per_second)",
}
"""Title, unit and legend of the charts of nodes, and their query."""

BACKENDS = {
    ("Agents connected", "short", "{{instance}}"): "coresteer_agents_connected",
    ("Samples stored", "ops", "{{instance}}"): "rate(coresteer_samples_stored_total[$__rate_interval])",
    ("Samples rejected", "ops", "{{instance}}"): "rate(coresteer_samples_rejected_total[$__rate_interval])",
    ("Samples waiting to be stored", "bytes", "{{instance}}"): "coresteer_samples_waiting_bytes",
    ("Requests, 99th percentile", "s", "{{instance}}"): "histogram_quantile(0.99, sum by (le, instance) "
    "(rate(coresteer_http_request_duration_seconds_bucket[$__rate_interval])))",
    (
        "Reports of changes",
        "ops",
        "{{state}}",
    ): "sum by (state) (rate(coresteer_change_reports_total[$__rate_interval]))",
    ("CPU time", "percentunit", "{{instance}}"): 'rate(process_cpu_seconds_total{job="coresteer"}[$__rate_interval])',
    ("Memory", "bytes", "{{instance}}"): 'process_resident_memory_bytes{job="coresteer"}',
}
"""The same of backends."""


def dashboard() -> str:
    """Return the dashboard as JSON."""
    built = (
        Dashboard("Coresteer")
        .uid("coresteer")
        .tags(["coresteer", "linux", "interrupts"])
        .refresh("30s")
        .time("now-1h", "now")
        .with_variable(DatasourceVariable("source").label("Prometheus").type("prometheus"))
        .with_row(Row("Nodes"))
    )
    for title, query in STATS.items():
        stat = Stat().title(title).datasource(_SOURCE).height(4).span(_STAT_WIDTH)
        stat.reduce_options(ReduceDataOptions().calcs(["lastNotNull"]))
        built.with_panel(stat.with_target(Dataquery().ref_id("A").expr(query)))
    _charts(built, NODES)
    built.with_row(Row("Backends"))
    _charts(built, BACKENDS)
    return JSONEncoder(sort_keys=True, indent=2).encode(built.build()) + "\n"


def _charts(built: Dashboard, panels: dict[tuple[str, str, str], str]) -> None:
    below = VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM).show_legend(True)
    for (title, unit, legend), query in panels.items():
        target = Dataquery().ref_id("A").expr(query).legend_format(legend)
        panel = Timeseries().title(title).unit(unit).datasource(_SOURCE).height(_HEIGHT).span(_WIDTH).legend(below)
        built.with_panel(panel.with_target(target))


if __name__ == "__main__":
    OUTPUT.write_text(dashboard(), encoding="utf-8")
