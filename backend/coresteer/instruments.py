"""What the backend counts of itself, for GET /metrics: the one place that names these metrics.

Of several workers that share a port, prometheus-client adds the values up (its multiprocess mode).
"""

from prometheus_client import Counter, Gauge, Histogram

SAMPLES_STORED = Counter("coresteer_samples_stored", "Samples of nodes that were stored and acknowledged.")
SAMPLES_REJECTED = Counter("coresteer_samples_rejected", "Samples that were invalid or refused, and are not stored.")
SAMPLE_BYTES_WAITING = Gauge(
    "coresteer_samples_waiting_bytes", "Samples in memory that are not stored yet.", multiprocess_mode="livesum"
)
AGENTS_CONNECTED = Gauge(
    "coresteer_agents_connected", "Agents that are connected to this backend.", multiprocess_mode="livesum"
)
LEADS = Gauge(
    "coresteer_leader",
    "1 if this backend runs rollouts, experiments, the proof of policies and retention.",
    multiprocess_mode="livesum",
)
PROBLEM = Gauge(
    "coresteer_problem", "1 if the backend cannot do its work for this reason of /readyz.", ["what"],
    multiprocess_mode="livemax",
)  # fmt: skip
CHANGES = Counter("coresteer_change_reports", "Reports of agents about changes, by the state reported.", ["state"])
REQUEST_SECONDS = Histogram(
    "coresteer_http_request_duration_seconds",
    "Time from an HTTP request to the end of its response.",
    ["method", "route", "status"],
    buckets=(0.005, 0.02, 0.1, 0.5, 2, 10),
)
