import asyncio
from datetime import datetime, timedelta

import pytest
import requests
from sqlalchemy import text
from tests.backend.conftest import PASSWORD, Backend, running_backend
from tests.backend.fake_agent import FakeAgent
from tests.backend.test_auth import log_in
from tests.support.polling import PATIENCE_S

from coresteer.auth.secrets import token_hash
from coresteer_core.protocol import CloseCode


async def new_token(backend: Backend, **body: object) -> str:
    answer = await (await backend.client("admin")).post("/api/v1/enrolment-tokens", body)
    token: str = answer.json()["token"]
    assert token.startswith("cse_")
    assert token in answer.json()["command"]
    return token


async def test_an_enrolment_token_enrols_one_agent_once(backend: Backend) -> None:
    token = await new_token(backend)
    agent = backend.anonymous()
    answer = await agent.post("/api/enrol", {"token": token, "names": ["rack1-a"]})
    assert answer.status_code == 200
    assert [node["name"] for node in answer.json()["nodes"]] == ["rack1-a"]
    again = await agent.post("/api/enrol", {"token": token, "names": ["rack1-b"]})
    assert again.status_code == 403
    assert again.headers["content-type"] == "application/problem+json"


async def test_a_node_that_exists_is_taken_over_only_by_its_readmission(backend: Backend) -> None:
    agent = backend.anonymous()
    body = {"token": await new_token(backend), "names": ["live"]}
    node_id = (await agent.post("/api/enrol", body)).json()["nodes"][0]["node_id"]
    body = {"token": await new_token(backend), "names": ["live"]}
    refused = await agent.post("/api/enrol", body)
    assert refused.status_code == 409
    assert "“live” is already enrolled" in refused.json()["detail"]
    admin = await backend.client("admin")
    assert (await admin.post(f"/api/v1/nodes/{node_id}/revoke-key")).status_code == 204
    refused = await agent.post("/api/enrol", body)
    assert (refused.status_code, "“live” was revoked" in refused.json()["detail"]) == (409, True)
    readmission = (await admin.post(f"/api/v1/nodes/{node_id}/readmit")).json()["token"]
    again = await agent.post("/api/enrol", {"token": readmission, "names": ["live"]})
    assert again.json()["nodes"][0]["node_id"] == node_id
    other = {**body, "names": ["another"]}  # the refusals used nothing
    assert (await agent.post("/api/enrol", other)).status_code == 200


async def test_simulated_nodes_enrol_again(backend: Backend) -> None:
    for _ in range(2):
        body = {"token": await new_token(backend, simulated=True), "names": ["again-1", "again-2"]}
        assert (await backend.anonymous().post("/api/enrol", body)).status_code == 200


async def test_behind_a_proxy_commands_and_cookies_are_for_the_public_address(database_url: str) -> None:
    async with running_backend(database_url, public_url="https://coresteer.example") as proxied:
        admin = await proxied.client("admin")
        admin.session.headers["Host"] = "coresteer.example"
        answer = await admin.post("/api/v1/enrolment-tokens", {})
        assert "coresteer-agent run --backend https://coresteer.example" in answer.json()["command"]
        login = await admin.post("/api/v1/auth/login", {"username": "admin", "password": PASSWORD})
        assert "secure" in login.headers["set-cookie"].lower()


async def test_a_token_for_one_node_refuses_several_and_is_not_used_up_by_that(backend: Backend) -> None:
    token = await new_token(backend)
    agent = backend.anonymous()
    refused = await agent.post("/api/enrol", {"token": token, "names": ["a", "b"]})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "names"
    assert (await agent.post("/api/enrol", {"token": token, "names": ["a"]})).status_code == 200


async def test_a_token_for_simulated_nodes_enrols_many_at_once(backend: Backend) -> None:
    token = await new_token(backend, simulated=True)
    names = [f"sim-{number}" for number in range(500)]
    answer = await backend.anonymous().post("/api/enrol", {"token": token, "names": names})
    assert [node["name"] for node in answer.json()["nodes"]] == names
    assert len({node["key"] for node in answer.json()["nodes"]}) == 500


async def test_an_expired_token_is_refused(backend: Backend) -> None:
    token = await new_token(backend)
    async with backend.database.session() as session:
        await session.execute(text("UPDATE enrolment_token SET expires_at = now()"))
    assert (await backend.anonymous().post("/api/enrol", {"token": token, "names": ["late"]})).status_code == 403


async def enrol(backend: Backend, token: str, name: str) -> requests.Response:
    return await backend.anonymous().post("/api/enrol", {"token": token, "names": [name]})


async def listed(backend: Backend, token: str) -> dict[str, object]:
    """The newest token, as administrators see it."""
    newest: dict[str, object] = (await (await backend.client("admin")).get("/api/v1/enrolment-tokens")).json()[0]
    assert token not in str(newest)
    return newest


