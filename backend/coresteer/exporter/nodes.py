"""Figures of all nodes in Prometheus' text format: base units, one series for each figure of a node. Pure."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from coresteer.fleet.figures import FleetNode, Mask, Numbers
from coresteer.fleet.query import Fleet
from coresteer.presence.schemas import Health
from coresteer_core.metrics import FLEET_METRICS

_BASE_UNITS: Mapping[str, tuple[str, str, float]] = MappingProxyType(
    {
        "B/s": ("_per_s", "_per_second", 1),
        "1/s": ("_per_s", "_per_second", 1),
        "%": ("_percent", "_ratio", 1e-2),
        "% of one CPU": ("_percent", "_ratio", 1e-2),
        "B": ("_bytes", "_bytes", 1),
        "µs": ("_us", "_seconds", 1e-6),
    }
)
"""By unit of a metric: the end of its name here and in Prometheus, and the factor to the base unit."""


def exported(name: str) -> tuple[str, float]:
    """Return the name of a fleet's figure in Prometheus, and the factor from its unit to the base unit."""
    end, base_end, factor = _BASE_UNITS[FLEET_METRICS[name].unit]
    return f"coresteer_node_{name.removesuffix(end)}{base_end}", factor


def label_name(name: str) -> str:
    """Return a node's label as the name of a label of Prometheus, as kube-state-metrics does."""
    return f"label_{re.sub('[^a-zA-Z0-9_]', '_', name)}"


class NodeCollector(Collector):
    """The series of a fleet. A figure that is not known has none, so that it never looks like zero."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with the series of all nodes."""
        nodes, values = self._fleet.nodes, self._fleet.values
        info = InfoMetricFamily("coresteer_node", "Kernel, mode and labels of the node.", labels=["node"])
        for node in nodes:
            info.add_metric([node.name], _about(node))
        yield info
        cpus = np.array([np.nan if node.cpus is None else node.cpus for node in nodes], np.float64)
        changes = np.array([node.open_changes for node in nodes], np.float64)
        yield self._gauge("coresteer_node_up", "1 if the node's samples arrive.", values.is_of(Health.LIVE))
        yield self._gauge("coresteer_node_cpus", "CPUs of the node.", cpus)
        yield self._gauge("coresteer_node_open_changes", "Changes that wait to be applied or confirmed.", changes)
        for key, metric in FLEET_METRICS.items():
            name, factor = exported(key)
            yield self._gauge(name, f"{metric.label}.", values.metrics[key] * factor)

    def _gauge(self, name: str, about: str, column: Numbers | Mask) -> Metric:
        family = GaugeMetricFamily(name, about, labels=["node"])
        for at in np.flatnonzero(~np.isnan(column)).tolist():
            family.add_metric([self._fleet.nodes[at].name], float(column[at]))
        return family


def _about(node: FleetNode) -> dict[str, str]:
    """Return the labels of a node's info; of two labels that become the same name, the last one counts."""
    own = {"kernel": node.kernel or "", "mode": node.mode or "", "simulated": str(node.simulated).lower()}
    return {label_name(name): value for name, value in sorted(node.labels.items())} | own
