"""TLS without a proxy: agents trust exactly the backend that their token names; probes and limits hold here too."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Barrier
from unittest.mock import Mock

import pytest
import pytest_asyncio
import requests
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from tests.backend.conftest import Backend, Client, running_backend
from tests.backend.fake_agent import hello
from tests.support.polling import PATIENCE_S, poll_async
from websockets.asyncio.client import connect

from coresteer.cli.api_client import ApiClient, UnreachableError
from coresteer.cli.main import main
from coresteer.config import Config
from coresteer.http_server import limits, private_ca, server
from coresteer.http_server.private_ca import ensure_certificate
from coresteer.http_server.tls import tls_context
from coresteer.listen import ListenError
from coresteer.nodes.service import create_nodes
from coresteer_agent.transport.enrol import EnrolError, NodeKey, enrol, load_key
from coresteer_agent.transport.inbox import Inbox
from coresteer_agent.transport.link import Link
from coresteer_agent.transport.link_events import LinkEvent
from coresteer_core.changes.events import BackendReconnected
from coresteer_core.protocol import encode


def trusting(client: Client, ca: Path) -> Client:
    client.session.verify = str(ca)
    return client


async def token(backend: Backend, ca: Path) -> tuple[str, str]:
    """A new enrolment token, and the command that the page shows."""
    admin = trusting(await backend.client("admin"), ca)
    made = (await admin.post("/api/v1/enrolment-tokens", {})).json()
    return made["token"], made["command"]


async def connects(key: NodeKey, client_cert: Path | None = None) -> bool:
    """Whether an agent with this identity is welcomed."""
    inbox: Inbox[LinkEvent] = Inbox()
    link = Link(key, hello(), inbox, client_cert=client_cert)
    link.start()
    try:
        return isinstance(await asyncio.to_thread(inbox.get, PATIENCE_S), BackendReconnected)
    finally:
        await asyncio.to_thread(link.stop)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def secure(database_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Backend]:
    """A backend with an authority of its own."""
    async with running_backend(database_url, tls="auto", state_dir=tmp_path_factory.mktemp("own")) as backend:
        yield backend


@pytest.fixture
def ca(secure: Backend) -> Path:
    config: Config = secure.app.state.config
    return config.ca_path


@pytest.fixture
def ca_text(ca: Path) -> str:
    return ca.read_text()


async def test_the_enrolment_command_has_the_fingerprint_that_the_agent_pins_and_stores(
    secure: Backend, ca: Path, ca_text: str, tmp_path: Path
) -> None:
    given, command = await token(secure, ca)
    fingerprint = x509.load_pem_x509_certificate(ca_text.encode()).fingerprint(SHA256()).hex()
    assert given.endswith(f".{fingerprint}")
    assert f"--backend {secure.url} --token {given}" in command
    key = await asyncio.to_thread(enrol, [secure.url], given, "pinned", tmp_path / "key.json")
    assert key.ca == ca_text
    assert load_key(tmp_path / "key.json") == key
    assert await connects(key)


async def test_the_token_is_not_sent_to_a_backend_of_another_authority(
    secure: Backend, ca: Path, database_url: str, tmp_path: Path
) -> None:
    given, _ = await token(secure, ca)
    async with running_backend(database_url, tls="auto", state_dir=tmp_path / "other") as other:
        with pytest.raises(EnrolError, match="intercepts the connection"):
            await asyncio.to_thread(enrol, [other.url], given, "deceived", tmp_path / "key.json")
    # the other backend has the same database, and would have used the token up
    key = await asyncio.to_thread(enrol, [secure.url], given, "deceived", tmp_path / "key.json")
    assert key.name == "deceived"


async def test_an_agent_sends_its_key_to_no_backend_of_another_authority(
    secure: Backend, ca: Path, database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given, _ = await token(secure, ca)
    key = await asyncio.to_thread(enrol, [secure.url], given, "loyal", tmp_path / "key.json")
    async with running_backend(database_url, tls="auto", state_dir=tmp_path / "other") as other:
        elsewhere = NodeKey(other.url, key.node_id, key.name, key.key, key.ca)
        inbox: Inbox[LinkEvent] = Inbox()
        link = Link(elsewhere, hello(), inbox)
        link.start()
        async with asyncio.timeout(PATIENCE_S):
            while "enrol this node again" not in caplog.text:  # noqa: ASYNC110 - a log line sends no event
                await asyncio.sleep(0.01)
        assert "CERTIFICATE_VERIFY_FAILED" in caplog.text
        await asyncio.to_thread(link.stop)
        assert not other.app.state.registry.get(key.node_id).connected


async def test_a_browser_that_trusts_the_authority_is_answered(secure: Backend, ca: Path, ca_text: str) -> None:
    client = trusting(secure.anonymous(), ca)
    assert (await client.get("/api/v1/health")).json()["status"] == "ok"
    with pytest.raises(requests.exceptions.SSLError):
        await secure.anonymous().get("/api/v1/health")
    assert (await client.get("/ca.pem")).text == ca_text


async def test_a_command_that_does_not_trust_the_authority_says_how_it_can(secure: Backend) -> None:
    with pytest.raises(UnreachableError, match=r"is not trusted .* SSL_CERT_FILE"):
        await asyncio.to_thread(ApiClient(secure.url, "token").get, "/nodes")


@pytest.mark.parametrize("later", [{}, {"tls_cert": "server.pem", "tls_key": "server.key"}], ids=["proxy", "own"])
async def test_tokens_name_the_authority_only_while_the_backend_serves_with_it(
    database_url: str,
    tmp_path: Path,
    later: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("CORESTEER_STATE_DIR", str(tmp_path / "state"))

    async def command() -> str:
        assert await asyncio.to_thread(main, ["enrolment-token"]) == 0  # without the options of `serve`
        return capsys.readouterr().out.strip()

    ensure_certificate(tmp_path, ["127.0.0.1"])
    files = {name: tmp_path / file for name, file in later.items()}
    for settings in ({"tls": "auto"}, files, {"tls": "auto"}):
        async with running_backend(database_url, state_dir=tmp_path / "state", **settings) as backend:
            ca = tmp_path / "state/tls/ca.pem" if "tls" in settings else tmp_path / "ca.pem"
            given, _ = await token(backend, ca)
            status = (await trusting(backend.anonymous(), ca).get("/ca.pem")).status_code
            named = ["." in each for each in (given, await command())]
            assert (named, status) == (([True, True], 200) if "tls" in settings else ([False, False], 404))


async def test_a_backend_without_an_authority_says_so(backend: Backend) -> None:
    answer = await backend.anonymous().get("/ca.pem")
    assert answer.status_code == 404
    assert "--tls auto" in answer.json()["detail"]


async def test_a_handshake_that_does_not_go_on_ends(secure: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_WAIT_S", 0.3)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(secure.url.rpartition(":")[2]))
    writer.write(b"\x16\x03\x01")
    assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
    writer.close()


@pytest.fixture(scope="module")
def client_cert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of a node, signed by itself, with its key in one file."""
    path = tmp_path_factory.mktemp("client") / "client.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(path), "-out", str(path.with_suffix(".crt")), "-days", "2", "-subj", "/CN=node"]
    subprocess.run(command, check=True, capture_output=True)
    path.write_text(path.read_text() + path.with_suffix(".crt").read_text())
    return path


