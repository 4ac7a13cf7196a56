"""`coresteer enrolment-token` and `coresteer readmit`: tokens with which agents enrol."""

import argparse
import re
from typing import TYPE_CHECKING

import pydantic

from coresteer.http_server.tls import as_served

if TYPE_CHECKING:
    from coresteer.config import Config
    from coresteer.db import Database

_MINUTES = {"m": 1, "h": 60, "d": 24 * 60}
_OPTIONS = {
    "max_uses": "--uses",
    "expires_in_minutes": "--expires",
    "labels": "--label",
    "name_pattern": "--name",
    "rejoin_for_minutes": "--rejoin-for",
}


class EnrolmentError(Exception):
    """The token cannot be created; the message says which option is invalid and why."""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `enrolment-token` and `readmit` to the parser."""
    token = commands.add_parser("enrolment-token", help="print a token with which agents enrol, by default one")
    token.add_argument("--simulated", action="store_true", help="for simulated nodes, any number per use")
    token.add_argument("--uses", type=int, default=1, metavar="N", help="how many nodes may enrol (default 1)")
    token.add_argument(
        "--expires", type=_duration, default=60, metavar="TIME", help="after minutes, hours or days: 30m, 24h, 7d (1h)"
    )
    token.add_argument(
        "--label", type=_label, action="append", default=[], metavar="NAME=VALUE", help="label that its nodes get"
    )
    token.add_argument("--name", metavar="PATTERN", help="shell pattern that the names of nodes must match, as 'db-*'")
    token.add_argument(
        "--rejoin-for",
        type=_duration,
        metavar="TIME",
        help="for how long nodes that exist may enrol again, which ends their present keys (default: never); needs "
        "--name, because a stolen token can re-enrol these nodes",
    )
    readmit = commands.add_parser(
        "readmit", help="print the command with which a node that was installed anew enrols again under its name"
    )
    readmit.add_argument("node")


def _duration(text: str) -> int:
    """Return minutes. Raises ArgumentTypeError."""
    match = re.fullmatch(r"([0-9]{1,6})([mhd])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write for example 30m, 24h or 7d")
    return int(match[1]) * _MINUTES[match[2]]


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not a label; write for example role=db")
    return name, value


async def run(database: "Database", arguments: argparse.Namespace, address: str, config: "Config") -> str:
    """Return a token for new nodes, or the command that readmits one. Raises EnrolmentError."""
    from coresteer.gateway.enrolment import new_enrolment_token, pinned, readmission_command, readmit  # noqa: PLC0415 - imports SQLAlchemy; `up` starts without it
    from coresteer.gateway.enrolment_schemas import EnrolmentTokenCreate  # noqa: PLC0415 - as above
    from coresteer.nodes.service import find_node_by_name  # noqa: PLC0415 - as above

    config = as_served(config)
    async with database.session() as session:
        if arguments.command == "readmit":
            node = await find_node_by_name(session, arguments.node)
            new = pinned(await readmit(session, "command line", node), config)
            return readmission_command(new, node.name, address)
        try:
            request = EnrolmentTokenCreate(
                simulated=arguments.simulated,
                max_uses=arguments.uses,
                expires_in_minutes=arguments.expires,
                labels=dict(arguments.label),
                name_pattern=arguments.name,
                rejoin_for_minutes=arguments.rejoin_for,
            )
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            raise EnrolmentError(f"{_OPTIONS[str(first['loc'][0])]}: {first['msg']}") from None
        return pinned(await new_enrolment_token(session, "command line", request), config).token
