"""`coresteer audit`: verify the chain of the audit log, and export it as JSON Lines."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coresteer.db import Database


class AuditError(Exception):
    """The command cannot be carried out; the message says why."""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `audit` and its actions to the parser."""
    audit = commands.add_parser("audit", help="verify or export the audit log")
    actions = audit.add_subparsers(dest="action", required=True)
    verify = actions.add_parser(
        "verify",
        help="verify that no entry was deleted or altered",
        description="Verify the hash chain over the audit log and name each entry that was deleted or altered. "
        "Exit codes: 0 none was, 1 some were.",
    )
    verify.add_argument("--export", metavar="FILE", help="also compare with what `audit export` wrote earlier")
    actions.add_parser("export", help="print all entries as JSON Lines, oldest first")


async def run(database: "Database", arguments: argparse.Namespace) -> int:
    """Run `coresteer audit`; return its exit code. Raises AuditError, OSError and database errors."""
    if arguments.action == "export":
        await _export(database)
        return 0
    return await _verify(database, exported_hashes(Path(arguments.export)) if arguments.export else {})


async def _verify(database: "Database", exported: dict[int, str]) -> int:
    from coresteer.audit.chain import Finding  # noqa: PLC0415 - imports SQLAlchemy; `up` starts without it
    from coresteer.audit.service import verify  # noqa: PLC0415 - imports SQLAlchemy; `up` starts without it

    wrong = 0
    async for found in verify(database, exported):
        if isinstance(found, Finding):
            wrong += 1
            print(found.sentence)
            continue
        print(f"{found.links:,} entries: {f'{wrong:,} findings' if wrong else 'none was deleted or altered'}.")
        if found.anonymized:
            print(f"Personal fields of {found.anonymized:,} entries were removed; entries `audit.anonymize` say which.")
    return 1 if wrong else 0


async def _export(database: "Database") -> None:
    from coresteer.audit import repository  # noqa: PLC0415 - imports SQLAlchemy; `up` starts without it
    from coresteer.audit.chain import json_line  # noqa: PLC0415 - imports SQLAlchemy; `up` starts without it

    async with database.session() as session:
        async for link in repository.links(session):
            sys.stdout.write(json_line(link) + "\n")


def exported_hashes(path: Path) -> dict[int, str]:
    """Return the hashes by number in a file of JSON Lines. Raises AuditError and OSError.

    Of a number that was exported twice, the first one: a chain that was written anew may have been exported as well.
    A line that was cut off, as by a full disk, is skipped: its entry is written again, perhaps to another file.
    """
    hashes: dict[int, str] = {}
    with path.open("rb") as file:
        for at, line in enumerate(file, 1):
            try:
                entry = json.loads(line)
                hashes.setdefault(int(entry["number"]), str(entry["hash"]))
            except (ValueError, KeyError, TypeError):
                if line.startswith(b"{") and not line.rstrip().endswith(b"}"):
                    continue
                raise AuditError(f"Line {at} of {path} is no entry that `coresteer audit export` wrote.") from None
    return hashes