async def test_with_an_authority_of_clients_only_those_with_a_certificate_connect(
    database_url: str, tmp_path: Path, client_cert: Path
) -> None:
    settings = {"tls": "auto", "state_dir": tmp_path, "tls_client_ca": client_cert.with_suffix(".crt")}
    async with running_backend(database_url, **settings) as backend:
        ca = tmp_path / "tls" / "ca.pem"
        client = trusting(backend.anonymous(), ca)
        with pytest.raises(requests.ConnectionError):
            await client.get("/livez")
        client.session.cert = str(client_cert)
        assert (await client.get("/livez")).status_code == 200
        admin = trusting(await backend.client("admin"), ca)
        admin.session.cert = str(client_cert)
        given = (await admin.post("/api/v1/enrolment-tokens", {})).json()["token"]
        agent_dir = tmp_path / "agent"
        agent_dir.mkdir()
        with pytest.raises(EnrolError, match="cannot be reached"):
            await asyncio.to_thread(enrol, [backend.url], given, "certified", agent_dir / "key.json")
        (agent_dir / "client.pem").symlink_to(client_cert)
        key = await asyncio.to_thread(enrol, [backend.url], given, "certified", agent_dir / "key.json")
        assert await connects(key, agent_dir / "client.pem")


async def test_the_backend_stops_while_a_connection_is_closing(database_url: str, tmp_path: Path) -> None:
    async with running_backend(database_url, tls="auto", state_dir=tmp_path) as backend:
        async with backend.database.session() as session:
            (node,) = await create_nodes(session, ["closing"], simulated=False)
        websocket = await connect(
            f"ws{backend.url.removeprefix('http')}/api/agent",
            additional_headers={"Authorization": f"Bearer {node.key}"},
            ssl=ssl.create_default_context(cafile=tmp_path / "tls" / "ca.pem"),
            proxy=None,
        )
        await websocket.send(encode(hello()))
        await websocket.recv()
        websocket.transport.pause_reading()  # TLS waits for the answer to its own close
        closing = asyncio.create_task(websocket.close())
        await poll_async(lambda: not backend.app.state.registry.get(node.node_id).connected)
    websocket.transport.abort()
    await closing


