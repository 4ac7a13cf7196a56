"""`coresteer export`, `plan`, `apply` and `schema`: configuration as YAML files."""

# Imports that only some commands need are local: every command of `coresteer` loads this module for its help.
# ruff: noqa: PLC0415

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from coresteer.cli.api_client import ENVIRONMENT
from coresteer.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from coresteer.cli.api_client import ApiClient
    from coresteer.config import Config

COMMANDS = ("export", "plan", "apply", "schema")

EXIT_CODES = f"""exit codes:
  0  plan: no difference; other commands: done
  1  failed: a file is not valid, the backend refused or did not answer, a rollout did not succeed, wrong usage,
     or you did not agree
  2  plan: the backend differs from the files
  3  apply: some of it waits for the approval of another operator, all else is applied

{ENVIRONMENT}"""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands to the parser."""
    export = _command(commands, "export", "write the configuration as YAML files")
    export.add_argument("folder", nargs="?", default="-", help="where to; default: -, one text on stdout")
    plan = _command(commands, "plan", "show what `apply` would change, and what nodes would do; changes nothing")
    apply = _command(commands, "apply", "bring the backend's configuration to what YAML files say")
    for each in (plan, apply):
        each.add_argument("paths", nargs="+", metavar="FILE|FOLDER", help="YAML files, or folders of them; - for stdin")
        each.add_argument(
            "--managed-by",
            metavar="NAME",
            default="git",
            help="name of this set of files; a resource belongs to one set (default: git)",
        )
        each.add_argument(
            "--prune", action="store_true", help="delete what was applied from this set and is no longer in the files"
        )
    apply.add_argument("--yes", action="store_true", help="do not ask")
    apply.add_argument(
        "--wait",
        action="store_true",
        help="wait until approvals are decided and rollouts end, and fail unless they succeed",
    )
    _command(commands, "schema", "print the JSON Schema of the YAML documents, for editors")


class _Parser(argparse.ArgumentParser):
    """Exits with 1 for wrong usage, because 2 says that there are differences."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and exit."""
        self.print_usage(sys.stderr)
        self.exit(ExitCode.FAILED, f"{self.prog}: error: {message}\n")


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, help_text: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=help_text,
        description=f"{help_text[0].upper()}{help_text[1:]}.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.__class__ = _Parser  # add_parser() makes parsers of the main one's class
    return parser


def run(arguments: argparse.Namespace, config: "Config") -> int:
    """Run one of the commands; return its exit code."""
    from coresteer.cli.api_client import ApiError, UnknownBackendError, UnreachableError, environment_client
    from coresteer.cli.gitops import export
    from coresteer.cli.gitops.yaml_files import FileError

    if arguments.command == "schema":
        print(export.schema_text(), end="")
        return ExitCode.DONE
    try:
        return _run(arguments, environment_client(config))
    except (ApiError, UnknownBackendError, UnreachableError) as error:
        print(f"coresteer: {error}", file=sys.stderr)
    except FileError as error:
        print(error, file=sys.stderr)
    return ExitCode.FAILED


def _run(arguments: argparse.Namespace, client: "ApiClient") -> int:
    from coresteer.cli.gitops import apply, export, plan

    if arguments.command == "export":
        if arguments.folder == "-":
            print(export.export_text(client), end="")
            return ExitCode.DONE
        for line in export.export_to(client, Path(arguments.folder)):
            print(line)
        return ExitCode.DONE
    found = plan.make(client, plan.load(arguments.paths), managed_by=arguments.managed_by, prune=arguments.prune)
    for line in plan.describe(client, found):
        print(line)
    if arguments.command == "plan":
        return ExitCode.DIFFERENT if found.differs else ExitCode.DONE
    if found.changes and not (arguments.yes or _confirms()):
        return ExitCode.FAILED
    codes = {
        apply.Applied.ALL: ExitCode.DONE,
        apply.Applied.WAITING: ExitCode.WAITING,
        apply.Applied.NOT_ALL: ExitCode.FAILED,
    }
    return codes[apply.apply(client, found, lambda line: print(line, flush=True), wait=arguments.wait)]


def _confirms() -> bool:
    if not sys.stdin.isatty():
        print("coresteer: Nothing was changed; add --yes to apply without being asked.", file=sys.stderr)
        return False
    print("Apply? [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    print("Nothing was changed.")
    return False
