"""``coresteer-agent workload``: its arguments and what it prints."""

import argparse
import logging
from typing import get_args

import msgspec

from coresteer_agent.config import ConfigError
from coresteer_agent.workloads.classes import Disturbance, Method, Setup, WorkloadError, run

log = logging.getLogger("coresteer")


def add(parser: argparse.ArgumentParser) -> None:
    """One subcommand for each workload."""
    workloads = parser.add_subparsers(title="workloads", required=True, metavar="WORKLOAD", dest="workload")
    what = "an echo server that forks for each request of five service classes, ten threads each"
    classes = workloads.add_parser("classes", help=what, description=what[0].upper() + what[1:] + ".")
    classes.add_argument("--method", choices=get_args(Method), default="default", help="who goes first")
    classes.add_argument("--requests", type=int, default=1_000, metavar="N", help="of each thread, 1 to 10000")
    classes.add_argument("--seed", type=int, default=0, metavar="N", help="of what is left to chance")
    classes.add_argument(
        "--window", type=float, default=2.0, metavar="S", help="what is older is forgotten by gate and weight"
    )
    classes.add_argument("--disturbance", choices=get_args(Disturbance), default="none", help="what goes wrong")
    classes.add_argument("-o", "--output", choices=["json"], default="json", help="the form (default: %(default)s)")


def main(args: argparse.Namespace) -> int:
    """Run it and print its Result. Raises ConfigError for arguments out of bounds."""
    wanted = {
        "method": args.method,
        "requests": args.requests,
        "seed": args.seed,
        "window_s": args.window,
        "disturbance": args.disturbance,
    }
    try:
        setup = msgspec.convert(wanted, Setup)
    except msgspec.ValidationError as error:
        raise ConfigError(f"The workload cannot be run so: {error}.") from None
    try:
        result = run(setup)
    except WorkloadError as error:
        log.error("%s", error)
        return 1
    print(msgspec.json.format(msgspec.json.encode(result), indent=1).decode())  # noqa: T201 - a command's output
    return 0
