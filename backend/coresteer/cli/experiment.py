"""`coresteer experiment`: run, watch, list and cancel experiments through the API, for people and for scripts."""

# What only some commands need is imported there: every command of `coresteer` passes here for its help.
# ruff: noqa: PLC0415

import argparse
import json
import sys
import time
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from coresteer.cli.api_client import Client

Json: TypeAlias = dict[str, Any]  # Any: as the API answers

POLL_S = 2.0
AWAY_S = 600.0
"""So long an experiment is watched on while the backend does not answer; it goes on by itself after a restart."""
_OPEN = ("queued", "running")
_HEAVY = ("spec", "runs", "analysis", "metrics", "machine", "settings")


class Exit(IntEnum):
    """How these commands end."""

    MEASURED = 0
    FAILED = 1
    USAGE = 2
    ENDED_EARLY = 3
    WORSE = 4


EXIT_CODES = """exit codes:
  0  done; an experiment that was watched ended and was measured
  1  it failed, the backend does not answer, or the watching was interrupted
  2  wrong usage, or an experiment that the backend refuses
  3  it was stopped by a guardrail or cancelled
  4  with --fail-if-worse: measured, and the primary figure is worse than the baseline's

CORESTEER_URL is the backend's address (default: this machine's), CORESTEER_TOKEN an API token of it."""


class UsageError(Exception):
    """What was asked for cannot be; the message says why."""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """`experiment` and what it can do."""
    experiment = commands.add_parser("experiment", help="run, watch, list and cancel experiments")
    actions = experiment.add_subparsers(dest="action", required=True)

    run = _action(actions, "run", "start an experiment and watch it until it ends; Ctrl-C ends the watching alone")
    run.add_argument("spec", nargs="?", help="file with the experiment as JSON (the API's Spec); - for stdin")
    run.add_argument("--template", metavar="SLUG", help="the experiment of a paper instead, made for --node")
    run.add_argument("--node", metavar="NAME", help="the node, in the place of a file's node_id")
    run.add_argument("--peer", metavar="NAME", help="the node from which the traffic comes")
    run.add_argument(
        "--set", metavar="FIELD=VALUE", action="append", default=[], help="another number or text, such as blocks=8"
    )
    run.add_argument("--no-wait", action="store_true", help="return as soon as it is queued")
    watch = _action(actions, "watch", "watch an experiment until it ends")
    watch.add_argument("id", type=int)
    for each in (run, watch):
        each.add_argument("--fail-if-worse", action="store_true", help="exit with 4 where the primary figure got worse")

    listed = _action(actions, "list", "the newest experiments")
    listed.add_argument("--node", metavar="NAME", help="of one node")
    listed.add_argument("--state", help="in one state, such as running")
    cancel = _action(actions, "cancel", "end an experiment; what it changed goes back")
    cancel.add_argument("id", type=int)


def add_output(parser: argparse.ArgumentParser) -> None:
    """`-o`."""
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")


