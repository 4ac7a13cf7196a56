"""The command `coresteer`. Exit codes: 0 done, 1 failed with a sentence on stderr, 2 wrong usage."""

import argparse
import asyncio
import getpass
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pydantic
import sqlalchemy.exc

from coresteer import app, server, supervisor
from coresteer.auth import service as auth
from coresteer.auth.enrolment import new_enrolment_token
from coresteer.auth.schemas import EnrolmentTokenCreate, UserUpdate
from coresteer.config import Config
from coresteer.db import Database, UnsupportedServerError
from coresteer.errors import Problem, is_database_away
from coresteer.postgres import PostgresError, running_url

T = TypeVar("T")


class CommandError(Exception):
    """The command cannot be done; the message says why and what to do."""


def main(argv: list[str] | None = None) -> int:
    """Run one command."""
    arguments = _parser().parse_args(argv)
    try:
        config = Config(**({"port": arguments.port} if getattr(arguments, "port", None) is not None else {}))
        return _run(arguments, config)
    except pydantic.ValidationError as error:
        for item in error.errors():
            name = str(item["loc"][0]) if item["loc"] else ""
            print(f"coresteer: {name.upper()} in the environment: {item['msg']}", file=sys.stderr)
    except (CommandError, PostgresError, Problem, UnsupportedServerError, supervisor.StartError) as error:
        print(f"coresteer: {error}", file=sys.stderr)
    except (server.PortBusyError, RuntimeError, OSError) as error:
        print(f"coresteer: {error}", file=sys.stderr)
    except sqlalchemy.exc.SQLAlchemyError as error:
        if not is_database_away(error):
            raise
        print(f"coresteer: The database cannot be reached: {error.args[0]}", file=sys.stderr)
    except KeyboardInterrupt:
        pass
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="coresteer", description="Shows and steers where network work lands on the cores of Linux machines."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_text in (
        ("up", "start everything on this machine: database, backend and agent; Ctrl-C stops it"),
        ("serve", "start the backend alone"),
    ):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("--port", type=int, help="where the backend listens (default 8420)")
    commands.add_parser("migrate", help="bring the database's schema to the newest version")
    commands.add_parser("openapi", help="print the HTTP API's description as JSON")
    token = commands.add_parser("enrolment-token", help="print a one-time token that lets an agent in")
    token.add_argument("--simulated", action="store_true", help="for simulated nodes, any number at once")
    commands.add_parser("set-up-link", help="print a new link that makes the first administrator")
    reset = commands.add_parser("reset-password", help="give a user a new password, read from the terminal or stdin")
    reset.add_argument("user")
    return parser


def _say(line: str) -> None:
    print(line, flush=True)


def _run(arguments: argparse.Namespace, config: Config) -> int:
    match arguments.command:
        case "up":
            return asyncio.run(supervisor.up(config, _say))
        case "serve":
            server.serve(config.model_copy(update={"database_url": _database_url(config)}), _say)
        case "openapi":
            print(json.dumps(app.openapi(app.create_app(config)), indent=1))
        case "migrate":
            _with_database(config, Database.migrate)
        case "enrolment-token":
            print(_with_database(config, lambda database: _enrolment_token(database, simulated=arguments.simulated)))
        case "set-up-link":
            link = _with_database(config, lambda database: server.set_up_link(config, database))
            if link is None:
                raise CommandError(
                    "Coresteer is set up already; `coresteer reset-password USER` helps a user who cannot sign in."
                )
            print(link)
        case "reset-password":
            password = _new_password()
            _with_database(config, lambda database: _reset_password(database, arguments.user, password))
    return 0


def _database_url(config: Config) -> str:
    url = config.database_url or running_url(config.state_dir)
    if url is None:
        raise CommandError(
            f"There is no database: DATABASE_URL is not set, and no Coresteer runs on {config.state_dir}. "
            "Start `coresteer up` first, or name its state folder in CORESTEER_STATE_DIR."
        )
    return url


def _with_database(config: Config, work: Callable[[Database], Awaitable[T]]) -> T:
    url = _database_url(config)

    async def run() -> T:
        database = Database(url, config.migrations_dir)
        try:
            return await work(database)
        finally:
            await database.close()

    return asyncio.run(run())


async def _enrolment_token(database: Database, *, simulated: bool) -> str:
    async with database.session() as session:
        request = EnrolmentTokenCreate(simulated=simulated)
        return (await new_enrolment_token(session, "command line", request)).token


async def _reset_password(database: Database, username: str, password: str) -> None:
    async with database.session() as session:
        await auth.reset_password(session, username, password)


def _new_password() -> str:
    password = getpass.getpass("New password: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip(os.linesep)
    try:
        UserUpdate(password=password)
    except pydantic.ValidationError as error:
        raise CommandError(f"That is no password: {error.errors()[0]['msg']}.") from None
    return password
