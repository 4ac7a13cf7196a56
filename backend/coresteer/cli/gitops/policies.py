"""Policies as resources: a changed version is rolled out as the document says, never put in force at once."""

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

from coresteer.cli import api_client
from coresteer.cli.gitops.documents import Document, PolicyDocument
from coresteer.cli.gitops.resources import Json, Kind, Live

if TYPE_CHECKING:
    from coresteer.cli.api_client import ApiClient

_SPREADING = ("canary", "batches")
_MAX_REASONS = 5


class PolicyKind(Kind):
    """Policies. The version that a rollout spreads counts as the policy's: nobody needs to apply it again."""

    def fields(self, client: "ApiClient", answer: Json) -> Json:
        """Return the body of the version in force, or on its way, whether the policy is enabled, and its pace."""
        body = answer["body"]
        if _is_spreading(answer):
            body = _bodies(client, answer["id"])[answer["rollout"]["to_version"]]
        return {**body, "enabled": answer["enabled"], "rollout": answer["pace"]}

    def obstacle(self, client: "ApiClient", live: Live, document: Document) -> str | None:
        """Return why the document cannot be applied now, None if it can."""
        wanted, policy = cast("PolicyDocument", document), live.answer
        kind, before = wanted.body().model_dump(mode="json")["spec"]["type"], policy["body"]["spec"]["type"]
        if kind != before:
            return f"It is of the kind {before}, which cannot become {kind}. Give the new policy another name."
        if not wanted.enabled:
            return None
        if (rollout := policy["rollout"]) is not None:
            state = "in progress; wait until it ends" if _is_spreading(policy) else "stopped; roll it back first"
            return f"The rollout of version {rollout['to_version']} is {state}."
        if (taken := policy["rolled_back"]) is not None:
            body = _bodies(client, live.id).get(taken["version"])
            if body == _body(wanted) and not (policy["enabled"] and policy["version"] == taken["version"]):
                return (
                    f"Version {taken['version']}, which is the same, was rolled back: {taken['why']} Change the "
                    "document, or start that version's rollout on the policy's page."
                )
        return None

    def consequences(self, client: "ApiClient", live: Live | None, document: Document | None) -> Iterator[str]:
        """Yield sentences on what nodes would do, by a preview on live ones."""
        wanted = cast("PolicyDocument | None", document)
        if wanted is None or not wanted.enabled:
            has_it = 0 if live is None else sum(each["nodes"] for each in live.answer["in_force"])
            yield f"{_nodes(has_it)} would restore the settings that it changed, if any."
            yield from _approval(client, live, 0)
            return
        if live is not None and live.document.model_copy(update={"rollout": wanted.rollout}) == wanted:
            yield "Nodes change nothing: it is how the policy's next version spreads."
            return
        body = _body(wanted)
        found = client.post("/policies/matches", body["selector"])
        yield f"The selector matches {found['nodes']} of {_nodes(found['fleet'])}."
        if found["live"]:
            yield from _preview(client, body, found["live"])
        elif found["nodes"]:
            yield "None of them is live, so there is no preview."
        if body["mode"] == "enforce" or (live is not None and live.answer["enabled"]):
            pace = wanted.rollout
            yield f"Its rollout: {_nodes(pace.canary)}, then {pace.batch} at a time, {pace.wait_s:g} s for each stage."
            yield from _approval(client, live, found["nodes"] if body["mode"] == "enforce" else 0)

    def create(self, client: "ApiClient", document: Document) -> int:
        """Create the policy, which is in force only in mode observe."""
        return int(client.post("/policies", _body(cast("PolicyDocument", document)))["id"])

    def complete(self, client: "ApiClient", resource_id: int, document: Document) -> str:
        """Put the policy in force, or disable it."""
        policy = client.get(f"/policies/{resource_id}")
        return _bring_about(client, policy, cast("PolicyDocument", document), 1)

    def update(self, client: "ApiClient", live: Live, document: Document) -> str:
        """Create a version unless it exists already, and put it in force; return what was done."""
        wanted, policy = cast("PolicyDocument", document), live.answer
        bodies = _bodies(client, live.id)
        newest = next(iter(bodies))
        known = (policy["version"], newest) if policy["enabled"] else (policy["version"],)
        version = next((each for each in known if bodies[each] == _body(wanted)), None)
        if version is None:
            made = client.post(f"/policies/{live.id}/versions", {"body": _body(wanted)})
            version = made["version"]
            policy = client.get(f"/policies/{live.id}")
        return _bring_about(client, policy, wanted, version)

    def wait(self, client: "ApiClient", resource_id: int, document: Document, say: Callable[[str], None]) -> bool:
        """Wait until the policy's rollout has ended; return whether the document is in force then."""
        wanted, said = cast("PolicyDocument", document), ""
        if not wanted.enabled:
            return True
        while _is_spreading(policy := api_client.through_outages(lambda: client.get(f"/policies/{resource_id}"))):
            if policy["rollout"]["sentence"] != said:
                said = policy["rollout"]["sentence"]
                say(f"{document.title}: {said}")
            time.sleep(api_client.POLL_S)
        if policy["enabled"] and policy["rollout"] is None and policy["body"] == _body(wanted):
            if said:
                say(f"{document.title}: version {policy['version']} is in force.")
            return True
        taken = policy["rolled_back"]
        why = "The rollout was stopped." if taken is None or policy["rollout"] is not None else taken["why"]
        say(f"{document.title}: it is not in force. {why}")
        return False


