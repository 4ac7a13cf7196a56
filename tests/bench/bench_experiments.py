"""Experiments on this machine, and failures during them, with a separate backend.

    python -m tests.bench.bench_experiments false-alarms [--seeds 30] [--simulated]
    python -m tests.bench.bench_experiments planted [--times 5]
    python -m tests.bench.bench_experiments cuts [--times 20]       (as root)

false-alarms: A/A with one seed after the other; the rate of false positives. planted: 10 % more work per request. cuts:
agent, backend and database are killed in turn while an interrupt is moved for a run; the time until it is restored, and
whether anything is left at the end. The load runs in the experiment's own namespaces.
"""

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.lab.fleet import HOST, Backend, backend
from tests.support.polling import poll

ENDED = ("done", "stopped", "cancelled", "failed")
RETURN_S = 60.0
LOOK_S = 0.02
REQUESTS = {"type": "tcp-request", "connections": 4}
LITTLE = {**REQUESTS, "limit_per_s": 2000}
"""Leaves most of the machine to others."""
QUICK = {"warmup_s": 0.5, "measure_s": 1.0, "settle_s": 0, "blocks": 6, "aa_blocks": 3}
AGENT_ENDS_S = 15.0
"""Longer than the agent goes on without its backend."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("drill", choices=["false-alarms", "planted", "cuts"])
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--times", type=int, default=None)
    parser.add_argument("--simulated", action="store_true", help="on simulated nodes, all seeds at once")
    args = parser.parse_args()
    with backend() as host:
        match args.drill:
            case "false-alarms":
                bad = false_alarms(host, args.seeds, simulated=args.simulated)
            case "planted":
                bad = planted(host, args.times or 5)
            case _:
                bad = cuts(host, args.times or 20)
    sys.exit(bad)


def false_alarms(host: Backend, seeds: int, *, simulated: bool) -> bool:
    """Print each seed's interval and the false positives; return whether there are more than 2 in 30."""
    spec = {"kind": "aa", "workload": LITTLE, "primary": "rtt_p50_us", **QUICK}
    with nodes_of(host, seeds if simulated else 1, simulated=simulated) as nodes:
        started = [
            start(host, {**spec, "name": f"itself, seed {seed}", "node_id": nodes[seed % len(nodes)], "seed": seed})
            for seed in range(seeds)
        ]
        found = [verdict_of(wait_for_end(host, number)) for number in started]
    alarms = sum(verdict in ("higher", "lower", "unsteady") for verdict in found)
    print(f"{alarms} of {seeds} seeds found a difference where there is none; 2 of 30 are allowed.")
    return alarms * 30 > 2 * seeds


def planted(host: Backend, times: int) -> bool:
    """Print the effect of 10 % more work per request; return whether a repeat missed it."""
    levels = [{"name": "400 µs", "workload": {"work_us": 400}}, {"name": "440 µs", "workload": {"work_us": 440}}]
    workload = {**REQUESTS, "connections": 1, "server_cpus": "1", "client_cpus": "0"}
    spec = {"kind": "ab", "workload": workload, "primary": "requests_per_s", **QUICK, "aa_blocks": 6}
    spec["factors"] = [{"name": "work for each request", "levels": levels}]
    node = host.await_live(HOST)["id"]
    started = [start(host, {**spec, "name": "planted", "node_id": node, "seed": seed}) for seed in range(times)]
    found = [verdict_of(wait_for_end(host, number)) for number in started]
    print(f"{found.count('lower')} of {times} found that fewer requests are answered.")
    return found.count("lower") < times


def cuts(host: Backend, times: int) -> bool:
    """Print for each cut the time until the interrupt was restored; return whether anything was left at the end."""
    node = host.await_live(HOST)["id"]
    before = affinities()
    irq, elsewhere = movable(before)
    moved = {"name": "elsewhere", "settings": [{"key": f"irq/{irq}/affinity", "value": elsewhere}]}
    factor = {"name": f"IRQ {irq}", "levels": [{"name": "as it is"}, moved]}
    spec = {"kind": "ab", "node_id": node, "workload": LITTLE, "primary": "rtt_p50_us", **QUICK}
    chance, bad, took = random.Random(20261121), 0, []  # noqa: S311 - no secret
    for number in range(times):
        what = ("agent", "backend", "database")[number % 3]
        host.await_live(HOST, 60)
        experiment = start(host, {**spec, "name": f"cut {number + 1}", "factors": [factor], "seed": number})
        poll(lambda: affinities()[irq] == elsewhere, timeout_s=120)
        time.sleep(chance.uniform(0, 1.5))  # somewhere in the run
        was_away = affinities()[irq] == elsewhere
        kill(what, host.env["CORESTEER_STATE_DIR"])
        at = time.monotonic()
        poll(lambda: affinities()[irq] == before[irq], timeout_s=RETURN_S)
        took.append(time.monotonic() - at)
        went_on = outcome_of(host, experiment)
        left = find_differences(before)
        bad += bool(left)
        print(
            f"{number + 1:2} {what:8}{'' if was_away else ' between moves'}: back after {took[-1]:.2f} s, "
            f"{went_on}; left over: {', '.join(left) or 'nothing'}",
            flush=True,
        )
    command = [sys.executable, "-m", "coresteer_agent", "restore", "-o", "json"]
    restored = subprocess.run(command, check=False, capture_output=True, text=True, env=host.env).stdout.strip()
    print(
        f"{times - bad} of {times} left all as before. Back after {statistics.median(took):.1f} s in the median, "
        f"{max(took):.1f} s at most. coresteer-agent restore then finds: {restored}"
    )
    return bad > 0


