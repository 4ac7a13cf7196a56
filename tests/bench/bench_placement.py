"""The first system's experiment on this machine: throughput and CPU per gigabit for ⟨m-n⟩, and default against enforce.

Two network namespaces of the bench's own, joined by a veth pair. RPS of the receiving end stands for the interrupt: it
has the packets handled on CPU m; the receiver runs on CPU n, the sender on the last CPU. Each run is bounded in time;
runs of all conditions are interleaved in an order shuffled with a fixed seed, and intervals are bootstrapped.
"""

import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path

import msgspec
import numpy as np

from coresteer_agent.runtime.policies_file import PoliciesFile
from coresteer_agent.runtime.policy_state import PolicyState
from coresteer_agent.transport.enrol import NodeKey
from coresteer_core.node.distance import Locality
from coresteer_core.policies.base import Mode, PolicySpec, Scope
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.policies.network_process.policy import NetworkProcess

SECONDS, REPEATS = 3.0, 10
LONG_WARM_UP_S, LONG_SECONDS, PAIRS = 12.0, 8.0, 6
"""The node loop decides every 5 s, so what it does is measured after it had time to."""
CPUS = sorted(os.sched_getaffinity(0))
SENDER, RECEIVER = f"coresteer-bench-a-{os.getpid()}", f"coresteer-bench-b-{os.getpid()}"
ADDRESS, PORT = "10.99.0.2", 9100

_RECEIVE = """
import socket, sys, time
with socket.create_server(("", int(sys.argv[1]))) as listener:
    print("ready", flush=True)
    connection, _ = listener.accept()
buffer, total, warm = bytearray(256 * 1024), 0, time.monotonic() + float(sys.argv[2])
while count := connection.recv_into(buffer):
    total += count
    if warm and time.monotonic() >= warm:
        total = warm = 0
        print("warm", flush=True)
print(total)
"""
_SEND = """
import socket, sys, time
data, end = bytes(256 * 1024), time.monotonic() + float(sys.argv[3])
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as connection:
    while time.monotonic() < end:
        connection.sendall(data)
"""


def run(*command: str) -> None:
    subprocess.run(command, check=True)


@contextlib.contextmanager
def namespaces() -> Iterator[None]:
    """Create both namespaces with their ends of the veth pair."""
    try:
        for name in (SENDER, RECEIVER):
            run("ip", "netns", "add", name)
        run("ip", "-n", SENDER, "link", "add", "veth0", "type", "veth", "peer", "name", "veth1", "netns", RECEIVER)
        for name, end, address in ((SENDER, "veth0", "10.99.0.1"), (RECEIVER, "veth1", ADDRESS)):
            run("ip", "-n", name, "address", "add", f"{address}/24", "dev", end)
            run("ip", "-n", name, "link", "set", end, "up")
        yield
    finally:
        for name in (SENDER, RECEIVER):
            subprocess.run(["ip", "netns", "delete", name], check=False)


def set_rps(cpu: int) -> None:
    """Let a CPU handle the packets that veth1 receives."""
    path = "/sys/class/net/veth1/queues/rx-0/rps_cpus"
    run(*command_prefix(RECEIVER), "sh", "-c", f"echo {1 << cpu:x} > {path}")


def busy_s() -> float:
    """Return the non-idle CPU time of the machine, s."""
    cells = [int(cell) for cell in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(cells) - cells[3] - cells[4]) / os.sysconf("SC_CLK_TCK")