async def test_concurrent_enrolments_never_exceed_the_uses_and_failed_ones_use_nothing(backend: Backend) -> None:
    token = await new_token(backend, max_uses=12, name_pattern="many-*")
    names = [f"{'few' if number % 3 == 0 else 'many'}-{number}" for number in range(45)]  # 30 match
    answers = await asyncio.gather(*(enrol(backend, token, name) for name in names))
    by_status = {code: sum(answer.status_code == code for answer in answers) for code in (200, 403, 422)}
    assert by_status[200] == 12
    assert by_status[403] + by_status[422] == 33
    shown = await listed(backend, token)
    assert (shown["max_uses"], shown["uses_left"]) == (12, 0)
    async with backend.database.session() as session:
        count = (await session.execute(text("SELECT count(*) FROM node WHERE name LIKE 'many-%'"))).scalar_one()
    assert count == 12


async def test_the_list_says_what_a_token_allows_and_how_it_was_used(backend: Backend) -> None:
    token = await new_token(
        backend, max_uses=3, expires_in_minutes=120, labels={"role": "db"}, name_pattern="db-?", rejoin_for_minutes=60
    )
    shown = await listed(backend, token)
    assert (shown["uses_left"], shown["last_used_at"], shown["created_by"]) == (3, None, "admin")
    assert (shown["labels"], shown["name_pattern"], shown["node_name"]) == ({"role": "db"}, "db-?", None)
    times = [datetime.fromisoformat(str(shown[name])) for name in ("created_at", "rejoin_until", "expires_at")]
    assert [round((time - times[0]) / timedelta(minutes=1)) for time in times] == [0, 60, 120]
    await enrol(backend, token, "db-7")
    shown = await listed(backend, token)
    assert (shown["uses_left"], shown["last_used_at"] is not None) == (2, True)


