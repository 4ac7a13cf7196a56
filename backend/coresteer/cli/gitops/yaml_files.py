"""YAML files: documents with the line of each field, and text that every YAML parser reads alike."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias  # Any: YAML of any shape

import yaml

Location: TypeAlias = tuple[str | int, ...]
"""Where a field is in a document, as ("selector", "labels", "role") or ("guardrails", 0)."""

_SUFFIXES = (".yaml", ".yml")
_TEXT = "tag:yaml.org,2002:str"


class FileError(Exception):
    """A file is not what it should be; the message has file, line and what to do."""


@dataclass(frozen=True)
class RawDocument:
    """One YAML document. lines: by location, of its fields; texts: by location, of scalars that are no text."""

    file: str
    lines: dict[Location, int]
    texts: dict[Location, str]
    content: Any

    def where(self, location: Location) -> str:
        """Return file and line of a field, or of the nearest part that contains it."""
        while location not in self.lines:
            location = location[:-1]
        return f"{self.file}:{self.lines[location]}"


def files_in(paths: list[Path]) -> list[Path]:
    """Return the YAML files that paths name, those of folders in order of their names. Raises FileError."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = (each for each in path.rglob("*") if each.suffix in _SUFFIXES and not _is_hidden(each, path))
            found += sorted(inside)
        elif path.exists():
            found.append(path)
        else:
            raise FileError(f"{path}: there is no such file or folder.")
    return list(dict.fromkeys(found))


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def read(name: str, text: str) -> Iterator[RawDocument]:
    """Yield the documents of a YAML text, without empty ones. name: of the file, for messages. Raises FileError."""
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        raise FileError(f"{name}: this is not YAML: {error.reason}.") from None
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None  # noqa: S101 - the loader has just found it
            found = RawDocument(name, {}, {}, None)
            _walk(node, (), found, set())
            content = loader.construct_document(node)
            if content is not None:
                yield replace(found, content=content)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f":{mark.line + 1}"
        raise FileError(f"{name}{line}: this is not YAML: {error.problem or error.context}.") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a timestamp that is none
        raise FileError(f"{name}: this is not YAML: {error}.") from None
    finally:
        loader.dispose()


def _walk(node: yaml.Node, location: Location, found: RawDocument, seen: set[yaml.Node]) -> None:
    """Collect lines and texts of a node and everything in it.

    Raises FileError for keys that are not distinct texts, and for aliases, which could repeat without end.
    """
    line = node.start_mark.line + 1
    found.lines.setdefault(location, line)
    if node in seen:
        raise FileError(f"{found.file}:{line}: aliases (*name) are not supported; write the value out.")
    seen.add(node)
    if isinstance(node, yaml.ScalarNode) and node.tag != _TEXT:
        found.texts[location] = node.value
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _walk(item, (*location, index), found, seen)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag != _TEXT:
                raise FileError(f'{found.file}:{line}: the key {key.value} is not a text to YAML; write "{key.value}".')
            inner = (*location, key.value)
            if inner in found.lines:
                first = found.lines[inner]
                raise FileError(f"{found.file}:{line}: {key.value} is given twice, first in line {first}.")
            found.lines[inner] = line
            _walk(value, inner, found, seen)


class _Dumper(yaml.SafeDumper):
    """Writes no aliases, indents lists, and quotes texts that a YAML 1.2 parser would not read as texts."""

    def ignore_aliases(self, data: object) -> bool:
        """Return True: repeated values are written out."""
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent, also a list in a mapping."""
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    is_number = value.lower().lstrip("+-").startswith(tuple("0123456789."))  # 1e3 and 0o7 are numbers in YAML 1.2 only
    return dumper.represent_scalar(_TEXT, value, style='"' if is_number else None)


_Dumper.add_representer(str, _text)


def write(documents: list[dict[str, Any]]) -> str:
    """Return YAML documents with keys in the given order, separated by ``---``."""
    if not documents:
        return ""
    return yaml.dump_all(
        documents, Dumper=_Dumper, sort_keys=False, allow_unicode=True, explicit_start=len(documents) > 1, width=120
    )