def _action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, help_text: str
) -> argparse.ArgumentParser:
    parser = actions.add_parser(
        name,
        help=help_text,
        description=f"{help_text[0].upper()}{help_text[1:]}.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_output(parser)
    return parser


def run(arguments: argparse.Namespace, client: "Client") -> int:
    """Carry one out. Raises ApiError, AwayError, UsageError and OSError."""
    as_json = arguments.output == "json"
    match arguments.action:
        case "run":
            return _run(arguments, client, as_json=as_json)
        case "watch":
            return _watch(client, arguments.id, as_json=as_json, lines=as_json, fail_if_worse=arguments.fail_if_worse)
        case "list":
            page = client.get("/api/experiments", node_id=_node_id(client, arguments.node), state=arguments.state)
            lines = [_line(each) for each in page["experiments"]] or ["There is no such experiment."]
            print(json.dumps(page) if as_json else "\n".join(lines))
        case "cancel":
            told = client.post(f"/api/experiments/{arguments.id}/cancel")
            print(json.dumps(told) if as_json else f"Experiment {told['id']}: {told['state']}. {told['sentence']}")
    return Exit.MEASURED


def _run(arguments: argparse.Namespace, client: "Client", *, as_json: bool) -> int:
    spec = _spec(arguments, client)
    preview = client.post("/api/experiments/preview", {"spec": spec})
    about = sys.stderr if as_json else sys.stdout
    print(preview["sentence"], file=about)
    for sentence in preview["warnings"]:
        print(f"Note: {sentence}", file=about)
    if preview["blocked_because"] is not None:
        raise UsageError(f"It cannot be started: {preview['blocked_because']}")
    if arguments.fail_if_worse:
        _better(spec["primary"])
    started = client.post("/api/experiments", {"spec": spec})
    print(f"Experiment {started['id']} on {started['node_name']}, seed {started['seed']}.", file=about, flush=True)
    if arguments.no_wait:
        if as_json:
            print(json.dumps(started))
        return Exit.MEASURED
    return _watch(client, started["id"], as_json=as_json, lines=False, fail_if_worse=arguments.fail_if_worse)


def _spec(arguments: argparse.Namespace, client: "Client") -> Json:
    """The experiment that is asked for, as the API takes it."""
    if (arguments.spec is None) == (arguments.template is None):
        raise UsageError("Give either a file with an experiment or --template with --node.")
    node_id, peer_id = _node_id(client, arguments.node), _node_id(client, arguments.peer)
    if arguments.template is None:
        nodes = {"node_id": node_id, "peer_node_id": peer_id}
        spec = _from_file(arguments.spec) | {name: number for name, number in nodes.items() if number is not None}
    elif node_id is None:
        raise UsageError("A template is made for a node; name it with --node.")
    else:
        spec = _from_template(client, arguments.template, node_id, peer_id)
    return spec | _overrides(arguments.set)


def _from_file(name: str) -> Json:
    try:
        spec = json.loads(sys.stdin.read() if name == "-" else Path(name).read_text())
    except ValueError as error:
        raise UsageError(f"{name} is no JSON: {error}.") from None
    if not isinstance(spec, dict):
        raise UsageError(f"{name} is no JSON object; it must be an experiment as the API takes it.")
    return spec


def _from_template(client: "Client", slug: str, node_id: int, peer_id: int | None) -> Json:
    templates = client.get(f"/api/nodes/{node_id}/experiment-templates", peer_node_id=peer_id)
    found = next((each for each in templates if each["slug"] == slug), None)
    if found is None:
        known = ", ".join(each["slug"] for each in templates)
        raise UsageError(f"There is no template {slug} for this node; there are {known}.")
    if found["spec"] is None:
        raise UsageError(f"{slug} cannot be had there: {found['unavailable_because']}")
    spec: Json = found["spec"]
    return spec


def _overrides(given: list[str]) -> Json:
    """FIELD=VALUE of the numbers and texts of an experiment."""
    from coresteer.experiments.spec import Spec

    may = ("name", "primary", "warmup_s", "measure_s", "settle_s", "blocks", "aa_blocks", "seed")
    assert set(may) <= set(Spec.__struct_fields__)  # noqa: S101 - so that no name here is forgotten there
    found: Json = {}
    for text in given:
        field, equals, value = text.partition("=")
        if field not in may or not equals:
            raise UsageError(f"--set {text}: it takes FIELD=VALUE, the field being one of {', '.join(may)}.")
        if field in ("name", "primary"):
            found[field] = value
            continue
        try:
            found[field] = float(value) if field.endswith("_s") else int(value)
        except ValueError:
            raise UsageError(f"--set {text}: {value!r} is no number that {field} could be.") from None
    return found


def _node_id(client: "Client", name: str | None) -> int | None:
    if name is None:
        return None
    nodes = client.get("/api/nodes")
    found = next((node["id"] for node in nodes if node["name"] == name), None)
    if found is None:
        raise UsageError(f"There is no node {name}; there are {', '.join(node['name'] for node in nodes) or 'none'}.")
    return int(found)


def _watch(client: "Client", experiment_id: int, *, as_json: bool, lines: bool, fail_if_worse: bool) -> int:
    """Until it ends. lines: each step as JSON, too."""
    try:
        experiment = _follow(client, experiment_id, as_json=as_json, lines=lines, fail_if_worse=fail_if_worse)
    except KeyboardInterrupt:
        print(f"It goes on; see it again with `coresteer experiment watch {experiment_id}`.", file=sys.stderr)
        return Exit.FAILED
    if as_json:
        print(json.dumps(experiment), flush=True)
    else:
        found = experiment["findings"] if experiment["state"] == "done" else [experiment["sentence"]]
        print("\n".join([f"Experiment {experiment_id}: {experiment['state']}.", *found]))
    if experiment["state"] == "done":
        return Exit.WORSE if fail_if_worse and is_worse(experiment) else Exit.MEASURED
    return Exit.FAILED if experiment["state"] == "failed" else Exit.ENDED_EARLY


def _follow(client: "Client", experiment_id: int, *, as_json: bool, lines: bool, fail_if_worse: bool) -> Json:
    """The experiment once it has ended."""
    told: Json = {}
    answered = time.monotonic()
    while True:
        experiment = _ask(client, experiment_id, answered)
        if experiment is not None:
            answered = time.monotonic()
            if fail_if_worse:
                _better(experiment["primary"])
            if experiment["state"] not in _OPEN:
                return experiment
            step = {name: value for name, value in experiment.items() if name not in _HEAVY}
            steady = {name: value for name, value in step.items() if name != "remaining_s"}
            if steady != told:
                told = steady
                if lines:
                    print(json.dumps(step), flush=True)
                elif not as_json:
                    print(_progress(step), flush=True)
        time.sleep(POLL_S)


def _ask(client: "Client", experiment_id: int, answered: float) -> Json | None:
    """The experiment; None while the backend is away for a time."""
    from coresteer.cli.api_client import AwayError

    try:
        experiment: Json = client.get(f"/api/experiments/{experiment_id}")
    except AwayError as error:
        if time.monotonic() - answered > AWAY_S:
            raise
        print(f"coresteer: {error} Trying again.", file=sys.stderr, flush=True)
        return None
    return experiment


def is_worse(experiment: Json) -> bool:
    """Whether the primary figure of any level is worse than the baseline's, by the verdicts of the analysis."""
    primary = experiment["primary"]
    worse = "lower" if _better(primary) == "more" else "higher"
    comparisons = experiment["analysis"]["comparisons"]
    return any(each["metric"] == primary and each["verdict"] == worse for each in comparisons)


def _better(primary: str) -> str:
    from coresteer_core.metrics import EXPERIMENT

    better = EXPERIMENT[primary].better if primary in EXPERIMENT else ""
    if not better:
        raise UsageError(f"--fail-if-worse: neither more nor less of {primary} is worse by itself.")
    return better


def _progress(step: Json) -> str:
    if step["state"] == "queued":
        return f"Queued, position {step['queue_position']} on {step['node_name']}."
    left = "" if step["remaining_s"] is None else f", about {_time(step['remaining_s'])} left"
    discarded = f", {step['runs_discarded']} discarded" if step["runs_discarded"] else ""
    return f"{step['runs_done']} of {step['runs_planned']} runs{discarded}{left}: {step['activity']}"


def _line(each: Json) -> str:
    runs = f"{each['runs_done']}/{each['runs_planned']}"
    return (
        f"{each['id']:>5}  {each['state']:9}  {runs:>9}  {each['created_at'][:16]}  {each['node_name']}  {each['name']}"
    )


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
