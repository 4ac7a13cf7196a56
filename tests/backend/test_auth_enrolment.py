from sqlalchemy import text
from tests.backend.conftest import PASSWORD, Backend, running_backend


async def new_token(backend: Backend, **body: object) -> str:
    answer = await (await backend.client("admin")).post("/api/enrolment-tokens", body)
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


async def test_a_node_that_has_a_key_is_not_taken_over_until_the_key_is_revoked(backend: Backend) -> None:
    agent = backend.anonymous()
    body = {"token": await new_token(backend), "names": ["live"]}
    node_id = (await agent.post("/api/enrol", body)).json()["nodes"][0]["node_id"]
    body = {"token": await new_token(backend), "names": ["live"]}
    refused = await agent.post("/api/enrol", body)
    assert refused.status_code == 409
    assert "“live” is already enrolled" in refused.json()["detail"]
    async with backend.database.session() as session:
        await session.execute(text("UPDATE node SET key_hash = NULL WHERE name = 'live'"))
    again = await agent.post("/api/enrol", body)  # the refusal did not use the token up
    assert again.json()["nodes"][0]["node_id"] == node_id


async def test_simulated_nodes_enrol_again(backend: Backend) -> None:
    for _ in range(2):
        body = {"token": await new_token(backend, simulated=True), "names": ["again-1", "again-2"]}
        assert (await backend.anonymous().post("/api/enrol", body)).status_code == 200


async def test_behind_a_proxy_commands_and_cookies_are_for_the_public_address(database_url: str) -> None:
    async with running_backend(database_url, public_url="https://coresteer.example") as proxied:
        admin = await proxied.client("admin")
        admin.session.headers["Host"] = "coresteer.example"
        answer = await admin.post("/api/enrolment-tokens", {})
        assert "coresteer-agent run --backend https://coresteer.example" in answer.json()["command"]
        login = await admin.post("/api/auth/login", {"username": "admin", "password": PASSWORD})
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
        await session.execute(text("UPDATE one_time_token SET expires_at = now()"))
    assert (await backend.anonymous().post("/api/enrol", {"token": token, "names": ["late"]})).status_code == 403
