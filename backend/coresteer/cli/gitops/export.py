"""Export: the backend's resources as YAML files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from coresteer.cli.gitops.documents import compact, json_schema
from coresteer.cli.gitops.kinds import KINDS
from coresteer.cli.gitops.yaml_files import write

if TYPE_CHECKING:
    from coresteer.cli.api_client import ApiClient

SCHEMA_FILE = "coresteer.schema.json"


def schema_text() -> str:
    """Return the JSON Schema of the documents as text."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


def export_to(client: "ApiClient", folder: Path) -> Iterator[str]:
    """Write a file for each kind that has resources or has a file, and the schema that editors use.

    Yield what was written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCHEMA_FILE).write_text(schema_text())
    for kind in KINDS:
        path = folder / f"{kind.file}.yaml"
        if (live := kind.live(client)) or path.exists():
            documents = write([compact(each.document) for each in live])
            path.write_text(f"# yaml-language-server: $schema={SCHEMA_FILE}\n{documents}")
            yield f"{path}: {len(live)} {kind.file.replace('-', ' ')}"


def export_text(client: "ApiClient") -> str:
    """Return the YAML of all resources as one text."""
    return write([compact(each.document) for kind in KINDS for each in kind.live(client)])
