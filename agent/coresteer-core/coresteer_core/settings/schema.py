"""Description of every kind of setting for the user interface, which lists none itself."""

import json

from coresteer_core.settings import KINDS


def describe_kinds() -> dict[str, object]:
    """Return the forms of keys, and by the end of a key its title, its unit and the JSON Schema of its values."""
    forms = [form for kind in KINDS for form in kind.forms]
    samples = [sample for kind in KINDS for sample in kind.samples()]
    return {
        "forms": [
            {
                "syntax": form.syntax,
                "pattern": form.pattern,
                "subject": form.subject,
                "name": form.name,
                "target": form.target,
            }
            for form in forms
        ],
        "names": {sample.name: {"title": sample.title, "schema": sample.schema} for sample in samples},
    }


def kinds_as_json() -> str:
    """Return describe_kinds() as the text of ``frontend/src/api/settings.json``."""
    return json.dumps(describe_kinds(), indent=1, ensure_ascii=False)
