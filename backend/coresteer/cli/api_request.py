"""Requests of the API's operations, made from the arguments of a command."""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any  # Any: bodies are JSON of any shape
from urllib.parse import quote, urlencode

import msgspec

from coresteer.cli.api_client import ApiClient
from coresteer.cli.gitops.yaml_files import FileError, read
from coresteer.cli.operations import Argument, Operation


class UsageError(Exception):
    """The command was given wrong arguments, or the person did not agree; the message says which."""


def send(client: ApiClient, operation: Operation, arguments: argparse.Namespace, body: Any) -> bytes:  # noqa: ANN401
    """Return the answer to the request of an operation. body: JSON, or bytes of another media type.

    Raises UsageError, ApiError and UnreachableError.
    """
    path, query = operation.path, {}
    for argument in operation.arguments:
        value = None if argument.place == "body" else _value(client, argument, arguments)
        if argument.place == "path":
            path = path.replace(f"{{{argument.name}}}", quote(str(value), safe=""))
        elif value is not None:
            query[argument.name] = str(value).lower() if isinstance(value, bool) else value
    if query:
        path = f"{path}?{urlencode(query, doseq=True)}"
    if body is None or isinstance(body, bytes):
        return client.request(operation.method, path, body, media_type="application/octet-stream")
    return client.request(operation.method, path, msgspec.json.encode(body))  # YAML's times become texts


def read_body(client: ApiClient, operation: Operation, arguments: argparse.Namespace) -> Any:  # noqa: ANN401 - JSON
    """Return the body that --body and the options give, None for an operation without one.

    Raises UsageError, ApiError and UnreachableError.
    """
    if not operation.body:
        return None
    content = b"" if arguments.body is None else _content(arguments.body)
    if operation.body != "application/json":
        return content
    body = _parsed(arguments.body, content) if content else {}
    body |= body_options(client, operation, arguments)
    if getattr(arguments, "set", None):
        body["desired"] = [{"key": key, "value": value} for key, value in _pairs(arguments.set)]
    return body


def body_options(client: ApiClient, operation: Operation, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of an operation's body that options give. Raises UsageError, ApiError and UnreachableError."""
    values = {each.name: _value(client, each, arguments) for each in operation.arguments if each.place == "body"}
    return {name: value for name, value in values.items() if value is not None}


def _content(name: str) -> bytes:
    return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()


def _parsed(name: str, content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except ValueError:
        try:
            body, *others = [each.content for each in read(name, content.decode())] or [None]
        except (FileError, UnicodeDecodeError) as error:
            raise UsageError(str(error)) from None
        if others:
            raise UsageError(f"{name} has more than one document; a request has one.") from None
    if not isinstance(body, dict):
        raise UsageError(f"{name} must hold an object: names with values.")
    return body


def _value(client: ApiClient, argument: Argument, arguments: argparse.Namespace) -> Any:  # noqa: ANN401 - JSON
    """Return the value of an argument as the API takes it, None if it was not given."""
    value = getattr(arguments, argument.name)
    if value is None:
        return None
    if argument.kind == "node":
        return [find_node(client, each) for each in value] if argument.many else find_node(client, value)
    return dict(_pairs(value)) if argument.kind == "map" else value


def find_node(client: ApiClient, given: str) -> int:
    """Return the id of a node that is given by its id or its name. Raises UsageError, ApiError and UnreachableError."""
    nodes = [node for node in client.get("/nodes", name=given) if node["name"] == given]
    if not nodes and given.isdecimal():
        return int(given)
    if not nodes:
        raise UsageError(f"There is no node {given}; `coresteer nodes list` lists them.")
    found = int(nodes[0]["id"])
    if given.isdecimal() and found != int(given):
        for other in client.get("/nodes"):
            if other["id"] == int(given):
                raise UsageError(
                    f"{given} is the name of node {found} and the id of node {other['name']}. Give {found} for the "
                    f"former, or {other['name']} for the latter."
                )
    return found


def _pairs(given: Iterable[str]) -> list[tuple[str, str]]:
    pairs = [each.partition("=") for each in given]
    wrong = [key for key, separator, _ in pairs if not separator]
    if wrong:
        raise UsageError(f"“{wrong[0]}” must be KEY=VALUE.")
    return [(key, value) for key, _, value in pairs]