def transfer(receiver_cpu: int | None, warm_up_s: float = 0.5, seconds: float = SECONDS) -> tuple[float, float]:
    """Return Gbit/s, and CPU seconds of the machine per gigabit. receiver_cpu: None leaves it to the scheduler."""
    pin = () if receiver_cpu is None else ("taskset", "-c", str(receiver_cpu))
    receive = (*pin, sys.executable, "-c", _RECEIVE, str(PORT), str(warm_up_s))
    send = ("taskset", "-c", str(CPUS[-1]), sys.executable, "-c", _SEND, ADDRESS, str(PORT), str(warm_up_s + seconds))
    with subprocess.Popen([*command_prefix(RECEIVER), *receive], stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        receiver.stdout.readline()
        with subprocess.Popen([*command_prefix(SENDER), *send]):
            receiver.stdout.readline()
            before, start = busy_s(), time.monotonic()
        gigabits = int(receiver.stdout.read()) * 8 / 1e9
        return gigabits / (time.monotonic() - start), (busy_s() - before) / gigabits


def command_prefix(namespace: str) -> tuple[str, ...]:
    """Return the prefix that runs a command in a namespace."""
    return ("ip", "netns", "exec", namespace)


@contextlib.contextmanager
def agent_enforcing(spec: PolicySpec, scope: Scope, prefix: Sequence[str] = ()) -> Iterator[Path]:
    """Run the agent with a policy in force and without a backend; yield its state folder, which has its log.

    prefix: of its command.
    """
    policy = PolicyInForce("bench", 1, "bench", 0, Mode.ENFORCE, spec, scope=scope)
    with tempfile.TemporaryDirectory() as state_dir:
        PoliciesFile(Path(state_dir, "agent/policies.json"), Path("/")).write(PolicyState([policy]))
        key = NodeKey("http://127.0.0.1:1", 1, "bench", "csk_bench")
        Path(state_dir, "agent/key.json").write_bytes(msgspec.json.encode(key))
        options = ("--backend", key.backend, "--state-dir", state_dir)
        with Path(state_dir, "log").open("w") as log:
            agent = subprocess.Popen([*prefix, sys.executable, "-m", "coresteer_agent", "run", *options], stderr=log)
        try:
            yield Path(state_dir)
        finally:
            agent.terminate()
            agent.wait()
            restore = [*prefix, sys.executable, "-m", "coresteer_agent", "restore", "--state-dir", state_dir]
            subprocess.run(restore, check=False, stdout=subprocess.DEVNULL)


@contextlib.contextmanager
def enforcing() -> Iterator[None]:
    """Run the agent in the receiver's namespace with network-process in force."""
    spec = NetworkProcess(max_distance=Locality.CPU, max_load=1.0)
    with agent_enforcing(spec, Scope(netdevs=["veth*"]), command_prefix(RECEIVER)) as state_dir:
        yield
        if "Applied and read back" not in (said := Path(state_dir, "log").read_text()):
            print(f"The policy changed nothing in this run. The agent said:\n{said}", file=sys.stderr)


def interval(values: Sequence[float]) -> str:
    """Return the mean with its 95 % interval, by the percentile bootstrap with a fixed seed."""
    means = np.random.default_rng(1).choice(values, (10_000, len(values))).mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return f"{np.mean(values):.3f} [{low:.3f}, {high:.3f}]"


def sweep() -> None:
    """Measure ⟨m-n⟩: packets handled on CPU m, receiver on CPU n."""
    found: dict[tuple[int, int], list[tuple[float, float]]] = {pair: [] for pair in product(CPUS, CPUS)}
    order = random.Random(7)  # noqa: S311 - an order of runs, not a secret
    for _ in range(REPEATS):
        for m, n in order.sample(list(found), len(found)):
            set_rps(m)
            found[m, n].append(transfer(n))
    print(f"| m | n | Gbit/s | CPU s a gigabit | ({REPEATS} runs of {SECONDS:g} s each, means with 95 % intervals)")
    print("|---|---|---|---|")
    for (m, n), runs in found.items():
        rate, cost = zip(*runs, strict=True)
        print(f"| {m} | {n} | {interval(rate)} | {interval(cost)} |", flush=True)


def default_against_enforce() -> None:
    """Compare placement of the receiver by the scheduler and by the policy; RPS on the first CPU."""
    set_rps(CPUS[0])
    found: dict[str, list[tuple[float, float]]] = {"default": [], "enforce": []}
    for pair in range(PAIRS):
        for name in ("default", "enforce") if pair % 2 == 0 else ("enforce", "default"):
            with enforcing() if name == "enforce" else contextlib.nullcontext():
                found[name].append(transfer(None, LONG_WARM_UP_S, LONG_SECONDS))
    print(f"| regime | Gbit/s | CPU s a gigabit | ({PAIRS} pairs, ABBA, {LONG_SECONDS:g} s each)\n|---|---|---|")
    for name, runs in found.items():
        rate, cost = zip(*runs, strict=True)
        print(f"| {name} | {interval(rate)} | {interval(cost)} |")
    for what, at in (("Gbit/s", 0), ("CPU s a gigabit", 1)):
        pairs = zip(found["default"], found["enforce"], strict=True)
        print(
            f"enforce / default, {what}: {interval([enforce[at] / default[at] for default, enforce in pairs])}",
            flush=True,
        )


def main() -> None:
    with namespaces():
        transfer(None)  # warms up
        sweep()
        default_against_enforce()


if __name__ == "__main__":
    main()
