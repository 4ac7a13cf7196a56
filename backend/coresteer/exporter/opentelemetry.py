"""Metrics of Prometheus' client as those of OpenTelemetry: the same names, units and labels. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric as Family
from prometheus_client.samples import Sample

_CUMULATIVE = AggregationTemporality.CUMULATIVE


def exported_data(families: Iterable[Family], resource: Resource, *, began_ns: int, now_ns: int) -> MetricsData:
    """Return the families as what the exporter sends; see converted for the times."""
    metrics = list(converted(families, began_ns=began_ns, now_ns=now_ns))
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(InstrumentationScope("coresteer"), metrics, "")], "")])


def converted(families: Iterable[Family], *, began_ns: int, now_ns: int) -> Iterator[Metric]:
    """Yield each family as a metric. began_ns: when its counters were zero; both in nanoseconds since 1970.

    Receivers that write to Prometheus add the unit to the name and ``_total`` to that of a counter: the name has the
    unit already, so none is given.
    """
    for family in families:
        samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
        if family.type == "histogram":
            points = list(_histograms(samples, began_ns, now_ns))
            yield Metric(family.name, family.documentation, "", Histogram(points, _CUMULATIVE))
            continue
        numbers = [NumberDataPoint(_labels(each), began_ns, now_ns, each.value) for each in samples]
        data = Sum(numbers, _CUMULATIVE, is_monotonic=True) if family.type == "counter" else Gauge(numbers)
        name = f"{family.name}_info" if family.type == "info" else family.name
        yield Metric(name, family.documentation, "", data)


def _histograms(samples: Sequence[Sample], began_ns: int, now_ns: int) -> Iterator[HistogramDataPoint]:
    """Yield a point for each combination of labels, whose samples follow each other."""

    def labels(sample: Sample) -> Mapping[str, str]:
        return {name: value for name, value in sample.labels.items() if name != "le"}

    for key, group in groupby(samples, labels):
        own = list(group)
        buckets = [each for each in own if each.name.endswith("_bucket")]
        counts = [0, *(int(each.value) for each in buckets)]
        yield HistogramDataPoint(
            attributes=dict(key),
            start_time_unix_nano=began_ns,
            time_unix_nano=now_ns,
            count=counts[-1],
            sum=next(each.value for each in own if each.name.endswith("_sum")),
            bucket_counts=[after - before for before, after in pairwise(counts)],
            explicit_bounds=[float(each.labels["le"]) for each in buckets[:-1]],
            min=float("-inf"),
            max=float("inf"),
        )


def _labels(sample: Sample) -> dict[str, str]:
    return dict(sample.labels)
