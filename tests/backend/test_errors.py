from collections.abc import Iterator
from pathlib import Path

import psycopg
import psycopg_pool
import pytest
import sqlalchemy.exc
from tests.backend.conftest import Backend, Client, running_backend

from coresteer import errors

PROBLEM = "application/problem+json"

# method, path, body, headers, then the status and a part of the detail
CASES = [
    ("GET", "/api/v1/no-such-thing", None, {}, 404, "There is no page or endpoint at /api/v1/no-such-thing"),
    ("POST", "/api/v1/no-such-thing", b"{}", {}, 404, "There is no page or endpoint at"),
    ("GET", "/api", None, {}, 404, "There is no page or endpoint at /api"),
    ("GET", "/api/nodes", None, {}, 404, "The API is at /api/v1, such as /api/v1/nodes; nothing is at /api/nodes."),
    ("PUT", "/api/v1/users", b"{}", {}, 405, "/api/v1/users does not support the method PUT"),
    ("GET", "/api/v1/auth/login", None, {}, 405, "does not support the method GET"),
    ("POST", "/api/v1/auth/login", b"{", {"Content-Type": "application/json"}, 422, "JSON"),
    ("POST", "/api/v1/auth/login", b'{"username": "a"}', {"Content-Type": "application/json"}, 422, "password: "),
    ("POST", "/api/v1/auth/login", b" " * (1024 * 1024 + 1), {}, 413, "at most 1048576 bytes"),
    ("GET", "/api/v1/users", None, {}, 401, "Sign in first"),
    ("GET", "/api/v1/users", None, {"Authorization": "Bearer cst_unknown"}, 401, "token is unknown"),
    ("GET", "/api/v1/users", None, {"Host": "rebound.example"}, 400, "CORESTEER_PUBLIC_URL"),
    ("GET", "/", None, {"Host": "rebound.example:80"}, 400, "'rebound.example:80'"),
    ("GET", "/", None, {"Host": "[::"}, 400, "does not answer to the host name"),
]


@pytest.mark.parametrize(("method", "path", "body", "headers", "status", "detail"), CASES)
async def test_every_refusal_is_a_problem_document_with_a_sentence(
    backend: Backend,
    *,
    method: str,
    path: str,
    body: bytes | None,
    headers: dict[str, str],
    status: int,
    detail: str,
) -> None:
    answer = await backend.anonymous().request(method, path, data=body, headers=headers)
    assert answer.status_code == status
    assert answer.headers["content-type"] == PROBLEM
    problem = answer.json()
    assert set(problem) == set(errors.PROBLEM_SCHEMA["properties"])
    assert problem["status"] == status
    assert detail in problem["detail"]


async def test_each_wrong_field_is_named(backend: Backend) -> None:
    admin = await backend.client("admin")
    answer = await admin.post("/api/v1/users", {"username": "no spaces", "password": "short", "role": "king"})
    assert answer.status_code == 422
    assert sorted(error["field"] for error in answer.json()["errors"]) == ["password", "role", "username"]
    query = await admin.get("/api/v1/audit?limit=0&node_id=x")
    assert sorted(error["field"] for error in query.json()["errors"]) == ["limit", "node_id"]


async def test_a_body_that_grows_too_large_on_the_way_is_refused(backend: Backend) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * 100_000

    answer = await backend.anonymous().request("POST", "/api/v1/auth/login", data=chunks())
    assert answer.status_code == 413


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8420", "[::1]:8420", "192.0.2.7", "LOCALHOST:1"])
async def test_loopback_names_and_addresses_are_answered(backend: Backend, host: str) -> None:
    assert (await backend.anonymous().get("/api/v1/health", headers={"Host": host})).status_code == 200


async def test_every_configured_name_is_answered_and_no_other(database_url: str) -> None:
    names = {"coresteer.example": 200, "two:8420": 200, "one-backend.tools.svc:8420": 200, "tools.svc": 400}
    settings = {"public_url": "https://coresteer.example", "host_names": "two,one-backend.tools.svc"}
    async with running_backend(database_url, **settings) as backend:
        client = backend.anonymous()
        statuses = {host: (await client.get("/livez", headers={"Host": host})).status_code for host in names}
    assert statuses == names


async def test_a_websocket_for_another_host_name_is_refused_before_it_opens(backend: Backend) -> None:
    headers = {
        "Host": "rebound.example",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    answer = await backend.anonymous().get("/api/v1/live", headers=headers)
    assert answer.status_code == 400
    assert "CORESTEER_PUBLIC_URL" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (psycopg.OperationalError("connection refused"), True),
        (psycopg.errors.ConnectionFailure(), True),
        (psycopg.errors.AdminShutdown(), True),
        (psycopg.errors.CannotConnectNow(), True),
        (psycopg.errors.TooManyConnections(), True),
        (psycopg_pool.PoolTimeout(), True),
        (psycopg.errors.DiskFull(), False),
        (psycopg.errors.DeadlockDetected(), False),
        (psycopg.errors.LockNotAvailable(), False),
        (psycopg.errors.UndefinedTable(), False),
        (sqlalchemy.exc.OperationalError("SELECT 1", {}, psycopg.errors.DiskFull()), False),
        (sqlalchemy.exc.OperationalError("SELECT 1", {}, psycopg.OperationalError("gone")), True),
    ],
    ids=repr,
)
def test_the_database_is_away_only_when_it_does_not_answer(error: Exception, *, away: bool) -> None:
    assert errors.is_database_unavailable(error) is away


PAGE = "<!doctype html><title>Coresteer</title>" + "x" * 2000


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text(PAGE)
    (tmp_path / "assets" / "app-1a2b.js").write_text("export {}")
    return tmp_path


async def test_the_page_answers_its_own_paths_with_itself_and_files_with_their_content(
    built: Path, database_url: str
) -> None:
    async with running_backend(database_url, frontend_dir=built) as backend:
        client = backend.anonymous()
        for path in ("/", "/nodes/3?tab=irqs", "/setup?token=x"):
            answer = await client.get(path)
            assert answer.text == PAGE
            assert answer.headers["cache-control"] == "no-cache"
            assert answer.headers["content-encoding"] == "gzip"
        asset = await client.get("/assets/app-1a2b.js")
        assert asset.text == "export {}"
        assert "immutable" in asset.headers["cache-control"]
        for path in ("/assets/gone.js", "/api/v1/nothing"):
            assert (await client.get(path)).status_code == 404
        assert (await client.post("/nodes/3")).json()["detail"] == "/nodes/3 does not support the method POST."
        assert (await client.get("/..%2f..%2fetc/passwd")).text == PAGE


async def test_a_page_that_is_not_built_says_how(tmp_path: Path, database_url: str) -> None:
    async with running_backend(database_url, frontend_dir=tmp_path / "none") as backend:
        answer = await backend.anonymous().get("/")
        assert answer.status_code == 404
        assert "make up" in answer.text


async def test_every_answer_forbids_framing_sniffing_and_foreign_content(backend: Backend) -> None:
    client: Client = backend.anonymous()
    for path in ("/api/v1/health", "/api/v1/nothing", "/"):
        headers = (await client.get(path)).headers
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "default-src 'self'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