async def test_given_certificates_are_used(database_url: str, tmp_path: Path) -> None:
    path, key_path = ensure_certificate(tmp_path / "tls", ["127.0.0.1"])
    given = {"tls_cert": path, "tls_key": key_path, "state_dir": tmp_path / "state"}
    async with running_backend(database_url, **given) as backend:
        client = trusting(backend.anonymous(), tmp_path / "tls" / "ca.pem")
        assert (await client.get("/livez")).status_code == 200
        assert (await client.get("/ca.pem")).status_code == 404


async def test_a_certificate_that_cannot_be_used_does_not_replace_the_one_in_use(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "_RELOAD_S", 0.02)
    path, key_path = ensure_certificate(tmp_path / "tls", ["127.0.0.1"])
    renewed_path, renewed_key_path = ensure_certificate(tmp_path / "renewed", ["127.0.0.1"])
    given = {"tls_cert": path, "tls_key": key_path, "state_dir": tmp_path / "state"}
    first_ca = (tmp_path / "tls" / "ca.pem").rename(tmp_path / "first.pem")
    async with running_backend(database_url, **given) as backend:
        renewed_path.replace(path)  # its key is not there yet
        await poll_async(lambda: "The previous one stays in use." in caplog.text)
        assert (await trusting(backend.anonymous(), first_ca).get("/livez")).status_code == 200
        renewed_key_path.replace(key_path)
        address = ("127.0.0.1", int(backend.url.rpartition(":")[2]))
        renewed = path.read_bytes()
        async with asyncio.timeout(PATIENCE_S):
            while (await asyncio.to_thread(ssl.get_server_certificate, address)).encode() != renewed:
                pass


def test_a_key_of_another_certificate_is_replaced_with_it(tmp_path: Path) -> None:
    path, key_path = ensure_certificate(tmp_path, ["a.example"])
    _, other_key_path = ensure_certificate(tmp_path / "other", ["a.example"])
    for key in (other_key_path.read_bytes(), b"-----BEGIN PRIVATE KEY-----"):
        key_path.write_bytes(key)
        ensure_certificate(tmp_path, ["a.example"])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path, key_path)


def test_processes_that_renew_at_the_same_time_make_one_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_have_looked = Barrier(2)
    is_good, looks = private_ca._is_good, 0

    def look(path: Path, key_path: Path, names: list[x509.GeneralName], ca_path: Path) -> bool:
        nonlocal looks
        looks += 1
        found = is_good(path, key_path, names, ca_path)
        if looks <= 2:
            both_have_looked.wait(PATIENCE_S)
        return found

    monkeypatch.setattr(private_ca, "_is_good", look)
    issue = Mock(side_effect=private_ca._issue)
    monkeypatch.setattr(private_ca, "_issue", issue)
    with ThreadPoolExecutor() as pool:
        for made in [pool.submit(ensure_certificate, tmp_path, ["a.example"]) for _ in range(2)]:
            assert made.result(PATIENCE_S) == (tmp_path / "server.pem", tmp_path / "server.key")
    assert issue.call_count == 1


