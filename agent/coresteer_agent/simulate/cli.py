"""Command ``coresteer-agent simulate``."""

import argparse
import asyncio
import json
import logging
import resource
import secrets
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from coresteer_agent.config import DEFAULT_BACKEND, check_backend, default_state_dir
from coresteer_agent.simulate.agent import FleetStatistics, SimulatedAgent
from coresteer_agent.simulate.cache import SimulationCache
from coresteer_agent.simulate.effects import parse_effect
from coresteer_agent.simulate.enrol import SimulationError, load_or_request_keys, node_names, pinned_ca, read_token
from coresteer_agent.simulate.fleet import run
from coresteer_agent.simulate.machine import fault_of, kind_of, make_machine
from coresteer_agent.simulate.node import SimulatedNode
from coresteer_agent.transport.tls import tls_context
from coresteer_agent.transport.websocket_protocol import parse_uri

_log = logging.getLogger("coresteer.simulate")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``coresteer-agent simulate``."""
    parser.description = "Simulate nodes that use the real protocol, to try the user interface or to measure a backend."
    parser.add_argument("--backend", default=DEFAULT_BACKEND, metavar="URL", help="default: %(default)s")
    token = parser.add_mutually_exclusive_group()
    token.add_argument("--token", help="enrolment token for simulated nodes; needed once, the keys are stored")
    token.add_argument("--token-file", type=Path, metavar="FILE", help="file with the enrolment token")
    parser.add_argument("--nodes", type=_int_between(1, 10_000), default=20, metavar="N", help="default: %(default)s")
    parser.add_argument("--cpus", type=_int_between(2, 1024), default=64, metavar="C", help="default: %(default)s")
    parser.add_argument("--irqs", type=_int_between(2, 4096), default=150, metavar="I", help="default: %(default)s")
    parser.add_argument(
        "--interval", type=_seconds_between(0.1, 60), default=1.0, metavar="S", help="default: %(default)s s"
    )
    parser.add_argument(
        "--effect",
        type=parse_effect,
        action="append",
        default=[],
        metavar="NAME@VERSION=FACTOR",
        help="plant an effect: while this version of the policy is enforced, CPU time is multiplied by the factor",
    )
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same fleet")
    parser.add_argument(
        "--duration", type=_seconds_between(1, 1e6), metavar="S", help="end after S s and print statistics"
    )
    parser.add_argument("--insecure", action="store_true", help="connect without TLS to a backend on another machine")
    parser.add_argument(
        "--state-dir",
        type=Path,
        default=default_state_dir(),
        metavar="DIR",
        help="directory for the keys of simulated nodes; default: %(default)s",
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="format of the statistics")


def main(args: argparse.Namespace) -> int:
    """Simulate nodes until Ctrl-C or --duration. Return 1 if that cannot start or all nodes are rejected, else 0."""
    backend = check_backend(args.backend, insecure=args.insecure)
    keys_dir = args.state_dir / "agent"
    try:
        names = node_names(args.nodes, args.cpus)
        token = args.token if args.token_file is None else read_token(args.token_file)
        keys = load_or_request_keys(names, backend=backend, token=token, state_dir=keys_dir)
        _allow_sockets(args.nodes)
    except SimulationError as error:
        _log.error("%s", error)
        return 1
    stats = FleetStatistics()
    agents = _agents(args, backend, keys, stats)
    _log.info(
        "%d simulated nodes with %d CPUs and %d interrupts each connect to %s; Ctrl-C ends.",
        args.nodes,
        args.cpus,
        args.irqs,
        backend,
    )
    began_s = time.process_time()
    try:
        took_s = asyncio.run(
            run(
                agents,
                interval_s=args.interval,
                duration_s=args.duration,
                tls=tls_context(pinned_ca(backend, keys_dir)) if backend.startswith("https:") else None,
            )
        )
    except KeyboardInterrupt:
        return 0
    if args.duration is not None:
        _print(_figures(agents, stats, took_s, time.process_time() - began_s), args.output)
    return 1 if all(agent.rejected for agent in agents) else 0


def _agents(
    args: argparse.Namespace, backend: str, keys: dict[str, str], stats: FleetStatistics
) -> list[SimulatedAgent]:
    uri = parse_uri(f"ws{backend.removeprefix('http')}/api/agent")
    cache = SimulationCache(args.interval)
    machines = {
        (kind, fault): make_machine(cpus=args.cpus, irqs=args.irqs, kind=kind, seed=args.seed, fault=fault)
        for kind, fault in {(kind_of(index), fault_of(index)) for index in range(args.nodes)}
    }
    return [
        SimulatedAgent(
            SimulatedNode(
                name=name,
                key=key,
                index=index,
                seed=args.seed,
                machine=machines[kind_of(index), fault_of(index)],
                cache=cache,
                stream=secrets.token_hex(8),
            ),
            uri,
            stats,
            record_latencies=args.duration is not None,
            effects=dict(args.effect),
        )
        for index, (name, key) in enumerate(keys.items())
    ]


def _figures(
    agents: list[SimulatedAgent], stats: FleetStatistics, took_s: float, cpu_s: float
) -> dict[str, float | int | None]:
    latencies = sorted(stats.latencies_ms)
    percentiles = statistics.quantiles(latencies, n=100) if len(latencies) > 1 else None
    return {
        "nodes": len(agents),
        "refused": sum(agent.rejected for agent in agents),
        "seconds": round(took_s, 3),
        "sent": stats.sent,
        "acked": stats.acked,
        "unacknowledged": sum(len(agent.node.unacknowledged) for agent in agents),
        "overflowed": sum(agent.node.overflowed for agent in agents),
        "reconnects": stats.reconnects,
        "send_to_ack_p50_ms": round(percentiles[49], 3) if percentiles else None,
        "send_to_ack_p99_ms": round(percentiles[98], 3) if percentiles else None,
        "send_to_ack_max_ms": round(latencies[-1], 3) if latencies else None,
        "cpu_s": round(cpu_s, 3),
    }


def _print(figures: dict[str, float | int | None], form: str) -> None:
    if form == "json":
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:20} {'unknown' if value is None else value}")


def _allow_sockets(nodes: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = nodes + 64
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise SimulationError(f"{nodes} nodes need {needed} open files; this account may have {hard} (ulimit -Hn).")
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _int_between(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"“{text}” is not a number from {low} to {high}")
        return int(text)

    return parse


def _seconds_between(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"“{text}” is not a number of seconds from {low:g} to {high:g}")
        return value

    return parse
