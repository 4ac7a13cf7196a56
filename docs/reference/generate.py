"""Write the reference pages that follow from the code: parameters of policies, and commands of the API."""

import argparse
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any  # JSON Schema is JSON of any shape

from coresteer.cli.main import _parser as command_parser
from coresteer.cli.operations import Argument, Operation, stored
from coresteer.forms.endpoints import schemas

FOLDER = Path(__file__).parent
_HEADER = "| parameter | meaning | default | bounds |\n|---|---|---|---|"


def main() -> None:
    """Write the pages next to this file; git ignores them."""
    (FOLDER / "POLICY_PARAMETERS.md").write_text(policy_parameters(), encoding="utf-8")
    (FOLDER / "COMMANDS.md").write_text(commands(), encoding="utf-8")


def commands() -> str:
    """Return the page of all commands, from what the command line is made from."""
    lines = ["# Commands", ""]
    lines += ["[](../CLI.md) says how to use them; each operation of the [API](../API.md) has one.", ""]
    lines += ["| command | meaning | options |", "|---|---|---|"]
    lines += [f"| `{_cell(name)}` | {_cell(text)} | {options} |" for name, text, options in _others(command_parser())]
    lines.append("")
    for group, operations in groupby(stored(), key=lambda each: each.group):
        lines += [f"## coresteer {group}", "", "| command | meaning | options | request |", "|---|---|---|---|"]
        lines += [_operation(each) for each in operations]
        lines.append("")
    return "\n".join(lines)


def _others(parser: argparse.ArgumentParser, help_text: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield command, meaning and options of each command that is no operation of the API."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    for action in below:
        texts = {each.dest: each.help or "" for each in action._choices_actions}
        for name, one in action.choices.items():
            if name in texts:  # an alias has none
                yield from _others(one, texts[name])
    if not below and parser.get_default("operation") is None:
        own = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
        given = [str(action.metavar or action.dest).upper() for action in own if not action.option_strings]
        options = [f"`{action.option_strings[-1]}`" for action in own if action.option_strings]
        yield " ".join([parser.prog, *given]), help_text, " ".join(options)


def _operation(operation: Operation) -> str:
    given = [_metavar(each) for each in operation.arguments if each.place == "path"]
    options = [f"`{each.option}`" for each in operation.arguments if each.place != "path"]
    options += ["`--body`"] if operation.body else []
    command, request = " ".join([operation.group, operation.name, *given]), f"{operation.method} {operation.path}"
    return f"| `{command}` | {_cell(operation.help)} | {' '.join(options)} | `{request}` |"


def _metavar(argument: Argument) -> str:
    return "NODE" if argument.kind == "node" else argument.name.upper()


def policy_parameters() -> str:
    """Return the page of all kinds of policy, from the schemas that the page's forms are rendered from."""
    lines = ["# Parameters of policies", ""]
    lines += ["Made from the schemas that the editor's forms are rendered from.", ""]
    schema = schemas().policy
    for kind in schema["properties"]["spec"]["anyOf"]:
        lines += [f"## {kind['title']}", "", kind["description"], ""]
        lines.append(_HEADER)
        lines += [_row(name, field) for name, field in kind["properties"].items() if name != "type"]
        lines.append("")
    lines += ["## All kinds", "", "Every policy has these as well.", "", _HEADER]
    lines += [_row(name, field) for name, field in schema["properties"].items() if name != "spec"]
    return "\n".join([*lines, ""])


def _row(name: str, field: dict[str, Any]) -> str:
    unit = f" ({field['unit']})" if field.get("unit") else ""
    meaning = f"**{field.get('title', name)}**{unit}. {field.get('description', '')}".strip()
    options = field.get("enum_labels")
    bounds = "; ".join(f"`{value}`: {label}" for value, label in options.items()) if options else _bounds(field)
    default = field.get("default", "")
    shown = "" if default in ("", None, [], {}) else f"`{_scaled(default, field)}`"
    return f"| `{name}` | {_cell(meaning)} | {_cell(shown)} | {_cell(bounds)} |"


def _scaled(value: Any, field: dict[str, Any]) -> Any:  # noqa: ANN401 - a JSON value
    """Return the value in the unit that is shown with the field."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{value * field.get('scale', 1):g}" if is_number and abs(value) < 1e5 else value


def _bounds(field: dict[str, Any]) -> str:
    low, high = field.get("minimum", field.get("exclusiveMinimum")), field.get("maximum")
    if low is None and high is None:
        return ""
    return f"{'' if low is None else _scaled(low, field)} to {'' if high is None else _scaled(high, field)}".strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    main()