def _bring_about(client: "ApiClient", policy: Json, wanted: PolicyDocument, version: int) -> str:
    """Store the pace, and put a version in force or disable the policy; return what was done."""
    path = f"/policies/{policy['id']}"
    pace = wanted.rollout.model_dump(mode="json")
    if policy["pace"] != pace:
        client.put(f"{path}/pace", pace)
    if not wanted.enabled:
        if policy["enabled"]:
            client.post(f"{path}/disable")
        return f"version {version}, disabled"
    if policy["enabled"] and policy["version"] == version:
        return f"version {version} is in force"
    if policy["enabled"] or wanted.body().mode == "enforce":
        if client.post("/policies/matches", _body(wanted)["selector"])["nodes"] or _has_nodes(policy):
            rollout = client.post(f"{path}/rollouts", {"version": version, **pace})
            return f"the rollout of version {version} has started. {rollout['sentence']}"
        if policy["enabled"]:  # without a node, nothing can be rolled out, and nothing be restored
            client.post(f"{path}/disable")
            client.post(f"{path}/versions", {"body": _body(wanted)})
    return f"version {client.post(f'{path}/enable')['version']} is in force"


def _approval(client: "ApiClient", live: Live | None, brought: int) -> Iterator[str]:
    """Yield that it waits for approval if it does for sure. brought: number of nodes that will enforce the policy.

    The backend counts those and the nodes that enforce it now together; only their numbers are known here.
    """
    above = client.get("/approvals/threshold")["above"]
    if above == 0:
        return
    bodies = {} if live is None else _bodies(client, live.id)
    in_force = [] if live is None else live.answer["in_force"]
    enforcing = sum(each["nodes"] for each in in_force if bodies[each["version"]]["mode"] == "enforce")
    if max(brought, enforcing) > above:
        yield f"It waits for the approval of another operator, because it concerns more than {_nodes(above)}."


def _preview(client: "ApiClient", body: Json, node_ids: list[int]) -> Iterator[str]:
    found = client.post("/policies/preview", {"body": body, "node_ids": node_ids})
    verb = {"enforce": "write", "recommend": "propose"}.get(body["mode"], "show")
    evaluated = [each for each in found if each["evaluation"] is not None]
    settings = sum(len(each["evaluation"]["actions"]) for each in evaluated)
    names = ", ".join(each["node_name"] for each in evaluated)
    if evaluated:
        yield f"Preview on {_nodes(len(evaluated))} ({names}): it would {verb} {_count(settings, 'setting')} now."
    reasons = [
        *(each["error"] for each in found if each["evaluation"] is None and each["error"]),
        *(
            f"{each['node_name']}: {deferred['proposal']['key']} is refused: {deferred['why']}"
            for each in evaluated
            for deferred in each["evaluation"]["deferred"]
            if deferred["code"] == "refused"
        ),
    ]
    yield from reasons[:_MAX_REASONS]
    if len(reasons) > _MAX_REASONS:
        yield f"{len(reasons) - _MAX_REASONS} more are refused."


def _is_spreading(policy: Json) -> bool:
    return policy["rollout"] is not None and policy["rollout"]["state"] in _SPREADING


def _has_nodes(policy: Json) -> bool:
    return any(each["nodes"] for each in policy["in_force"])


def _body(document: PolicyDocument) -> Json:
    return document.body().model_dump(mode="json")


def _bodies(client: "ApiClient", policy_id: int) -> dict[int, Json]:
    """Return the bodies of a policy's versions, the newest first."""
    return {each["version"]: each["body"] for each in client.get(f"/policies/{policy_id}/versions")}


def _nodes(number: int) -> str:
    return _count(number, "node")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
