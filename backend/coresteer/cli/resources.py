"""A command for each operation of the API: `coresteer nodes list`, `coresteer policies enable ID`, ….

The commands come from the OpenAPI document (operations.py). Changes, stops and experiments are previewed first.
"""

import argparse
import json
import sys
from typing import Any  # Any: bodies and answers are JSON of any shape

from coresteer.cli import experiment, report
from coresteer.cli.api_client import ENVIRONMENT, ApiClient
from coresteer.cli.api_request import UsageError, body_options, read_body, send
from coresteer.cli.exit_codes import ExitCode
from coresteer.cli.operations import Argument, Operation, stored
from coresteer.cli.output import Format, rendered
from coresteer.cli.watch import GOOD_ENDS, watched

EXIT_CODES = f"""exit codes:
  0  done; what --watch followed ended well
  1  failed: the backend refused or does not answer, or what --watch followed did not end well
  2  wrong usage, the request is not valid, or you did not agree
  3  nothing is done yet: it waits for the approval of another operator

{ENVIRONMENT}"""
_PREVIEWS = {"apply_plan": "preview_plan", "begin_stop": "preview_stop", "start_experiment": "preview_experiment"}
"""Operations that are previewed before they ask, with the operation that previews them."""
_ASKS = {
    "approve",
    "create_change_window",
    "disable_policy",
    "enable_policy",
    "lift_stop",
    "pause_proof",
    "restore_stop",
    "resume_proof",
    "revoke_key",
    "roll_back_change",
    "start_rollout",
    "stop_rollout",
}
"""Operations that ask besides those and deletions: they change what nodes do, and nothing previews them."""
_WATCHED = {
    **dict.fromkeys(("apply_plan", "get_change", "roll_back_change"), "get_change"),
    **dict.fromkeys(("start_rollout", "get_rollout"), "get_rollout"),
    **dict.fromkeys(("start_simulation", "get_simulation"), "get_simulation"),
}
"""Operations that answer with something that has an end, with the operation that returns its present state."""
_GOOD_ENDS = {"roll_back_change": ("rolled_back",)}
"""How what an operation began ends well, where that is not the usual."""
_FORMER = {"experiments": "experiment", "reports": "report"}
"""Names of groups before release 0.3.0, which still work."""
_WITH_SETTINGS = ("apply_plan", "preview_plan")
_OF_PREVIEWED_CHANGE = {"desired", "allow_isolated"}
"""Fields of a body for apply_plan that its preview takes."""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", only: str | None = None) -> None:
    """Add a command for each resource of the API, with its operations and what else there is for it below it.

    only: the resource whose operations are needed, which takes a tenth of the time; None adds those of all.
    """
    only = next((name for name, former in _FORMER.items() if former == only), only)
    groups: dict[str, argparse._SubParsersAction[argparse.ArgumentParser]] = {}
    by_id = {each.id: each for each in stored()}
    for operation in by_id.values():
        if operation.group not in groups:
            group = commands.add_parser(
                operation.group,
                aliases=[name for name in [_FORMER.get(operation.group)] if name],
                help=f"{operation.group.replace('-', ' ')}, by the API",
            )
            groups[operation.group] = group.add_subparsers(dest="action", required=True)
        if only in (None, operation.group):
            previews = by_id.get(_PREVIEWS.get(operation.id, ""))
            _add_operation(groups[operation.group], operation, [] if previews is None else previews.arguments)
    experiment.add_commands(groups["experiments"])
    report.add_commands(groups["reports"])


