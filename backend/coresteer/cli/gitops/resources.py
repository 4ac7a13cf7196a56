"""Kinds of resources: how each is listed, created, changed and deleted through the API."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import ValidationError

from coresteer.cli.gitops.documents import Document
from coresteer.cli.gitops.yaml_files import FileError

if TYPE_CHECKING:
    from coresteer.cli.api_client import ApiClient

Json: TypeAlias = dict[str, Any]  # Any: answers of the API


@dataclass(frozen=True)
class Live:
    """A resource as the backend has it. answer: of the API."""

    id: int
    document: Document
    answer: Json


class Kind:
    """A kind of resource whose document has the fields of the API's request body, with the same names.

    path: of the API, where GET lists and POST creates; PUT and DELETE take an id below it. file: name of the exported
    file.
    """

    def __init__(self, model: type[Document], path: str, file: str) -> None:
        self.model = model
        self.path = path
        self.file = file

    def live(self, client: "ApiClient") -> list[Live]:
        """Return all resources of the kind, by name. Raises FileError for fields that this program does not know."""
        found = [Live(answer["id"], self._document(client, answer), answer) for answer in client.get(self.path)]
        return sorted(found, key=lambda each: each.document.name)

    def _document(self, client: "ApiClient", answer: Json) -> Document:
        try:
            return self.model.model_validate({"kind": self.model.kind_name()} | self.fields(client, answer))
        except ValidationError as error:
            first = error.errors()[0]
            raise FileError(
                f"{self.model.kind_name()} {answer['name']} of {client.url}: this program does not understand "
                f"{'.'.join(map(str, first['loc']))} ({first['msg']}). Install the version that the backend has."
            ) from None

    def fields(self, client: "ApiClient", answer: Json) -> Json:
        """Return the fields of the document of a resource."""
        return {name: answer[name] for name in self.model.model_fields if name in answer}

    def obstacle(self, client: "ApiClient", live: Live, document: Document) -> str | None:
        """Return why a resource cannot become what its document says, None if it can."""
        return None

    def consequences(
        self,
        client: "ApiClient",
        live: Live | None,
        document: Document | None,
    ) -> Iterable[str]:
        """Return sentences on what nodes would do."""
        return ()

    def create(self, client: "ApiClient", document: Document) -> int:
        """Create a resource; return its id."""
        return int(client.post(self.path, _body(document))["id"])

    def complete(self, client: "ApiClient", resource_id: int, document: Document) -> str:
        """Do what a new resource needs besides; return its state."""
        return "complete"

    def update(self, client: "ApiClient", live: Live, document: Document) -> str:
        """Change a resource; return what was done."""
        client.put(f"{self.path}/{live.id}", _body(document))
        return "changed"

    def delete(self, client: "ApiClient", live: Live) -> None:
        """Delete a resource."""
        client.delete(f"{self.path}/{live.id}")

    def wait(
        self,
        client: "ApiClient",
        resource_id: int,
        document: Document,
        say: Callable[[str], None],
    ) -> bool:
        """Wait until a changed resource is in force; return whether it is."""
        return True


def _body(document: Document) -> Json:
    return document.model_dump(mode="json", exclude={"kind"})
