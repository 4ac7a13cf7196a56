"""The command `coresteer`. Exit codes unless a command has its own: 0 done, 1 failed with a sentence, 2 wrong usage."""

import argparse
import asyncio
import getpass
import json
import os
import signal
import sys
import tomllib
from collections.abc import Awaitable, Callable
from importlib import metadata
from typing import TYPE_CHECKING, TypeVar

import pydantic
import pydantic_settings

from coresteer.cli import audit, backup, enrolment, papers, resources, simulation, supervisor, top
from coresteer.cli.api_request import UsageError
from coresteer.cli.exit_codes import ExitCode
from coresteer.cli.gitops import commands as gitops
from coresteer.config import CONFIG_FILE, Config
from coresteer.extras import MissingExtraError
from coresteer.listen import ListenError
from coresteer.postgres import PostgresError, running_url

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

    from coresteer.cli.api_client import ApiClient
    from coresteer.db import Database

# Modules that only some commands need are imported there: `up` starts its children half a second earlier.
# ruff: noqa: PLC0415

T = TypeVar("T")


class CommandError(Exception):
    """The command cannot be carried out; the message says why and what to do."""


def main(argv: list[str] | None = None) -> int:
    """Run one command of `coresteer`; return its exit code."""
    given = sys.argv[1:] if argv is None else argv
    parser = _parser(given[0] if given else "")
    arguments, unknown = parser.parse_known_args(given)
    if unknown and arguments.command in gitops.COMMANDS:  # of which argparse informs the main parser only
        print(f"coresteer {arguments.command}: error: unrecognized arguments: {' '.join(unknown)}", file=sys.stderr)
        raise SystemExit(ExitCode.FAILED)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")

    def work() -> int:
        options = ("port", "tls", "tls_cert", "tls_key", "tls_client_ca")
        given = {name: getattr(arguments, name, None) for name in options}
        config = Config(**{name: value for name, value in given.items() if value is not None})
        return _run(arguments, config)

    return _reported(work, arguments)


def _reported(work: Callable[[], int], arguments: argparse.Namespace) -> int:
    """Return the exit code of work, or 1 after an expected error, whose sentence is printed."""
    try:
        return work()
    except pydantic.ValidationError as error:
        for item in error.errors():  # without a place if settings do not fit together; the message names them then
            place = f"{_setting(str(item['loc'][0]), arguments)}: " if item["loc"] else ""
            print(f"coresteer: {place}{item['msg']}", file=sys.stderr)
    except pydantic_settings.SettingsError:  # of the only setting that is not a plain text there
        print(
            'coresteer: CORESTEER_OIDC_ROLES in the environment must be JSON, such as {"sre": "admin"}.',
            file=sys.stderr,
        )
    except BrokenPipeError:  # who reads the output has enough, as head has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except tomllib.TOMLDecodeError as error:
        print(f"coresteer: {CONFIG_FILE}: {error}", file=sys.stderr)
    except (
        CommandError,
        audit.AuditError,
        enrolment.EnrolmentError,
        PostgresError,
        ListenError,
        MissingExtraError,
        supervisor.StartError,
        simulation.SimulationError,
        papers.PapersError,
        OSError,
    ) as error:
        print(f"coresteer: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        pass
    except Exception as error:
        sentence = _sentence(error)
        if sentence is None:
            raise
        print(f"coresteer: {sentence}", file=sys.stderr)
    return 1


def _setting(name: str, arguments: argparse.Namespace) -> str:
    """Return how the user gave the invalid backend setting: as an option, in the environment or in the file."""
    if getattr(arguments, name, None) is not None:
        return f"--{name.replace('_', '-')}"
    upper = name.upper()
    for variable in (f"CORESTEER_{upper}", *({upper} & {"DATABASE_URL", "PG_BIN"})):
        if variable in os.environ:
            return f"{variable} in the environment"
    return f"{name} in {CONFIG_FILE}"


def _sentence(error: Exception) -> str | None:
    """Return the message of an expected error, None for a defect of the program."""
    import psycopg
    import sqlalchemy.exc
    from alembic.util import CommandError as AlembicError

    from coresteer.db import SchemaVersionError, UnsupportedServerError
    from coresteer.errors import Problem, database_error_message, is_database_unavailable
    from coresteer.telemetry.citus import CitusError

    if isinstance(error, (Problem, SchemaVersionError, UnsupportedServerError, CitusError)):
        return str(error)
    sentence = database_error_message(error)
    if isinstance(error, AlembicError):
        return (
            f"The database's schema cannot be brought to this program's version: {sentence}. If a newer Coresteer "
            "created it, install that one, or name another database in DATABASE_URL."
        )
    if is_database_unavailable(error):
        return f"The database cannot be reached: {sentence}."
    cause = error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) else error
    if isinstance(cause, psycopg.errors.UndefinedTable):
        return "The database has no Coresteer schema yet, or one too old. Run `coresteer migrate` first."
    return (
        f"The database in DATABASE_URL rejected the command: {sentence}." if isinstance(cause, psycopg.Error) else None
    )


