"""``coresteer-agent workload``: arguments, execution and output of workloads on the command line."""

import argparse
import logging
import time
from collections.abc import Callable
from typing import TypeVar, get_args

import msgspec
from msgspec import structs

from coresteer_agent.config import ConfigError
from coresteer_agent.workloads.bsp import LIMIT_S
from coresteer_agent.workloads.classes import run
from coresteer_agent.workloads.classes_model import Disturbance, Setup, WorkloadError
from coresteer_agent.workloads.load import Load, Prepared
from coresteer_agent.workloads.traffic_protocol import join_address, parse_cpus, split_address
from coresteer_core.experiments.model import ClassesMethod, Role, Traffic
from coresteer_core.experiments.parallel_jobs import Bsp
from coresteer_core.experiments.workload_spec import WorkloadSpec
from coresteer_core.schema import json_schema

_TRAFFIC: dict[str, type[Traffic]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Traffic)}
_WARMUP_S = 2.0
_START_S = 15.0
_POLL_S = 0.05
_END_S = 5.0
"""More than a program's own limit."""

log = logging.getLogger("coresteer")

T = TypeVar("T", bound=WorkloadSpec)


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
        _add_fields(traffic, workload)
    what = "parallel jobs of processes that exchange messages over TCP, on this machine or two"
    bsp = workloads.add_parser("bsp", help=what, description=what[0].upper() + what[1:] + ".")
    machine = bsp.add_mutually_exclusive_group()
    machine.add_argument(
        "--listen", type=_address, metavar="HOST:PORT", default="", help="be the first of two machines, here"
    )
    machine.add_argument(
        "--join",
        type=_address,
        metavar="HOST:PORT",
        default="",
        help="be the second machine; all other arguments as on the first",
    )
    _add_fields(bsp, Bsp)


def _address(text: str) -> str:
    """Return HOST:PORT, or nothing, as it is. Raises ArgumentTypeError for anything else."""
    try:
        return text and join_address(*split_address(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT") from None


def _add_fields(parser: argparse.ArgumentParser, workload: type[WorkloadSpec]) -> None:
    """Add an option for each field of a workload."""
    described = json_schema(workload)["properties"]
    for field in structs.fields(workload):
        option, about = "--" + field.name.replace("_", "-"), _help(described[field.name])
        if isinstance(field.default, bool):
            parser.add_argument(option, action="store_true", help=about)
            continue
        choices, about = described[field.name].get("enum"), about + " (default: %(default)s)"
        shown = None if choices else "LIST" if field.default == "" else "N"
        kind = type(field.default)
        parser.add_argument(option, type=kind, choices=choices, default=field.default, metavar=shown, help=about)


def _help(field: dict[str, str]) -> str:
    """Return a workload field's label, unit and help text on one line."""
    unit = f" in {field['unit']}" if "unit" in field else ""
    return ". ".join(filter(None, (f"{field['title']}{unit}", field.get("description", "").rstrip("."))))


def main(args: argparse.Namespace) -> int:
    """Run the workload that the arguments select, print its result and return the exit code. Raises ConfigError."""
    try:
        match args.workload:
            case "classes":
                return _classes(args)
            case "bsp":
                return _bsp(args)
            case _:
                return _traffic(args)
    except WorkloadError as error:
        log.error("%s", error)
        return 1


def _traffic(args: argparse.Namespace) -> int:
    if not 0.1 <= args.seconds <= 300:
        raise ConfigError("--seconds must be from 0.1 to 300.")
    workload = _from_fields(args, _TRAFFIC[args.workload])
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


def _bsp(args: argparse.Namespace) -> int:
    role: Role = "server" if args.listen else "client" if args.join else "alone"
    if role != "alone":
        args.machines = 2
    workload = _from_fields(args, Bsp)
    prepared = Prepared(workload, role, address=args.listen)
    load = Load(prepared)
    try:
        _until(lambda: prepared.ready, prepared)
        load.start(workload, role, args.join)
        _until(lambda: load.done, load, LIMIT_S + _END_S)
        figures = load.figures()
    finally:
        load.stop()
        prepared.close()
    _print({"workload": workload, "figures": figures})
    return 0


def _from_fields(args: argparse.Namespace, kind: type[T]) -> T:
    """Return the workload that the arguments describe. Raises ConfigError."""
    fields = {field.name: getattr(args, field.name) for field in structs.fields(kind)}
    try:
        workload = msgspec.convert(fields, kind)
        for name, value in fields.items():
            if name.endswith("cpus"):
                parse_cpus(value)
    except ValueError as error:
        raise ConfigError(f"The arguments of the workload are not valid: {error}.") from None
    return workload


def _until(ready: Callable[[], bool], load: Prepared | Load, limit_s: float = _START_S) -> None:
    """Poll ready() until it is true. Raises WorkloadError if the load fails or is not ready within the limit."""
    until_s = time.monotonic() + limit_s
    while not ready():
        if load.failed is not None:
            raise WorkloadError(load.failed)
        if time.monotonic() > until_s:
            raise WorkloadError(f"The load was not ready after {limit_s:g} s.")
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
