"""Plans: how the backend differs from YAML files, and what nodes would do if it did not."""

import difflib
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from coresteer.auth.schemas import Role
from coresteer.cli.gitops.documents import MODELS, Document, Loaded, compact, parse
from coresteer.cli.gitops.kinds import KINDS
from coresteer.cli.gitops.resources import Kind, Live
from coresteer.cli.gitops.yaml_files import FileError, files_in, read, write

if TYPE_CHECKING:
    from coresteer.cli.api_client import ApiClient

Key: TypeAlias = tuple[str, int]
"""Kind and id of a resource, as a set of managed resources has them."""


class Action(Enum):
    """What applying does to a resource; the value marks it in a plan."""

    CREATE = "+"
    UPDATE = "~"
    DELETE = "-"
    NONE = "="


@dataclass(frozen=True)
class Item:
    """What applying does to one resource. live: None to create; document: None to delete; obstacle: why it cannot."""

    kind: Kind
    action: Action
    live: Live | None
    document: Document | None
    obstacle: str | None = None

    @property
    def title(self) -> str:
        """Return kind and name."""
        one = self.live.document if self.document is None and self.live is not None else self.document
        assert one is not None  # noqa: S101 - an item has one of both
        return one.title


@dataclass(frozen=True)
class Plan:
    """All differences. managed: keys of the set now; adopted: of resources that the documents add to it.

    left: titles of what the set has besides the documents, and that is not deleted. role: of the token.
    """

    items: list[Item]
    managed_by: str
    managed: frozenset[Key]
    adopted: frozenset[Key]
    left: list[str]
    role: Role

    @property
    def changes(self) -> list[Item]:
        """Return the items that change something, in the order in which they are applied: deletions last."""
        kept = [item for item in self.items if item.action in (Action.CREATE, Action.UPDATE)]
        return kept + [item for item in reversed(self.items) if item.action is Action.DELETE]

    @property
    def differs(self) -> bool:
        """Return whether the backend differs from the files."""
        return bool(self.changes)

    def refusal(self, kind: Kind) -> str | None:
        """Return why the token cannot write resources of a kind, None if it can."""
        if _may_write(self.role, kind):
            return None
        name = kind.model.kind_name()
        return f"Writing {name} needs a token with the role {kind.model.role}; this one has the role {self.role}."


def _stdin() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise FileError(f"stdin: this is not text in UTF-8: {error.reason} at byte {error.start}.") from None


def load(paths: Sequence[str]) -> list[Loaded]:
    """Return the documents of files, folders and stdin (-). Raises FileError with a line for each error."""
    texts = [("stdin", _stdin())] if "-" in paths else []
    texts += [(str(path), _text(path)) for path in files_in([Path(each) for each in paths if each != "-"])]
    found: dict[tuple[str, str], Loaded] = {}
    errors: list[str] = []
    for name, text in texts:
        try:
            for raw in read(name, text):
                try:
                    loaded = parse(raw)
                except FileError as error:
                    errors.append(str(error))
                    continue
                key = (loaded.document.kind, loaded.document.name)
                if key in found:
                    errors.append(
                        f"{loaded.where}: {loaded.document.title} is given twice, first in {found[key].where}."
                    )
                found.setdefault(key, loaded)
        except FileError as error:
            errors.append(str(error))
    if errors:
        raise FileError("\n".join(errors))
    if not found:
        raise FileError(f"{', '.join(paths)}: there is no document; `coresteer export FOLDER` writes some.")
    return list(found.values())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: this is not UTF-8: {error}.") from None


def make(client: "ApiClient", loaded: Iterable[Loaded], *, managed_by: str, prune: bool) -> Plan:
    """Compare documents with the backend's resources. Raises ApiError, UnreachableError and FileError."""
    order = list(MODELS)
    documents = sorted((each.document for each in loaded), key=lambda each: (order.index(each.kind), each.name))
    role = Role(client.get("/auth/me")["role"])
    sets = client.get("/managed-sets")
    owners = {(one["kind"], one["id"]): each["name"] for each in sets for one in each["resources"]}
    items: list[Item] = []
    left: list[str] = []
    managed = {key for key, name in owners.items() if name == managed_by}
    adopted: set[Key] = set()
    for kind in KINDS:
        of_kind = {each.name: each for each in documents if each.kind == kind.model.kind_name()}
        live = {each.document.name: each for each in kind.live(client)}
        for name, document in of_kind.items():
            one = live.get(name)
            owner = None if one is None else owners.get((document.kind, one.id))
            if one is not None and owner is None and _may_write(role, kind):
                adopted.add((document.kind, one.id))
            items.append(_compared(client, kind, one, document, owner if owner != managed_by else None))
        for name, each in live.items():
            key = (kind.model.kind_name(), each.id)
            if owners.get(key) != managed_by:
                continue
            if name not in of_kind and prune:
                items.append(Item(kind, Action.DELETE, each, None))
            elif name not in of_kind:
                left.append(each.document.title)
    return Plan(items, managed_by, frozenset(managed), frozenset(adopted), left, role)


def _may_write(role: Role, kind: Kind) -> bool:
    ranks = list(Role)
    return ranks.index(role) >= ranks.index(kind.model.role)


def _compared(client: "ApiClient", kind: Kind, live: Live | None, document: Document, other: str | None) -> Item:
    """Return what applying does. other: name of the other set that manages the resource."""
    if live is None:
        return Item(kind, Action.CREATE, None, document)
    if _yaml(live.document) == _yaml(document):
        return Item(kind, Action.NONE, live, document)
    if other is not None:
        why = f"It is managed by {other}. Remove it from those files and apply them first, or use --managed-by {other}."
        return Item(kind, Action.UPDATE, live, document, why)
    return Item(kind, Action.UPDATE, live, document, kind.obstacle(client, live, document))


def _yaml(document: Document | None) -> list[str]:
    return [] if document is None else write([compact(document)]).splitlines()


def describe(client: "ApiClient", plan: Plan) -> Iterator[str]:
    """Yield the lines of a plan: each resource with its difference and what nodes would do, then a summary."""
    for item in plan.items:
        yield f"{item.action.value} {item.title}"
        if item.action is Action.NONE:
            continue
        before = None if item.live is None else item.live.document
        lines = difflib.unified_diff(_yaml(before), _yaml(item.document), "backend", "files", lineterm="")
        yield from (f"    {line}" for line in lines)
        if item.obstacle is not None:
            yield f"  It cannot be applied: {item.obstacle}"
            continue
        for sentence in item.kind.consequences(client, item.live, item.document):
            yield f"  {sentence}"
    for title in plan.left:
        yield f"  {title} was applied from these files and is no longer in them; --prune deletes it."
    yield from (f"  {why}" for kind in {item.kind: None for item in plan.changes} if (why := plan.refusal(kind)))
    words = {
        Action.CREATE: "to create",
        Action.UPDATE: "to change",
        Action.DELETE: "to delete",
        Action.NONE: "unchanged",
    }
    counted = [(sum(item.action is action for item in plan.items), word) for action, word in words.items()]
    yield ", ".join(f"{number} {word}" for number, word in counted) + "."
