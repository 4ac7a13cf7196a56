"""``coresteer-agent workload``: arguments, execution and output of workloads on the command line."""

import argparse
import logging
import time
from collections.abc import Callable
from typing import get_args

import msgspec
from msgspec import structs

from coresteer_agent.config import ConfigError
from coresteer_agent.workloads.classes import run
from coresteer_agent.workloads.classes_model import Disturbance, Setup, WorkloadError
from coresteer_agent.workloads.load import Load, Prepared
from coresteer_agent.workloads.traffic_protocol import parse_cpus
from coresteer_core.experiments.model import ClassesMethod, Traffic
from coresteer_core.schema import json_schema

_TRAFFIC: dict[str, type[Traffic]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Traffic)}
_WARMUP_S = 2.0
_START_S = 15.0
_POLL_S = 0.05

log = logging.getLogger("coresteer")


def add(parser: argparse.ArgumentParser) -> None:
    """Add one subcommand per workload to the parser of ``coresteer-agent workload``."""
    workloads = parser.add_subparsers(title="workloads", required=True, metavar="WORKLOAD", dest="workload")
    what = "an echo server that forks for each request of five service classes, ten threads each"
    classes = workloads.add_parser("classes", help=what, description=what[0].upper() + what[1:] + ".")
    classes.add_argument(
        "--method", choices=get_args(ClassesMethod), default="default", help="how the service order is controlled"
    )
    classes.add_argument("--requests", type=int, default=1_000, metavar="N", help="requests of each thread, 1 to 10000")
    classes.add_argument("--seed", type=int, default=0, metavar="N", help="seed of random numbers")
    classes.add_argument(
        "--window", type=float, default=2.0, metavar="S", help="averaging window of the methods gate and weight, s"
    )
    classes.add_argument("--disturbance", choices=get_args(Disturbance), default="none", help="a fault to inject")
    classes.add_argument(
        "-o", "--output", choices=["json"], default="json", help="output format (default: %(default)s)"
    )
    for name, workload in _TRAFFIC.items():
        what = f"{name} from another network namespace to this one, over a veth pair (requires root)"
        traffic = workloads.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
        traffic.add_argument("--seconds", type=float, default=10.0, metavar="S", help="measuring time, 0.1 to 300 s")
        described = json_schema(workload)["properties"]
        for field in structs.fields(workload):
            option, about = "--" + field.name.replace("_", "-"), _help(described[field.name])
            if isinstance(field.default, bool):
                traffic.add_argument(option, action="store_true", help=about)
            else:
                kind, shown = type(field.default), "LIST" if field.default == "" else "N"
                about += " (default: %(default)s)"
                traffic.add_argument(option, type=kind, default=field.default, metavar=shown, help=about)


def _help(field: dict[str, str]) -> str:
    """Return a workload field's label, unit and help text on one line."""
    unit = f" in {field['unit']}" if "unit" in field else ""
    return ". ".join(filter(None, (f"{field['title']}{unit}", field.get("description", "").rstrip("."))))


def main(args: argparse.Namespace) -> int:
    """Run the workload that the arguments select, print its result and return the exit code. Raises ConfigError."""
    try:
        return _classes(args) if args.workload == "classes" else _traffic(args)
    except WorkloadError as error:
        log.error("%s", error)
        return 1


def _traffic(args: argparse.Namespace) -> int:
    kind = _TRAFFIC[args.workload]
    fields = {field.name: getattr(args, field.name) for field in structs.fields(kind)}
    if not 0.1 <= args.seconds <= 300:
        raise ConfigError("--seconds must be from 0.1 to 300.")
    try:
        workload: Traffic = msgspec.convert(fields, kind)
        for cpus in (workload.server_cpus, workload.client_cpus):
            parse_cpus(cpus)
    except ValueError as error:
        raise ConfigError(f"The arguments of the workload are not valid: {error}.") from None
    prepared = Prepared(workload, "alone")
    load = Load(prepared)
    try:
        _until(lambda: prepared.ready, prepared)
        load.start(workload, "alone")
        _until(lambda: load.ready, load)
        time.sleep(min(_WARMUP_S, args.seconds))
        load.begin_window()
        time.sleep(args.seconds)
        load.end_window()
        _until(lambda: True, load)
    finally:
        figures = load.figures()
        load.stop()
        prepared.close()
    _print({"workload": workload, "seconds": args.seconds, "figures": figures})
    return 0


def _until(ready: Callable[[], bool], load: Prepared | Load) -> None:
    """Poll ready() until it is true. Raises WorkloadError if the load fails or is not ready after 15 s."""
    until_s = time.monotonic() + _START_S
    while not ready():
        if load.failed is not None:
            raise WorkloadError(load.failed)
        if time.monotonic() > until_s:
            raise WorkloadError(f"The load was not ready after {_START_S:g} s.")
        time.sleep(_POLL_S)
    if load.failed is not None:
        raise WorkloadError(load.failed)


def _print(result: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(result), indent=1).decode())  # noqa: T201 - a command's output


def _classes(args: argparse.Namespace) -> int:
    fields = {
        "method": args.method,
        "requests": args.requests,
        "seed": args.seed,
        "window_s": args.window,
        "disturbance": args.disturbance,
    }
    try:
        setup = msgspec.convert(fields, Setup)
    except msgspec.ValidationError as error:
        raise ConfigError(f"The arguments of the workload are not valid: {error}.") from None
    _print(run(setup))
    return 0