def test_certificates_are_kept_until_they_are_about_to_expire_or_the_names_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, key_path = ensure_certificate(tmp_path, ["a.example", "192.0.2.1"])
    ca, first = (tmp_path / "ca.pem").read_bytes(), path.read_bytes()
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {
        "ca.pem": 0o644,
        "ca.key": 0o600,
        "server.pem": 0o644,
        "server.key": 0o600,
        "lock": 0o600,
    }
    assert x509.load_pem_x509_certificate(first).not_valid_after_utc - datetime.now(UTC) > timedelta(days=396)
    assert ensure_certificate(tmp_path, ["192.0.2.1", "a.example"]) == (path, key_path)
    assert path.read_bytes() == first
    ensure_certificate(tmp_path, ["b.example"])
    second = path.read_bytes()
    assert second != first
    monkeypatch.setattr(private_ca, "RENEW_DAYS", private_ca.CERTIFICATE_DAYS)
    ensure_certificate(tmp_path, ["b.example"])
    assert path.read_bytes() != second
    assert (tmp_path / "ca.pem").read_bytes() == ca
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, key_path)


def test_the_certificate_is_for_every_name_that_the_backend_answers_to(tmp_path: Path) -> None:
    config = Config(state_dir=tmp_path, tls="auto", public_url="https://coresteer.example", host_names="one,two.svc")
    assert tls_context(config) is not None
    certificate = x509.load_pem_x509_certificate((tmp_path / "tls" / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "coresteer.example", "one", "two.svc"} <= set(names.get_values_for_type(x509.DNSName))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tls_cert": "/nowhere.pem"}, "needs --tls-key"),
        ({"tls_cert": "/nowhere.pem", "tls_key": "/nowhere.key"}, "No such file"),
        ({"tls_key": "/nowhere.key"}, "need TLS"),
        ({"tls_client_ca": "/nowhere.pem"}, "need TLS"),
        ({"tls": "auto", "tls_cert": "/nowhere.pem"}, "leave out --tls-cert .* or to serve with that one, --tls auto"),
        ({"tls": "auto", "tls_client_ca": "/nowhere.pem"}, "authority of client certificates"),
    ],
)
def test_tls_that_cannot_be_used_says_why(tmp_path: Path, settings: dict[str, str], says: str) -> None:
    with pytest.raises(ListenError, match=says):
        tls_context(Config.model_validate({"state_dir": tmp_path, **settings}))


def test_a_damaged_authority_is_not_replaced_silently(tmp_path: Path) -> None:
    config = Config.model_validate({"state_dir": tmp_path, "tls": "auto"})
    tls_context(config)
    (tmp_path / "tls" / "server.pem").unlink()
    (tmp_path / "tls" / "ca.pem").write_text("-----BEGIN CERTIFICATE-----")
    with pytest.raises(ListenError, match="enrol again"):
        tls_context(config)


def test_with_tls_the_backend_may_listen_for_others() -> None:
    open_to_all = {"host": "0.0.0.0"}  # noqa: S104 - nothing is bound
    assert Config.model_validate(open_to_all).is_open_without_proxy
    secured = Config.model_validate({**open_to_all, "tls": "auto"})
    assert not secured.is_open_without_proxy
    assert secured.address == "https://127.0.0.1:8420"


def test_up_says_that_it_has_no_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CORESTEER_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("CORESTEER_TLS", "auto")
    assert main(["up"]) == 1
    assert "`coresteer serve --tls auto`" in capsys.readouterr().err


def test_an_option_is_named_as_it_was_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CORESTEER_TLS", "always")
    assert main(["serve"]) == 1
    assert "CORESTEER_TLS in the environment" in capsys.readouterr().err
