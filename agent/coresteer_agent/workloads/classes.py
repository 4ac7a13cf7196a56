"""The percentile scheduler's experiment: compares service orders of an echo server that forks per request.

Kim, Song and Lee, percentile scheduling for differentiated services. Five clients, one per class, have ten threads
each that send the next request as soon as the last is answered, so that fifty requests are pending until the first
clients are done. All servers and their children share one CPU and the clients use the others: only the order in which
the children get that CPU determines the waiting times. Throughput does not depend on the order, so serving one class
before another shortens the mean of all; the overhead of a method lengthens it.

The window determines how far the classes are apart. N includes the ten pending requests of a class, so its F is
S / ((S + 10) × P): a class of target P has the same F as the first one, of target 90 % with nearly all its requests
done, after 10 / (90 / P - 1) completions in a window, 12.5 for the last class. That is its share of a window, so the
more requests a window has, the closer the order is to strict priority: without overhead, the last class's mean is
2.4 times the first one's with 180 requests per window, 3.6 with 450, 4.25 with 900 and 4.7 from 3,600 on, where 5 is
strict (tests/bench/bench_class_windows.py). The default of 2 s gives 3.2 from 225 requests/s on. Waits are then bounded
by the gate's rule for classes that were passed over. Without a gate the scheduler decides, and some of these short
children wait for seconds: one that was preempted just after its start has more virtual runtime than the new ones that
keep arriving and end within their slice.

Everything is on the loopback, bounded in count and time, and ends with this process, however that ends.
"""

import os
import platform
import time
from contextlib import ExitStack

import psutil

from coresteer_agent.version import VERSION
from coresteer_agent.workloads.cgroups import NoCgroupError
from coresteer_agent.workloads.classes_model import (
    TARGETS_PERCENT,
    ClassResult,
    Result,
    Setup,
    WorkloadError,
)
from coresteer_agent.workloads.classes_processes import ClassWorkers
from coresteer_agent.workloads.echo_client import ClientResult
from coresteer_core.metrics import CLASS_NAMES


def run(setup: Setup) -> Result:
    """Run the service classes' experiment once and return each class's response times. Raises WorkloadError."""
    *client_cpus, server_cpu = sorted(os.sched_getaffinity(0))
    if not client_cpus:
        raise WorkloadError("This process has one CPU only; the servers require one that the clients do not use.")
    load_before = os.getloadavg()[0]
    try:
        with ExitStack() as stack:
            processes = ClassWorkers(setup, stack, server_cpu, client_cpus)
            idle_before_s, measured_from_s = _idle_s(server_cpu), time.monotonic()
            results = processes.measure()
            server_cpu_s = processes.server_cpu_s()
            idle = (_idle_s(server_cpu) - idle_before_s) / (time.monotonic() - measured_from_s)
    except NoCgroupError as error:
        raise WorkloadError(str(error)) from None
    begin_s = min(client.begin_s for client in results)
    duration_s = max(client.end_s for client in results) - begin_s
    total = ClientResult(
        [value for client in results for value in client.responses_us],
        [value for client in results for value in client.waits_us],
        sum(client.failed for client in results),
        begin_s,
        begin_s + duration_s,
        sum(client.cpu_s for client in results),
    )
    return Result(
        setup=setup,
        classes=[_result(*row, begin_s) for row in zip(CLASS_NAMES, TARGETS_PERCENT, results, strict=True)],
        all=_result("all", 0, total, begin_s),
        throughput_per_s=len(total.responses_us) / duration_s,
        duration_s=duration_s,
        server_cpu=server_cpu,
        client_cpus=client_cpus,
        server_busy=1 - idle,
        clients_busy=total.cpu_s / duration_s / len(client_cpus),
        server_us=server_cpu_s * 1e6 / (len(total.responses_us) + total.failed),
        realtime=processes.realtime,
        load_before=load_before,
        versions={
            "coresteer": VERSION,
            "python": platform.python_version(),
            "kernel": platform.release(),
        },
    )


def _idle_s(cpu: int) -> float:
    times = psutil.cpu_times(percpu=True)[cpu]
    return float(times.idle + times.iowait)


def _result(name: str, target_percent: float, result: ClientResult, begin_s: float) -> ClassResult:
    ordered = sorted(result.responses_us)
    count = len(ordered)

    def quantile(share: float) -> int | None:
        return ordered[min(count - 1, int(share * count))] if ordered else None

    return ClassResult(
        name=name,
        target_percent=target_percent,
        completed=count,
        failed=result.failed,
        mean_us=sum(ordered) / count if ordered else None,
        p50_us=quantile(0.50),
        p95_us=quantile(0.95),
        p99_us=quantile(0.99),
        max_us=ordered[-1] if ordered else None,
        longest_wait_us=max(result.waits_us, default=None),
        finished_s=result.end_s - begin_s if ordered else None,
    )
