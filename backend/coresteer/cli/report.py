"""`coresteer reports export`: write reports to files, through the API."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coresteer.cli.api_request import UsageError
from coresteer.cli.exit_codes import ExitCode
from coresteer.cli.experiment import EXIT_CODES, add_output_option

if TYPE_CHECKING:
    from coresteer.cli.api_client import ApiClient

_FORMATS = ("html", "pdf", "csv", "json", "md")
_LANGUAGES = ("en", "ko")


def add_commands(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to `reports`."""
    export = actions.add_parser(
        "export",
        help="write a report to a file",
        description="Write the report of an experiment, of a change, or of a comparison of two experiments to a file.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    export.add_argument("id", type=int, nargs="*", help="an experiment, or two to compare")
    export.add_argument("--change", metavar="ID", help="instead of an experiment: a change's effect on real traffic")
    export.add_argument("--format", choices=_FORMATS, default="html", help="default: html")
    export.add_argument("--language", choices=_LANGUAGES, default="en", help="default: en")
    export.add_argument("--to", metavar="FILE", help="default: named after the report; - for stdout")
    export.set_defaults(run_with=run)
    add_output_option(export)


def run(arguments: argparse.Namespace, client: "ApiClient") -> int:
    """Run the command; return its exit code. Raises ApiError, UnreachableError, UsageError and OSError."""
    options = {"format": arguments.format, "language": arguments.language}
    match arguments.id, arguments.change:
        case [experiment], None:
            name, query = f"experiment-{experiment}", {}
            path = f"/experiments/{experiment}/report"
        case [first, second], None:
            name, query = f"experiments-{first}-{second}", {"a": first, "b": second}
            path = "/reports/compare"
        case [], str(change):
            name, query = f"change-{change}", {}
            path = f"/changes/{change}/report"
        case _:
            raise UsageError("Specify one experiment, two to compare, or --change with a change.")
    content = client.fetch(path, **query, **options)
    if arguments.to == "-":
        sys.stdout.buffer.write(content)
        return ExitCode.DONE
    file = Path(arguments.to or f"{name}.{arguments.format}")
    file.write_bytes(content)
    written = {"file": str(file), "bytes": len(content)}
    print(json.dumps(written) if arguments.output == "json" else f"{file}: {len(content):,} bytes")
    return ExitCode.DONE