def outcome_of(host: Backend, experiment: int) -> str:
    """Wait for the next counted run after a cut, cancel the experiment, and return the outcome as a text."""
    path = f"/api/v1/experiments/{experiment}"
    begun = poll(lambda: try_get(host, path), timeout_s=60)

    def further() -> dict[str, Any] | None:
        now = try_get(host, path)
        return now if now and (now["runs_done"] > begun["runs_done"] or now["state"] in ENDED) else None

    later = poll(further, timeout_s=180)
    if later["state"] in ENDED:
        return f"the experiment is {later['state']}: {later['sentence']}"
    host.request("POST", f"{path}/cancel")
    ended = wait_for_end(host, experiment)
    return f"the experiment went on, {ended['runs_discarded']} runs discarded, then it was {ended['state']}"


@contextmanager
def nodes_of(host: Backend, count: int, *, simulated: bool) -> Iterator[list[int]]:
    """Yield the ids of nodes: this one, or a number of simulated ones."""
    if not simulated:
        yield [host.await_live(HOST)["id"]]
        return
    token = subprocess.run(
        [sys.executable, "-m", "coresteer", "enrolment-token", "--simulated"],
        check=True, capture_output=True, text=True, env=host.env,
    ).stdout.strip()  # fmt: skip
    command = [sys.executable, "-m", "coresteer_agent", "simulate", "--backend", host.address, "--token", token]
    process = subprocess.Popen([*command, "--nodes", str(count), "--cpus", "8"], env=host.env)
    try:

        def live() -> list[int]:
            nodes = host.request("GET", "/api/v1/nodes")
            return [node["id"] for node in nodes if node["simulated"] and node["health"] == "live"]

        poll(lambda: len(live()) == count, timeout_s=60)
        yield live()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def start(host: Backend, spec: dict[str, Any]) -> int:
    """Start an experiment; return its id."""
    number: int = host.request("POST", "/api/v1/experiments", {"spec": spec})["id"]
    return number


def try_get(host: Backend, path: str) -> dict[str, Any] | None:
    """Return the backend's answer, None while it does not respond."""
    try:
        found: dict[str, Any] = host.request("GET", path)
    except Exception as error:
        if "answered with 4" in str(error):
            raise
        return None
    return found


def wait_for_end(host: Backend, number: int) -> dict[str, Any]:
    """Return the experiment once it has ended."""
    path = f"/api/v1/experiments/{number}"

    def ended() -> dict[str, Any] | None:
        found = try_get(host, path)
        return found if found is not None and found["state"] in ENDED else None

    return poll(ended, timeout_s=3600, interval_s=0.5)


def verdict_of(experiment: dict[str, Any]) -> str:
    """Print the effect on the primary metric; return the verdict."""
    analysis = experiment["analysis"]
    found = [one for one in analysis["comparisons"] if one["metric"] == experiment["primary"]]
    one = found[0] if found else analysis["noise"].get(experiment["primary"])
    if one is None:
        print(f"{experiment['name']}: {experiment['state']}: {experiment['sentence']}", flush=True)
        return str(experiment["state"])
    effect, visible = one["effect"], one["minimum_detectable"]
    said = "no interval" if effect is None else f"{effect['value']:+.2%} [{effect['low']:+.2%}, {effect['high']:+.2%}]"
    print(
        f"{experiment['name']}, seed {experiment['seed']}: {said}, p {one['p']}, {one['verdict']}; visible from "
        f"{'–' if visible is None else f'{visible:.2%}'}; {analysis['counted']} runs, "
        f"{analysis['discarded']} discarded",
        flush=True,
    )
    return str(one["verdict"])


def affinities() -> dict[str, str]:
    """Return the affinities of all interrupts."""
    return {path.parent.name: path.read_text().strip() for path in Path("/proc/irq").glob("*/smp_affinity_list")}


def movable(before: dict[str, str]) -> tuple[str, str]:
    """Return the movable interrupt with the fewest events, and a different CPU list for it."""
    counts = {}
    for line in Path("/proc/interrupts").read_text().splitlines():
        label, _, rest = line.partition(":")
        if label.strip() in before:
            counts[label.strip()] = sum(int(cell) for cell in rest.split() if cell.isdecimal())
    irq = min(counts, key=counts.__getitem__)
    return irq, next(cpus for cpus in ("1", "0") if cpus != before[irq])


def find_differences(before: dict[str, str]) -> list[str]:
    """Return the remaining differences after the agent had time to restore."""
    end = time.monotonic() + AGENT_ENDS_S
    while True:
        now = affinities()
        left = [f"IRQ {irq} at {now.get(irq)}" for irq, cpus in before.items() if now.get(irq) != cpus]
        left += [f"netdev {path.name}" for path in Path("/sys/class/net").iterdir() if path.name not in NETDEVS]
        left += [f"process {pid}" for pid in loads()]
        if not left or time.monotonic() > end:
            return left
        time.sleep(LOOK_S)


def loads() -> list[int]:
    """Return the processes of workloads, with any parent."""
    return [pid for pid, command, _ in processes() if "coresteer_agent" in command and "workload" in command]


def kill(what: str, state_dir: str) -> None:
    """Kill a process and its children."""
    word = {"agent": "coresteer_agent", "backend": "serve", "database": "postgres"}[what]
    killed = [
        pid
        for pid, command, environment in processes()
        if word in command and "workload" not in command and state_dir in command + environment
    ]
    if not killed:
        raise ProcessLookupError(f"No process of the {what} was found.")
    for pid in killed:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # it ended with its parent


def processes() -> Iterator[tuple[int, str, str]]:
    """Yield PID, command line and environment of each process."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (
                (path / name).read_bytes().decode(errors="replace") for name in ("cmdline", "environ")
            )
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        yield int(path.name), command, environment


NETDEVS = {path.name for path in Path("/sys/class/net").iterdir()}

if __name__ == "__main__":
    main()
