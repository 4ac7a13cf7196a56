"""Commands of the API's operations, from its OpenAPI document: ``python -m coresteer.cli.operations OPENAPI_JSON``.

``make types`` writes them to operations.json beside this module, so that a command starts without the application.
"""

import json
import sys
from pathlib import Path
from typing import Any, Literal  # Any: an OpenAPI document is JSON of any shape

import msgspec

FILE = Path(__file__).with_name("operations.json")
_EXCEPTIONS = {
    "apply_plan": ("changes", "apply"),
    "enrol": ("enrol", "agent"),
    "form_schemas": ("schemas", "get"),
    "list_audit": ("audit-log", "list"),
    "preview_plan": ("changes", "preview"),
}
"""Group and name of commands that the rule of _named() would give another one, by operation."""
_RESERVED = {"body", "help", "output", "watch", "yes"}
_SECRET = {"password", "present", "secret", "token"}
"""Fields of bodies that no option takes: other users of the machine see a command's arguments."""
_SECRET_OF = {"change_alert_receiver": {"url"}, "create_alert_receiver": {"url"}}
"""The same of one operation: whoever has Slack's address may write there."""
_NODES = {"node_id": "node", "node_ids": "node", "peer_node_id": "peer-node"}
"""Names of options that take a node's name as well as its id."""
Kind = Literal["text", "integer", "number", "switch", "map", "node"]


class Argument(msgspec.Struct, omit_defaults=True):
    """An argument of a command. place: of the request; many: it may be repeated.

    kind: of its value; map: KEY=VALUE; node: a node's id or name.
    """

    name: str
    place: Literal["path", "query", "body"]
    kind: Kind = "text"
    many: bool = False
    required: bool = False
    choices: list[str] = []
    help: str = ""

    @property
    def option(self) -> str:
        """Return the option that takes the argument."""
        return f"--{_NODES.get(self.name, self.name).replace('_', '-')}"


class Operation(msgspec.Struct, omit_defaults=True):
    """A command and its request.

    body: the media type of the request's body, none without one; is_file: whether the answer is no JSON but a file.
    """

    id: str
    group: str
    name: str
    method: str
    path: str
    help: str
    arguments: list[Argument] = []
    body: str = ""
    is_file: bool = False


def operations(document: dict[str, Any]) -> list[Operation]:
    """Return the commands of all operations of an OpenAPI document, by group and name."""
    found = [
        _operation(document, path, method.upper(), each)
        for path, methods in document["paths"].items()
        for method, each in methods.items()
    ]
    return sorted(found, key=lambda each: (each.group, each.name))


def stored() -> list[Operation]:
    """Return the commands of this version."""
    return msgspec.json.decode(FILE.read_bytes(), type=list[Operation])


def _operation(document: dict[str, Any], path: str, method: str, described: dict[str, Any]) -> Operation:
    group, name = _EXCEPTIONS.get(described["operationId"]) or _named(described["operationId"], described["tags"][0])
    answers = described["responses"]
    content = described.get("requestBody", {}).get("content", {})
    media_type = next(iter(content), "")
    arguments = [
        _argument(document, each["name"], each["in"], each["schema"], is_required=each["required"])
        for each in described.get("parameters", [])
        if each["in"] in ("path", "query")
    ]
    schema = _resolved(document, content[media_type]["schema"]) if media_type == "application/json" else {}
    taken = _RESERVED | {each.name for each in arguments if each is not None}
    arguments += [
        _argument(document, name, "body", each, is_required=False)  # a missing one may be in --body
        for name, each in schema.get("properties", {}).items()
        if name not in taken | _SECRET | _SECRET_OF.get(described["operationId"], set())
    ]
    sentence = described.get("description", described["summary"]).partition("\n\n")[0].replace("\n", " ")
    return Operation(
        described["operationId"],
        group,
        name,
        method,
        path,
        sentence,
        [each for each in arguments if each is not None],
        media_type,
        "200" in answers and list(answers["200"].get("content", {})) != ["application/json"],
    )


def _named(operation: str, group: str) -> tuple[str, str]:
    """Return the group, and the operation's name without the words of the group."""
    parts = group.split("-")
    known = {*parts, *(part.removesuffix("s") for part in parts), *(part.replace("ies", "y") for part in parts)}
    words = [word for word in operation.split("_") if word not in known]
    if len(words) > 1 and words[0] in ("get", "list"):
        words = words[1:]
    return group, "-".join(words) or "get"


def _argument(
    document: dict[str, Any],
    name: str,
    place: Literal["path", "query", "body"],
    given: dict[str, Any],
    *,
    is_required: bool,
) -> Argument | None:
    """Return the argument of a parameter or of a field of the body, None if the command line has no form for it."""
    schema = _resolved(document, given)
    many = schema.get("type") == "array"
    if many:
        schema = _resolved(document, schema["items"])
    kinds: dict[object, Kind] = {"string": "text", "integer": "integer", "number": "number", "boolean": "switch"}
    kind = "node" if name in _NODES else kinds.get(schema.get("type"))
    values = schema.get("additionalProperties")
    if isinstance(values, dict) and _resolved(document, values).get("type") == "string" and not many:
        kind = "map"
    if kind is None or (many and kind == "switch"):
        return None
    text = str(given.get("description") or schema.get("description") or "").partition("\n\n")[0].replace("\n", " ")
    choices = [each for each in schema.get("enum", []) if isinstance(each, str)]
    return Argument(name, place, kind, many, is_required, choices, text)


def _resolved(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema behind a reference, and of one that may be null the other."""
    while True:
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        elif len(others := [each for each in schema.get("anyOf", []) if each.get("type") != "null"]) == 1:
            schema = others[0]
        else:
            return schema


if __name__ == "__main__":
    made = operations(json.loads(Path(sys.argv[1]).read_text()))
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(made), indent=1).decode() + "\n")
