"""`coresteer backup` and `coresteer restore-backup`: backups of the built-in database and recovery from them."""

import argparse
import asyncio
from datetime import UTC, datetime
from pathlib import Path

from coresteer.cli.supervisor import only_one
from coresteer.config import Config
from coresteer.postgres.backup import BackupError, back_up, restore_backup


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the two commands to `coresteer`."""
    commands.add_parser("backup", help="copy the running built-in database to CORESTEER_BACKUP_DIR")
    restore = commands.add_parser(
        "restore-backup", help="replace the built-in database by its newest state in CORESTEER_BACKUP_DIR"
    )
    restore.add_argument(
        "--to", type=_moment, metavar="TIME", help="its state at this moment instead, such as 2026-11-22T16:20:00Z"
    )


def run(arguments: argparse.Namespace, config: Config) -> int:
    """Run one of the two commands; return its exit code. Raises BackupError and StartError."""
    if config.database_url is not None:
        raise BackupError(
            "DATABASE_URL names a database that Coresteer does not operate; docs/BACKUP.md has the commands for it."
        )
    if config.backup_dir is None:
        raise BackupError("Name the folder for backups in CORESTEER_BACKUP_DIR.")
    if arguments.command == "backup":
        backup = asyncio.run(back_up(config.state_dir, config.backup_dir, config.pg_bin))
        print(f"Backup {backup.folder}, {_mebibytes(backup.folder):.0f} MiB, verified.")
        print(f"Every moment from {_utc(backup.ended)} on can be restored with `coresteer restore-backup --to TIME`.")
        return 0
    with only_one(config.state_dir, config.public_address):
        restored = asyncio.run(restore_backup(config.state_dir, config.backup_dir, config.pg_bin, arguments.to))
    last = restored.last or restored.backup.ended
    print(f"Restored the database from {restored.backup.folder.name}; its last transaction is of {_utc(last)}.")
    if restored.former is not None:
        print(f"The data that were in place are in {restored.former}; delete them when all is well.")
    if arguments.to is not None:
        print("Agent keys, tokens and users that were revoked after that moment are valid again: revoke them again.")
    return 0


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-11-22T16:20:00Z") from None
    if moment.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone; {text}Z is UTC")
    return moment


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _mebibytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
