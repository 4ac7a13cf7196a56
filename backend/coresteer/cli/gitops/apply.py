"""Apply: carries a plan out through the API and records which resources the files manage."""

import time
from collections.abc import Callable, Set
from enum import Enum
from typing import TYPE_CHECKING

from coresteer.cli import api_client
from coresteer.cli.api_client import ApiError, WaitingError
from coresteer.cli.gitops.plan import Item, Key, Plan

if TYPE_CHECKING:
    from coresteer.cli.api_client import ApiClient


class Applied(Enum):
    """What came of a plan. WAITING: all is done that need not wait for the approval of another operator."""

    ALL = "all"
    WAITING = "waiting"
    NOT_ALL = "not all"


def apply(client: "ApiClient", plan: Plan, say: Callable[[str], None], *, wait: bool) -> Applied:
    """Carry the plan out. What fails is said and does not stop the rest.

    wait: until rollouts have ended, and what needs approval is decided. Raises UnreachableError.
    """
    claims = _Claims(client, plan)
    if plan.adopted and (why := claims.adopt(plan.adopted)) is not None:
        say(f"Not all resources became part of the set {plan.managed_by}. {why}")
    failed: set[str] = set()
    waiting: dict[str, int] = {}
    for item in plan.changes:
        if (why := item.obstacle or plan.refusal(item.kind)) is None:
            try:
                say(f"{item.title}: {_carry_out(client, item, claims)}")
                continue
            except WaitingError as approval:
                waiting[item.title] = approval.approval_id
                say(f"{item.title}: {approval} Request {approval.approval_id}, on the page Policies.")
                continue
            except ApiError as error:
                why = str(error)
        failed.add(item.title)
        say(f"{item.title}: not applied. {why}")
    if not wait:
        return Applied.NOT_ALL if failed else Applied.WAITING if waiting else Applied.ALL
    failed |= {title for title, approval_id in waiting.items() if not _is_approved(client, title, approval_id, say)}
    for item in plan.items:
        resource_id = claims.created.get(item.title, None if item.live is None else item.live.id)
        if (
            item.document is not None
            and item.obstacle is None
            and resource_id is not None
            and item.title not in failed
            and not item.kind.wait(client, resource_id, item.document, say)
        ):
            failed.add(item.title)
    return Applied.NOT_ALL if failed else Applied.ALL


def _is_approved(client: "ApiClient", title: str, approval_id: int, say: Callable[[str], None]) -> bool:
    """Wait until a request is decided; return whether it was approved, and so carried out."""
    path = f"/approvals/{approval_id}"
    while (approval := api_client.through_outages(lambda: client.get(path)))["state"] == "waiting":
        time.sleep(api_client.POLL_S)
    say(f"{title}: {approval['sentence']}")
    return bool(approval["state"] == "approved")


def _carry_out(client: "ApiClient", item: Item, claims: "_Claims") -> str:
    """Carry one item out; return what was done."""
    kind, name = item.kind, item.kind.model.kind_name()
    if item.document is None:
        assert item.live is not None  # noqa: S101 - an item has a document or a resource
        kind.delete(client, item.live)
        claims.replace(claims.keys - {(name, item.live.id)})
        return "deleted."
    if item.live is not None:
        return f"{kind.update(client, item.live, item.document)}."
    resource_id = kind.create(client, item.document)
    claims.created[item.title] = resource_id
    claims.replace(claims.keys | {(name, resource_id)})  # before anything else can fail
    return f"created; {kind.complete(client, resource_id, item.document)}."


class _Claims:
    """The resources of the set. created: ids of new resources, by title."""

    def __init__(self, client: "ApiClient", plan: Plan) -> None:
        self.keys = plan.managed
        self.created: dict[str, int] = {}
        self._client = client
        self._path = f"/managed-sets/{plan.managed_by}"

    def replace(self, keys: Set[Key]) -> None:
        """Tell the backend what joins and what leaves the set; what another apply does at the same time stays."""
        self._client.put(self._path, {"resources": _resources(keys), "was": _resources(self.keys)})
        self.keys = frozenset(keys)

    def adopt(self, keys: Set[Key]) -> str | None:
        """Add resources that exist; return why some could not be: they are beyond the limits of an operator."""
        why = None
        try:
            self.replace(self.keys | keys)
        except ApiError:
            one_by_one = sorted(keys)
        else:
            return None
        for key in one_by_one:
            try:
                self.replace(self.keys | {key})
            except ApiError as error:
                why = str(error)
        return why


def _resources(keys: Set[Key]) -> list[dict[str, object]]:
    return [{"kind": kind, "id": id_} for kind, id_ in sorted(keys)]
