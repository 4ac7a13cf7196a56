"""Describe every kind of setting for the front end, which lists none itself."""

import json

from coresteer_core.settings import KINDS


def describe_kinds() -> dict[str, object]:
    """Return the syntax of the keys of all settings, and title and JSON Schema by the keys' last part."""
    forms = [form for kind in KINDS for form in kind.forms]
    examples = [example for kind in KINDS for example in kind.examples()]
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
        "names": {example.name: {"title": example.title, "schema": example.schema} for example in examples},
    }


def kinds_as_json() -> str:
    """Return the description of all kinds of settings as the text of ``frontend/src/api/settings.json``."""
    return json.dumps(describe_kinds(), indent=1, ensure_ascii=False)