def _add_operation(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]", operation: Operation, of_preview: list[Argument]
) -> None:
    text = operation.help.replace("%", "%%")
    command = actions.add_parser(
        operation.name,
        help=text,
        description=text,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(operation=operation, run_with=run)
    own = {each.name for each in operation.arguments}
    for argument in (*operation.arguments, *(each for each in of_preview if each.name not in own)):
        _add_argument(command, argument)
    if operation.body:
        what = "JSON or YAML" if operation.body == "application/json" else "content"
        command.add_argument("--body", metavar="FILE", help=f"{what} of the request, - for stdin; options override")
    if operation.id in _WITH_SETTINGS:
        command.add_argument(
            "--set", action="append", metavar="KEY=VALUE", help="a setting and its value, irq/41/affinity=2-3"
        )
    if operation.id in _PREVIEWS or operation.id in _ASKS or operation.method == "DELETE":
        command.add_argument("--yes", "-y", action="store_true", help="do not ask")
    if operation.id in _WATCHED:
        command.add_argument("--watch", action="store_true", help="show progress until it ends; 1 if it ends badly")
    command.add_argument(
        "-o", "--output", choices=["json", "yaml", "table"], help="default: table on a terminal, else json"
    )


def _add_argument(command: argparse.ArgumentParser, argument: Argument) -> None:
    settings: dict[str, Any] = {"help": argument.help.replace("%", "%%") or None}
    if argument.place == "path":
        command.add_argument(argument.name, metavar="NODE" if argument.kind == "node" else None, **settings)
        return
    if argument.kind == "switch":
        settings["action"] = argparse.BooleanOptionalAction
    else:
        kinds: dict[str, type] = {"integer": int, "number": float}
        settings |= {"type": kinds.get(argument.kind, str), "choices": argument.choices or None}
        settings["metavar"] = {"map": "KEY=VALUE", "node": "NODE"}.get(argument.kind)
        if argument.many or argument.kind == "map":
            settings["action"] = "append"
    command.add_argument(argument.option, dest=argument.name, required=argument.required, default=None, **settings)


def run(arguments: argparse.Namespace, client: ApiClient) -> int:
    """Run a command; return its exit code. Raises UsageError, ApiError, UnreachableError and OSError."""
    operation: Operation = arguments.operation
    by_id = {each.id: each for each in stored()}
    body = read_body(client, operation, arguments)
    if operation.id in _PREVIEWS:
        body = _agreed(operation, by_id[_PREVIEWS[operation.id]], arguments, client, body)
    elif "yes" in arguments:
        named = (str(getattr(arguments, each.name)) for each in operation.arguments if each.place == "path")
        _ask(f"{operation.help} ({' '.join((operation.group, *named))})", arguments)
    content = send(client, operation, arguments, body)
    if operation.is_file:
        sys.stdout.buffer.write(content)
        return ExitCode.DONE
    answer = client.parsed(content) if content else None
    is_well = True
    if getattr(arguments, "watch", False):
        answer = watched(client, by_id[_WATCHED[operation.id]], answer)
        is_well = answer["state"] in _GOOD_ENDS.get(operation.id, GOOD_ENDS)
    form: Format = arguments.output or ("table" if sys.stdout.isatty() else "json")
    if answer is not None:
        print(rendered(answer, form))
    if form == "table" and isinstance(answer, dict) and answer.get("older") is not None:
        print(f"There are more: --older-than {answer['older']}", file=sys.stderr)
    return ExitCode.DONE if is_well else ExitCode.FAILED


def _agreed(
    operation: Operation, previews: Operation, arguments: argparse.Namespace, client: ApiClient, body: dict[str, Any]
) -> dict[str, Any]:
    """Show what the operation would do, ask, and return its body. Raises UsageError if there is nothing to do."""
    if operation.id == "apply_plan" and "plan" in body:  # of an earlier preview
        _ask(_plan(body["plan"]), arguments)
        return body
    if operation.id == "apply_plan":
        own = body.keys() - _OF_PREVIEWED_CHANGE
    else:
        own = {each.name for each in operation.arguments} - {each.name for each in previews.arguments}
    asked = {name: value for name, value in body.items() if name not in own}
    asked |= body_options(client, previews, arguments)
    effect = json.loads(send(client, previews, arguments, asked))
    if effect.get("blocked_because"):
        raise UsageError(effect["blocked_because"])
    said = effect.get("sentence") or rendered(effect, "table")
    if operation.id == "apply_plan":
        body = {name: value for name, value in body.items() if name in own} | {"plan": effect["plan"]}
        if not effect["plan"]["actions"]:
            raise UsageError(said)
        said = f"{said}\n{_plan(effect['plan'])}"
    _ask(said, arguments)
    return body


def _plan(plan: Any) -> str:  # noqa: ANN401 - JSON, perhaps of a file
    try:
        return "\n".join(f"  {each['key']}: {each['was']} → {each['becomes']}" for each in plan["actions"])
    except (KeyError, TypeError):
        raise UsageError("plan is not one that `coresteer changes preview` printed.") from None


def _ask(sentence: str, arguments: argparse.Namespace) -> None:
    """Print what would be done and return if the person agrees. Raises UsageError."""
    print(sentence, file=sys.stderr)
    if arguments.yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("Nothing was done: nobody can be asked here; add --yes.")
    print("Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("Nothing was done.")
