"""Documents: what a YAML document of each kind may contain, derived from the request bodies of the API."""

import difflib
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, get_args  # Any: YAML and JSON of any shape

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from coresteer.alerts.schemas import AlertRuleBody
from coresteer.auth.schemas import Role
from coresteer.cli.gitops.yaml_files import FileError, Location, RawDocument
from coresteer.inputs import RequestBody
from coresteer.policies.rollout_schemas import RolloutPace
from coresteer.policies.schemas import PolicyBody
from coresteer.structs import FormField, InOrder
from coresteer_core.schema import inline_references, labelled


class Document(RequestBody):
    """A resource in a YAML file. Kind and name are its identity. role: that writing one needs."""

    role: ClassVar = Role.OPERATOR

    kind: str
    name: str

    @classmethod
    def kind_name(cls) -> str:
        """Return the kind that documents of this class name."""
        (name,) = get_args(cls.model_fields["kind"].annotation)
        return str(name)

    @property
    def title(self) -> str:
        """Return kind and name, as in messages."""
        return f"{self.kind} {self.name}"


class PolicyDocument(PolicyBody, Document):
    """A policy. rollout is how changed versions spread; it is the policy's, not the version's."""

    kind: Literal["Policy"]
    enabled: Annotated[
        bool, FormField(labelled("Enabled", "false: nodes have the original values of the settings that it changed."))
    ] = True
    rollout: Annotated[
        RolloutPace,
        FormField(labelled("Rollout", "How a version that enforces, or replaces another one, spreads.")),
    ] = RolloutPace()

    def body(self) -> PolicyBody:
        """Return the content of the version."""
        return PolicyBody.model_validate(self.model_dump(mode="json", include=set(PolicyBody.model_fields)))


class AlertRuleDocument(AlertRuleBody, Document):
    """An alert rule: an alert fires when the signal has been ≥ threshold for for_s seconds.

    It is resolved when the signal has been < clear for keep_s seconds. labels: of the nodes that it watches, with shell
    patterns; empty for every node.
    """

    role = Role.ADMIN

    kind: Literal["AlertRule"]


MODELS: dict[str, type[Document]] = {model.kind_name(): model for model in (PolicyDocument, AlertRuleDocument)}
"""The class of each kind of document."""


@dataclass(frozen=True)
class Loaded:
    """A valid document and where it is."""

    document: Document
    where: str


def parse(raw: RawDocument) -> Loaded:
    """Return a valid document. Raises FileError with a line for each error."""
    here = raw.where(())
    if not isinstance(raw.content, dict) or "kind" not in raw.content:
        raise FileError(f"{here}: a document needs a kind: {', '.join(MODELS)}.")
    kind = raw.content["kind"]
    model = MODELS.get(str(kind))
    if model is None:
        raise FileError(f"{raw.where(('kind',))}: there is no kind {kind}{_suggestion(str(kind), MODELS)}")
    try:
        return Loaded(model.model_validate(raw.content), here)
    except ValidationError as error:
        raise FileError("\n".join(_sentence(raw, model, item) for item in error.errors())) from None


def _sentence(raw: RawDocument, model: type[BaseModel], error: ErrorDetails) -> str:
    location: Location = (*error["loc"], *_parts(str(error.get("ctx", {}).get("path", ""))))
    where, name = raw.where(location), _written(location)
    if error["type"] == "extra_forbidden":
        return f"{where}: {name} is not a field here{_suggestion(str(location[-1]), _fields(model, location[:-1]))}"
    message = error["msg"].rstrip(".")
    if error["type"] == "missing":
        message = "this field is required"
    elif " is not a field here; the fields are " in message:  # of a struct
        names = message.partition("the fields are ")[2].split(", ")
        return f"{where}: {name} is not a field here{_suggestion(str(location[-1]), names)}"
    if (text := raw.texts.get(location)) is not None and ("valid string" in message or "Expected str" in message):
        message += f'. To YAML {text} is not a text; write "{text}"'
    return f"{where}: {name}: {message}."


def _parts(path: str) -> Iterator[str | int]:
    """Yield the parts of a path below a field, such as ``.classes[0].name``."""
    for name, index in re.findall(r"\.([^.\[]+)|\[(\d+)\]", path):
        yield name or int(index)


def _written(location: Location) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).removeprefix(".")


def _fields(model: type[BaseModel], location: Location) -> list[str]:
    """Return the names of the fields of the model at a location in a model."""
    for part in location:
        if isinstance(part, str):
            annotation = model.model_fields[part].annotation
            inner = (annotation, *get_args(annotation))
            model = next(each for each in inner if isinstance(each, type) and issubclass(each, BaseModel))
    return list(model.model_fields)


def _suggestion(name: str, known: Any) -> str:  # noqa: ANN401 - any iterable of names, or a mapping by them
    close = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(known)}."


def compact(document: Document) -> dict[str, Any]:
    """Return a document without the fields that validation would fill in alike, in a fixed order."""
    dumped = document.model_dump(mode="json")
    identity = {"kind": document.kind, "name": document.name}
    first = {name: dumped[name] for name in ("enabled",) if name in dumped}
    found = deepcopy(identity | first | dumped)

    def is_same() -> bool:
        try:
            return type(document).model_validate(found).model_dump(mode="json") == dumped
        except ValidationError:
            return False

    _drop_defaults(found, is_same)
    return found


def _drop_defaults(node: object, is_same: Callable[[], bool]) -> None:
    if isinstance(node, list):
        for item in node:
            _drop_defaults(item, is_same)
    elif isinstance(node, dict):
        for key in list(node):
            before = dict(node)
            del node[key]
            if not is_same():
                node.clear()
                node.update(before)
                _drop_defaults(node[key], is_same)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a document, for editors."""
    kinds = [inline_references(model.model_json_schema(schema_generator=InOrder)) for model in MODELS.values()]
    for schema in kinds:
        schema["required"] = ["kind", *(name for name in schema["required"] if name != "kind")]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Coresteer's documents",
        "oneOf": kinds,
    }
