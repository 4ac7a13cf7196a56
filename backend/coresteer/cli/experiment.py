"""`coresteer experiments run` and `watch`: start an experiment and follow it to its end, for people and for scripts."""

# Imports that only some commands need are local: every command of `coresteer` loads this module for its help.
# ruff: noqa: PLC0415

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from coresteer.cli.api_client import ENVIRONMENT
from coresteer.cli.api_request import UsageError, find_node
from coresteer.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from coresteer.cli.api_client import ApiClient

Json: TypeAlias = dict[str, Any]  # Any: answers of the API

_OPEN = ("queued", "running")
_HEAVY = ("spec", "runs", "analysis", "metrics", "machine", "settings")

EXIT_CODES = f"""exit codes:
  0  done; a watched experiment was measured to its end
  1  failed, the backend does not answer, or watching was interrupted
  2  wrong usage, or the backend refuses the experiment
  3  stopped by a guardrail, or cancelled
  4  with --fail-if-worse: the primary metric is worse than the baseline's

{ENVIRONMENT}"""


def add_commands(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands to `experiments`."""
    run = _action(actions, "run", "start an experiment and watch it until it ends; Ctrl-C stops watching only")
    run.add_argument("spec", nargs="?", help="file with the experiment as JSON (the API's Spec); - for stdin")
    run.add_argument("--template", metavar="SLUG", help="instead of a file: a template, prepared for --node")
    run.add_argument("--node", metavar="NAME", help="the node under test; replaces node_id of the file")
    run.add_argument("--peer", metavar="NAME", help="the node that generates the traffic")
    run.add_argument(
        "--set", metavar="FIELD=VALUE", action="append", default=[], help="override a number or text, e.g. blocks=8"
    )
    run.add_argument("--no-wait", action="store_true", help="return as soon as it is queued")
    watch = _action(actions, "watch", "watch an experiment until it ends")
    watch.add_argument("id", type=int)
    for each in (run, watch):
        each.add_argument(
            "--fail-if-worse",
            action="store_true",
            help="exit with 4 if the primary metric is worse",
        )


def add_output_option(parser: argparse.ArgumentParser) -> None:
    """Add the option -o (output format) to the parser."""
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
    parser.set_defaults(run_with=run)
    add_output_option(parser)
    return parser


def run(arguments: argparse.Namespace, client: "ApiClient") -> int:
    """Run one of the commands; return its exit code. Raises ApiError, UnreachableError, UsageError and OSError."""
    as_json = arguments.output == "json"
    if arguments.action == "run":
        return _run(arguments, client, as_json=as_json)
    return _watch(client, arguments.id, as_json=as_json, lines=as_json, fail_if_worse=arguments.fail_if_worse)


def _run(arguments: argparse.Namespace, client: "ApiClient", *, as_json: bool) -> int:
    spec = _spec(arguments, client)
    preview = client.post("/experiments/preview", {"spec": spec})
    about = sys.stderr if as_json else sys.stdout
    print(preview["sentence"], file=about)
    for sentence in preview["warnings"]:
        print(f"Note: {sentence}", file=about)
    if preview["blocked_because"] is not None:
        raise UsageError(f"The experiment cannot be started: {preview['blocked_because']}")
    if arguments.fail_if_worse:
        own = spec["primary"].startswith("app.")
        _better(spec["primary"], {"metrics": _application_metrics(client)} if own else {})
    started = client.post("/experiments", {"spec": spec})
    print(f"Experiment {started['id']} on {started['node_name']}, seed {started['seed']}.", file=about, flush=True)
    if arguments.no_wait:
        if as_json:
            print(json.dumps(started))
        return ExitCode.DONE
    return _watch(client, started["id"], as_json=as_json, lines=False, fail_if_worse=arguments.fail_if_worse)


def _spec(arguments: argparse.Namespace, client: "ApiClient") -> Json:
    """Return the requested spec as JSON for the API."""
    if (arguments.spec is None) == (arguments.template is None):
        raise UsageError("Specify either a file with an experiment, or --template with --node.")
    node_id, peer_id = (None if name is None else find_node(client, name) for name in (arguments.node, arguments.peer))
    if arguments.template is None:
        nodes = {"node_id": node_id, "peer_node_id": peer_id}
        spec = _from_file(arguments.spec) | {name: number for name, number in nodes.items() if number is not None}
    elif node_id is None:
        raise UsageError("A template requires a node; specify it with --node.")
    else:
        spec = _from_template(client, arguments.template, node_id, peer_id)
    return spec | _overrides(arguments.set)


def _from_file(name: str) -> Json:
    try:
        spec = json.loads(sys.stdin.read() if name == "-" else Path(name).read_text())
    except ValueError as error:
        raise UsageError(f"{name} is not valid JSON: {error}.") from None
    if not isinstance(spec, dict):
        raise UsageError(f"{name} is not a JSON object; it must be a Spec of the API.")
    return spec


def _from_template(client: "ApiClient", slug: str, node_id: int, peer_id: int | None) -> Json:
    templates = client.get(f"/nodes/{node_id}/experiment-templates", peer_node_id=peer_id)
    found = next((each for each in templates if each["slug"] == slug), None)
    if found is None:
        known = ", ".join(each["slug"] for each in templates)
        raise UsageError(f"There is no template {slug}; choose one of {known}.")
    if found["spec"] is None:
        raise UsageError(f"{slug} is not available on this node: {found['unavailable_because']}")
    spec: Json = found["spec"]
    return spec


def _overrides(given: list[str]) -> Json:
    """Parse FIELD=VALUE arguments into fields of a spec."""
    from coresteer.experiments.spec import Spec

    allowed = ("name", "primary", "warmup_s", "measure_s", "settle_s", "blocks", "aa_blocks", "seed")
    assert set(allowed) <= set(Spec.__struct_fields__)  # noqa: S101 - detects a renamed field
    found: Json = {}
    for text in given:
        field, equals, value = text.partition("=")
        if field not in allowed or not equals:
            raise UsageError(f"--set {text}: expected FIELD=VALUE with one of {', '.join(allowed)}.")
        if field in ("name", "primary"):
            found[field] = value
            continue
        try:
            found[field] = float(value) if field.endswith("_s") else int(value)
        except ValueError:
            raise UsageError(f"--set {text}: {value!r} is not a valid number for {field}.") from None
    return found


def _watch(client: "ApiClient", experiment_id: int, *, as_json: bool, lines: bool, fail_if_worse: bool) -> int:
    """Watch an experiment until it ends; return the exit code. lines: also print each step as JSON."""
    try:
        experiment = _follow(client, experiment_id, as_json=as_json, lines=lines, fail_if_worse=fail_if_worse)
    except KeyboardInterrupt:
        print(
            f"The experiment continues; watch it with `coresteer experiments watch {experiment_id}`.", file=sys.stderr
        )
        return ExitCode.FAILED
    if as_json:
        print(json.dumps(experiment), flush=True)
    else:
        found = experiment["findings"] if experiment["state"] == "done" else [experiment["sentence"]]
        print("\n".join([f"Experiment {experiment_id}: {experiment['state']}.", *found]))
    if experiment["state"] == "done":
        return ExitCode.WORSE if fail_if_worse and is_primary_worse(experiment) else ExitCode.DONE
    return ExitCode.FAILED if experiment["state"] == "failed" else ExitCode.ENDED_EARLY


def _follow(client: "ApiClient", experiment_id: int, *, as_json: bool, lines: bool, fail_if_worse: bool) -> Json:
    """Print progress until the experiment has ended; return it."""
    from coresteer.cli import api_client

    printed: Json = {}
    while True:
        experiment: Json = api_client.through_outages(lambda: client.get(f"/experiments/{experiment_id}"))
        if fail_if_worse:
            _better(experiment["primary"], experiment)
        if experiment["state"] not in _OPEN:
            return experiment
        step = {name: value for name, value in experiment.items() if name not in _HEAVY}
        steady = {name: value for name, value in step.items() if name != "remaining_s"}
        if steady != printed:
            printed = steady
            if lines:
                print(json.dumps(step), flush=True)
            elif not as_json:
                print(_progress(step), flush=True)
        time.sleep(api_client.POLL_S)


def _application_metrics(client: "ApiClient") -> Json:
    return {f"app.{metric['name']}": metric for metric in client.get("/application-metrics")}


def is_primary_worse(experiment: Json) -> bool:
    """Return whether the primary metric is worse than the baseline's at any level, by the verdicts of the analysis."""
    primary = experiment["primary"]
    worse = "lower" if _better(primary, experiment) == "more" else "higher"
    comparisons = experiment["analysis"]["comparisons"]
    return any(each["metric"] == primary and each["verdict"] == worse for each in comparisons)


def _better(primary: str, experiment: Json) -> str:
    """Return whether more or less is better. experiment: of which the metrics are read."""
    from coresteer_core.metrics import EXPERIMENT_METRICS

    better = EXPERIMENT_METRICS[primary].better if primary in EXPERIMENT_METRICS else ""
    better = better or experiment.get("metrics", {}).get(primary, {}).get("better", "")
    if not better:
        raise UsageError(f"--fail-if-worse: {primary} has no better or worse direction.")
    return better


def _progress(step: Json) -> str:
    if step["state"] == "queued":
        return f"Queued, position {step['queue_position']} on {step['node_name']}."
    left = "" if step["remaining_s"] is None else f", about {_time(step['remaining_s'])} left"
    discarded = f", {step['runs_discarded']} discarded" if step["runs_discarded"] else ""
    return f"{step['runs_done']} of {step['runs_planned']} runs{discarded}{left}: {step['activity']}"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