def _parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of all commands. only: the command that is needed, see resources.add_commands."""
    parser = argparse.ArgumentParser(
        prog="coresteer", description="Shows and controls where network work runs on the cores of Linux machines."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {metadata.version('coresteer')}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_text in (
        ("up", "start everything on this machine: database, backend and agent; Ctrl-C stops it"),
        ("serve", "start the backend alone"),
    ):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("--port", type=int, help="port of the backend (default 8420)")
        if name == "serve":
            command.add_argument(
                "--workers", type=int, default=1, help="processes that share the port, each a backend of its own"
            )
            _add_tls(command)
    migrate = commands.add_parser("migrate", help="bring the database's schema to the newest version")
    migrate.add_argument(
        "--citus", action="store_true", help="then distribute history by node over the workers of a Citus cluster"
    )
    commands.add_parser("openapi", help="print the OpenAPI document of the HTTP API as JSON")
    enrolment.add_commands(commands)
    commands.add_parser("set-up-link", help="print a new link that creates the first administrator")
    reset = commands.add_parser(
        "reset-password",
        help="give a user a new password, read from the terminal or stdin; ends their sessions and API tokens",
    )
    reset.add_argument("user")
    audit.add_commands(commands)
    backup.add_commands(commands)
    gitops.add_commands(commands)
    top.add_commands(commands)
    simulation.add_commands(commands)
    papers.add_commands(commands)
    resources.add_commands(commands, only)
    return parser


def _add_tls(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--tls", choices=["auto"], help="serve https with a certificate of a private authority that agents pin"
    )
    command.add_argument("--tls-cert", metavar="FILE", help="serve https with this certificate chain, PEM")
    command.add_argument("--tls-key", metavar="FILE", help="key of --tls-cert, PEM")
    command.add_argument(
        "--tls-client-ca", metavar="FILE", help="require client certificates signed by these authorities, PEM"
    )


def _say(line: str) -> None:
    try:
        print(line, flush=True)
    except OSError:  # the terminal or the pipe is closed; further output has no reader
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        signal.raise_signal(signal.SIGTERM)


def _run(arguments: argparse.Namespace, config: Config) -> int:  # noqa: PLR0911, PLR0912 - one case a command
    if arguments.command in ("up", "serve") and config.is_open_without_proxy:
        raise CommandError(
            f"CORESTEER_HOST is {config.host}, where others could reach the backend, and passwords and agents' keys "
            "would cross the network in clear text. Use `coresteer serve --tls auto`, or put a TLS proxy in front and "
            "give its address in CORESTEER_PUBLIC_URL, such as https://coresteer.example."
        )
    if "run_with" in arguments:
        return _through_the_api(arguments.run_with, arguments, config)
    match arguments.command:
        case "up":
            return asyncio.run(supervisor.up(config, _say))
        case "serve":
            from coresteer.cli import asgi_server, workers

            config = config.model_copy(update={"database_url": _database_url(config)})
            if arguments.workers < 1:
                raise CommandError("--workers must be at least 1.")
            if arguments.workers > 1:
                return workers.serve_workers(config, arguments.workers, _serve_as_worker, _say)
            asgi_server.serve(config, _say)
        case "openapi":
            from coresteer import app

            print(json.dumps(app.openapi(app.create_app(config)), indent=1))
        case "migrate":
            from coresteer.telemetry import citus

            backend_url = None if config.owner_url is None else _database_url(config)
            as_owner = config.model_copy(update={"database_url": config.owner_url or config.database_url})
            _with_database(as_owner, lambda database: database.migrate(backend_url))
            if arguments.citus:
                _with_database(as_owner, lambda database: citus.distribute(database, _say))
        case "enrolment-token" | "readmit":
            address = supervisor.running_address(config.state_dir) or config.public_address
            print(_with_database(config, lambda database: enrolment.run(database, arguments, address, config)))
        case "set-up-link":
            from coresteer.cli.announce import set_up_link

            address = supervisor.running_address(config.state_dir) or config.public_address
            link = _with_database(config, lambda database: set_up_link(address, database))
            if link is None:
                raise CommandError(
                    "Coresteer is already set up; `coresteer reset-password USER` helps a user who cannot sign in."
                )
            print(link)
        case "reset-password":
            password = _new_password()
            _with_database(config, lambda database: _reset_password(database, arguments.user, password))
        case "audit":
            return _with_database(config, lambda database: audit.run(database, arguments))
        case "backup" | "restore-backup":
            return backup.run(arguments, config)
        case "simulation":
            return simulation.run(arguments)
        case "papers":
            return papers.run(arguments, config)
        case "top":
            from coresteer.cli import top_screen

            return _through_the_api(top_screen.run, arguments, config)
        case command if command in gitops.COMMANDS:
            return gitops.run(arguments, config)
    return 0


def _serve_as_worker(config: Config, number: int, ready: "Event") -> int:
    """Serve as one of several workers; the first one announces address and set-up link, once."""
    from coresteer.cli import asgi_server

    is_silent = config.supervised or number > 0 or ready.is_set()

    def work() -> int:
        own = config.model_copy(update={"supervised": is_silent})
        asgi_server.serve(own, _say, worker=number + 1, on_ready=ready.set)
        return 0

    return _reported(work, argparse.Namespace())


def _through_the_api(
    run: Callable[[argparse.Namespace, "ApiClient"], int], arguments: argparse.Namespace, config: Config
) -> int:
    """Run a command that uses the API; return its exit code."""
    from coresteer.cli.api_client import (
        ApiError,
        UnknownBackendError,
        UnreachableError,
        WaitingError,
        environment_client,
    )

    try:
        return run(arguments, environment_client(config))
    except WaitingError as error:
        print(f"coresteer: {error} Request {error.approval_id}.", file=sys.stderr)
        return ExitCode.WAITING
    except (UsageError, UnknownBackendError) as error:
        print(f"coresteer: {error}", file=sys.stderr)
        return ExitCode.USAGE
    except ApiError as error:
        print(f"coresteer: {error}", file=sys.stderr)
        return ExitCode.USAGE if error.status == 422 else ExitCode.FAILED
    except UnreachableError as error:
        print(f"coresteer: {error}", file=sys.stderr)
        return ExitCode.FAILED


def _database_url(config: Config) -> str:
    url = config.database_url or running_url(config.state_dir)
    if url is None:
        raise CommandError(
            f"There is no database: DATABASE_URL is not set, {CONFIG_FILE} names none that this user may read, and no "
            f"Coresteer runs on {config.state_dir}. Start `coresteer up` first, or name its state folder in "
            "CORESTEER_STATE_DIR."
        )
    return url


def _with_database(config: Config, work: Callable[["Database"], Awaitable[T]]) -> T:
    from coresteer.db import Database

    url = _database_url(config)

    async def run() -> T:
        database = Database(url, config.migrations_dir)
        try:
            return await work(database)
        finally:
            await database.close()

    return asyncio.run(run())


async def _reset_password(database: "Database", username: str, password: str) -> None:
    from coresteer.auth import service as auth

    async with database.session() as session:
        await auth.reset_password(session, username, password)


def _new_password() -> str:
    from coresteer.auth.schemas import UserUpdate

    password = getpass.getpass("New password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip(os.linesep)
    try:
        UserUpdate(password=password)
    except pydantic.ValidationError as error:
        raise CommandError(f"The password is not valid: {error.errors()[0]['msg']}.") from None
    return password
