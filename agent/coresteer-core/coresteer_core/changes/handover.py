"""Handover: files by which other tools keep what a confirmed change set, with the evidence in their comments."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from coresteer_core.changes.handover_formats import FORMATS, REASONS, FormatName, Line, general_reason
from coresteer_core.settings import parse_setting


class File(Struct, frozen=True):
    """A file to write. path: absolute for a place that its tool reads, "" for a text that has only comments."""

    path: str
    text: str


def export(format_name: FormatName, values: Mapping[str, str], name: str, evidence: Sequence[str]) -> list[File]:
    """Return the files that give settings their values with a tool, at least one.

    values: by key of setting, in the order of their writes. name: for the files, such as ``coresteer-3f0d4f5e``.
    evidence: lines for the comment, which no text in them can leave. The comment also lists the settings that the
    format cannot have, with the reasons. Raises SettingError for a key or value that no setting has.
    """
    form = FORMATS[format_name]
    sections: dict[str, list[Line]] = {}
    left_out: list[str] = []
    for key, value in values.items():
        line = express(format_name, key, value)
        if isinstance(line, str):
            left_out.append(f"  {key} = {value}: {line}")
        else:
            sections.setdefault(line.section, []).append(line)
    comment = [*evidence, *(["Left out:", *left_out] if left_out else [])]
    if not sections:
        return [File("", _comments([f"{form.title}: none of these settings can be written.", *comment]))]
    files = form.files(f"90-{name}", sections)
    return [File(path, f"{_comments([path, form.use, *comment])}\n{text}") for path, text in files.items()]


def express(format_name: FormatName, key: str, value: str) -> Line | str:
    """Return the line of a setting in a format, or why there is none. Raises SettingError for a key or value."""
    form, setting = FORMATS[format_name], parse_setting(key)
    canonical = setting.canonical(value)
    why = general_reason(setting, canonical)
    line = None if why is not None else form.express(setting, canonical)
    return line if line is not None else why or REASONS.get(type(setting), form.absent)


def _comments(lines: Sequence[str]) -> str:
    return "".join(f"# {_one_line(line)}".rstrip() + "\n" for line in lines)


def _one_line(text: str) -> str:
    """Return a text that cannot leave its comment: no line breaks, no control characters, no line continuation."""
    indent = text[: len(text) - len(text.lstrip(" "))]
    printable = "".join(each if each.isprintable() else " " for each in text)
    line = indent + " ".join(printable.split())
    return f"{line} ." if line.endswith("\\") else line