async def test_a_node_gets_the_labels_of_its_token_under_those_of_people(backend: Backend) -> None:
    token = await new_token(backend, labels={"role": "db", "rack": "r01"})
    node_id = (await enrol(backend, token, "labelled")).json()["nodes"][0]["node_id"]
    operator = await backend.client("operator")

    async def labels() -> object:
        return (await operator.get(f"/api/v1/nodes/{node_id}")).json()["labels"]

    assert await labels() == {"role": "db", "rack": "r01"}
    await operator.patch(f"/api/v1/nodes/{node_id}", {"labels": {"role": "web", "rack": "r01"}})
    assert await labels() == {"role": "web", "rack": "r01"}
    async with backend.database.session() as session:
        query = text("SELECT labels FROM node WHERE id = :id")
        assert (await session.execute(query, {"id": node_id})).scalar_one() == {"role": "web"}
    readmission = (await operator.post(f"/api/v1/nodes/{node_id}/readmit")).json()["token"]
    await enrol(backend, readmission, "labelled")
    assert await labels() == {"role": "web", "rack": "r01"}


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("web-*", "web-1", True),
        ("web-*", "my-web-1", False),
        ("web-?", "web-12", False),
        ("web-[0-9]", "web-7", True),
        ("web-[0-9]", "web-x", False),
        ("Web-*", "web-1", False),
        ("*", "anything", True),
    ],
)
async def test_only_names_that_match_the_pattern_enrol(
    backend: Backend, pattern: str, name: str, matches: bool
) -> None:
    answer = await enrol(backend, await new_token(backend, name_pattern=pattern), f"{name}")
    if matches:
        assert answer.status_code in (200, 409)  # 409: a node of an earlier case
    else:
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "names")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"max_uses": 0}, "max_uses"),
        ({"max_uses": 100_001}, "max_uses"),
        ({"expires_in_minutes": 90 * 24 * 60 + 1}, "expires_in_minutes"),
        ({"labels": {"Role": "db"}}, "labels"),
        ({"labels": {f"l{number}": "" for number in range(17)}}, "labels"),
        ({"name_pattern": "a b"}, "name_pattern"),
        ({"rejoin_for_minutes": 10}, "rejoin_for_minutes"),
        ({"rejoin_for_minutes": 61, "name_pattern": "*"}, "rejoin_for_minutes"),
    ],
)
async def test_a_token_with_an_invalid_bound_is_refused(backend: Backend, body: dict[str, object], field: str) -> None:
    answer = await (await backend.client("admin")).post("/api/v1/enrolment-tokens", body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"].startswith(field)


async def test_a_revoked_token_admits_nobody_and_its_nodes_stay(backend: Backend) -> None:
    token = await new_token(backend, max_uses=2)
    assert (await enrol(backend, token, "before-it-ended")).status_code == 200
    admin = await backend.client("admin")
    token_id = (await listed(backend, token))["id"]
    assert (await admin.delete(f"/api/v1/enrolment-tokens/{token_id}")).status_code == 204
    assert (await enrol(backend, token, "after-it-ended")).status_code == 403
    assert "before-it-ended" in [node["name"] for node in (await admin.get("/api/v1/nodes")).json()]
    entry = (await admin.get("/api/v1/audit")).json()["entries"][0]
    assert (entry["action"], entry["target"]) == ("enrolment-token.revoke", f"enrolment token {token_id}")
    assert entry["detail"] == {"uses": 1, "max_uses": 2}


@pytest.mark.parametrize(
    "change", [{"role": "operator"}, {"disabled": True}, {"password": "a new good password"}, None]
)
async def test_the_tokens_of_a_user_end_with_their_rights(backend: Backend, change: dict[str, object] | None) -> None:
    admin = await backend.client("admin")
    name = f"leaves-{'-'.join(change or ['deleted'])}"
    new = {"username": name, "password": PASSWORD, "role": "admin"}
    path = f"/api/v1/users/{(await admin.post('/api/v1/users', new)).json()['id']}"
    leaver = await log_in(backend, name)
    token: str = (await leaver.post("/api/v1/enrolment-tokens", {})).json()["token"]
    ended = await (admin.patch(path, change) if change else admin.delete(path))
    assert ended.status_code in (200, 204)
    assert (await enrol(backend, token, f"of-{name}")).status_code == 403


async def test_the_tokens_of_a_user_stay_when_their_role_is_saved_unchanged(backend: Backend) -> None:
    admin = await backend.client("admin")
    new = {"username": "stays", "password": PASSWORD, "role": "admin"}
    path = f"/api/v1/users/{(await admin.post('/api/v1/users', new)).json()['id']}"
    token: str = (await (await log_in(backend, "stays")).post("/api/v1/enrolment-tokens", {})).json()["token"]
    assert (await admin.patch(path, {"role": "admin", "disabled": False})).status_code == 200
    assert (await enrol(backend, token, "of-stays")).status_code == 200


async def test_a_node_rejoins_within_the_window_of_a_token_that_allows_it(backend: Backend) -> None:
    token = await new_token(backend, max_uses=9, name_pattern="pool-*", rejoin_for_minutes=30, labels={"pool": "a"})
    first = (await enrol(backend, token, "pool-1")).json()["nodes"][0]
    agent = FakeAgent(backend.url, first["key"], first["node_id"])
    async with asyncio.timeout(PATIENCE_S), agent:
        again = (await enrol(backend, token, "pool-1")).json()["nodes"][0]
        assert (await agent.closed())[0] == CloseCode.BAD_KEY
    assert (again["node_id"], again["existed"], first["existed"]) == (first["node_id"], True, False)
    admin = await backend.client("admin")
    entries = (await admin.get(f"/api/v1/audit?node_id={first['node_id']}")).json()["entries"]
    token_id = (await listed(backend, token))["id"]
    common = {"simulated": False, "nodes": 1, "enrolment_token": token_id, "labels": {"pool": "a"}}
    assert [(entry["action"], entry["detail"]) for entry in entries] == [
        ("node.re-enrol", common | {"keys_ended": 1, "readmitted_by_an_operator": False}),
        ("node.enrol", common),
    ]
    async with backend.database.session() as session:
        await session.execute(text("UPDATE enrolment_token SET rejoin_until = now()"))
    assert (await enrol(backend, token, "pool-1")).status_code == 409
    assert (await enrol(backend, token, "pool-2")).status_code == 200  # new nodes still enrol


async def made_by_the_previous_version(backend: Backend, token: str, node_id: int | None = None) -> None:
    query = """
        INSERT INTO one_time_token (token_hash, purpose, node_id, created_by, expires_at)
        VALUES (:hash, 'enrolment', :node_id, 'former', now() + interval '1 hour')
    """
    async with backend.database.session() as session:
        await session.execute(text(query), {"hash": token_hash(token), "node_id": node_id})


async def test_a_token_of_the_previous_version_enrols_one_node_once(backend: Backend) -> None:
    await made_by_the_previous_version(backend, "cse_previous")
    answers = await asyncio.gather(*(enrol(backend, "cse_previous", f"previous-{number}") for number in range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 403, 403, 403]
    assert (await listed(backend, "cse_previous"))["uses_left"] == 0


async def test_revoking_a_key_ends_the_readmission_that_the_previous_version_made(backend: Backend) -> None:
    admin = await backend.client("admin")
    node_id = (await enrol(backend, await new_token(backend), "readmitted")).json()["nodes"][0]["node_id"]
    for token in ("cse_first", "cse_second"):
        await made_by_the_previous_version(backend, token, node_id)
    assert (await enrol(backend, "cse_first", "readmitted")).json()["nodes"][0]["node_id"] == node_id
    assert (await admin.post(f"/api/v1/nodes/{node_id}/revoke-key")).status_code == 204
    assert (await enrol(backend, "cse_second", "readmitted")).status_code == 403


async def test_a_node_whose_key_was_revoked_never_rejoins_by_itself(backend: Backend) -> None:
    token = await new_token(backend, max_uses=9, name_pattern="*", rejoin_for_minutes=30)
    node_id = (await enrol(backend, token, "compromised")).json()["nodes"][0]["node_id"]
    assert (await (await backend.client("admin")).post(f"/api/v1/nodes/{node_id}/revoke-key")).status_code == 204
    refused = await enrol(backend, token, "compromised")
    assert (refused.status_code, "was revoked" in refused.json()["detail"]) == (409, True)
    assert (await listed(backend, token))["uses_left"] == 8
