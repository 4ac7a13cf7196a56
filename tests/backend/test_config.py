from pathlib import Path
from typing import Any  # settings have several types
from unittest.mock import AsyncMock

import pydantic
import pytest
from starlette.types import Receive, Scope, Send

from coresteer.cli.main import main
from coresteer.config import Config
from coresteer.http_server.server import _uvicorn_config


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("DATABASE_URL", "CORESTEER_DATABASE_URL", "CORESTEER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CORESTEER_STATE_DIR", str(tmp_path))


@pytest.mark.parametrize("name", ["DATABASE_URL", "CORESTEER_DATABASE_URL"])
@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_the_database_can_be_named_in_every_usual_form(monkeypatch: pytest.MonkeyPatch, name: str, scheme: str) -> None:
    monkeypatch.setenv(name, f"{scheme}://u:p@db:5433/x?sslmode=require")
    assert Config().database_url == "postgresql://u:p@db:5433/x?sslmode=require"


def test_an_empty_database_url_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "")
    assert Config().database_url is None


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://Coresteer.example/", "https://coresteer.example"),
        ("https://coresteer.example:8443", "https://coresteer.example:8443"),
        ("http://127.0.0.1:8420", "http://127.0.0.1:8420"),
        ("http://localhost:8420", "http://localhost:8420"),
        ("", None),
    ],
)
def test_the_public_address_is_stored_as_an_origin(given: str, kept: str | None) -> None:
    assert Config(public_url=given).public_url == kept


@pytest.mark.parametrize(
    "given",
    ["coresteer.example", "http://coresteer.example", "https://a.example/x", "https://u@a.example", "https://a:x"],
)
def test_a_public_address_that_is_none_or_in_clear_text_is_refused(given: str) -> None:
    with pytest.raises(pydantic.ValidationError, match="public_url"):
        Config(public_url=given)


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, {"127.0.0.1"}),
        ({"host": "own.example"}, {"own.example"}),
        ({"public_url": "https://coresteer.example:8443"}, {"coresteer.example"}),
        (
            {"public_url": "https://coresteer.example", "host_names": "one, Two-backend.tools.svc"},
            {"coresteer.example", "one", "two-backend.tools.svc"},
        ),
    ],
)
def test_a_backend_answers_to_the_names_that_it_is_given(settings: dict[str, Any], names: set[str]) -> None:
    assert Config(**settings).answered_names == {"localhost", *names}


@pytest.mark.parametrize("given", ["https://one", "one:8420", "one,", "one two", "*"])
def test_what_is_no_host_name_is_refused(given: str) -> None:
    with pytest.raises(pydantic.ValidationError, match="must be host names"):
        Config(host_names=given)


def test_an_empty_host_does_not_open_the_backend_to_everybody() -> None:
    with pytest.raises(pydantic.ValidationError, match="host"):
        Config(host="")


@pytest.mark.parametrize("port", [0, 65536])
def test_a_port_that_cannot_be_is_refused(port: int) -> None:
    with pytest.raises(pydantic.ValidationError, match="port"):
        Config(port=port)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:8420"),
        ("0.0.0.0", "http://127.0.0.1:8420"),  # noqa: S104 - only looked at
        ("::1", "http://[::1]:8420"),
        ("coresteer.example", "http://coresteer.example:8420"),
    ],
)
def test_the_printed_address_can_be_opened_on_this_machine(host: str, address: str) -> None:
    assert Config(host=host).address == address


COMMANDS = [
    (["migrate"], {}, "There is no database"),
    (["enrolment-token"], {}, "There is no database"),
    (["serve"], {}, "There is no database"),
    (["serve"], {"CORESTEER_HOST": "0.0.0.0"}, "CORESTEER_PUBLIC_URL"),  # noqa: S104 - refused
    (["up"], {"CORESTEER_HOST": "192.0.2.7"}, "CORESTEER_PUBLIC_URL"),
    (["migrate"], {"DATABASE_URL": "mysql://x"}, "DATABASE_URL in the environment: "),
    (["migrate"], {"CORESTEER_PORT": "many"}, "CORESTEER_PORT in the environment: "),
    (["migrate"], {"CORESTEER_RETENTION_DAYS": "0"}, "CORESTEER_RETENTION_DAYS in the environment: "),
    (["serve", "--port", "70000"], {}, "--port: "),
    (["migrate"], {"DATABASE_URL": "postgresql://x@127.0.0.1/x?sslmod=no"}, 'invalid URI query parameter: "sslmod"'),
    (["migrate"], {"DATABASE_URL": "postgresql://x@127.0.0.1:1/x"}, "The database cannot be reached"),
    (["set-up-link"], {"DATABASE_URL": "postgresql://x@127.0.0.1:1/x"}, "The database cannot be reached"),
]


@pytest.mark.parametrize(("argv", "environment", "sentence"), COMMANDS)
def test_a_command_that_cannot_be_done_ends_with_status_1_and_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    argv: list[str],
    environment: dict[str, str],
    sentence: str,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(argv) == 1
    assert sentence in capsys.readouterr().err


def test_a_wrong_command_ends_with_status_2() -> None:
    with pytest.raises(SystemExit) as caught:
        main(["fly"])
    assert caught.value.code == 2


def test_the_api_description_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    import json

    assert main(["openapi"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["paths"]["/api/v1/auth/me"]["get"]["operationId"] == "me"
    reference = document["paths"]["/api/v1/auth/me"]["get"]["responses"]["default"]["content"][
        "application/problem+json"
    ]
    assert reference["schema"]["$ref"] == "#/components/schemas/Problem"
    assert "Problem" in document["components"]["schemas"]


def test_proxies_are_trusted_by_address_or_network(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Config().trusted_proxies == "127.0.0.1"
    monkeypatch.setenv("CORESTEER_TRUSTED_PROXIES", "10.0.0.5,fd00::/8")
    assert Config().trusted_proxies == "10.0.0.5,fd00::/8"
    monkeypatch.setenv("CORESTEER_TRUSTED_PROXIES", "10.0.0.5,*")
    with pytest.raises(pydantic.ValidationError, match="addresses or networks"):
        Config()


@pytest.mark.parametrize(
    ("peer", "client"),
    [
        ("10.1.2.3", "192.0.2.7"),
        ("::ffff:10.1.2.3", "192.0.2.7"),  # the same proxy, if the backend listens on ::
        ("::ffff:172.16.0.5", "192.0.2.7"),
        ("fd00::1", "192.0.2.7"),
        ("::ffff:11.1.2.3", "::ffff:11.1.2.3"),
        ("fe80::1", "fe80::1"),
    ],
)
async def test_the_client_that_a_trusted_proxy_names_is_used(peer: str, client: str) -> None:
    clients: list[str] = []

    async def application(scope: Scope, _: Receive, __: Send) -> None:
        clients.append(scope["client"][0])

    config = Config(public_url="https://coresteer.example", trusted_proxies="10.0.0.0/8, 172.16.0.5,fd00::/8")
    loaded = _uvicorn_config(application, config)
    loaded.load()
    headers = [(b"x-forwarded-for", b"192.0.2.7, 10.9.9.9")]  # a second proxy, then the one that connects
    await loaded.loaded_app({"type": "http", "client": (peer, 1), "headers": headers}, AsyncMock(), AsyncMock())
    assert clients == [client]


def test_a_process_that_cannot_read_the_file_gets_what_it_sets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "backend.toml"
    file.write_text("""
        public_url = "https://coresteer.example"
        retention_days = 30
        audit_export = "syslog"
        supervised = true
        nats_url = ""
        owner_url = "postgresql://owner@db/x"
        oidc_issuer = "https://login.example"
        oidc_client_id = "coresteer"
        oidc_client_secret = "a secret"
        oidc_roles = { sre = "admin", "*" = "viewer" }
    """)
    monkeypatch.setattr("coresteer.config.CONFIG_FILE", file)
    config = Config()
    file.unlink()
    for name, value in config.as_environment().items():
        monkeypatch.setenv(name, value)
    assert Config() == config.model_copy(update={"owner_url": None})


@pytest.mark.parametrize("url", ["nats://u:p@host:4222", "tls://a,tls://b:4222", "nats://[::1]:4222"])
def test_nats_servers_are_addresses_separated_by_commas(url: str) -> None:
    assert Config(nats_url=url).nats_url == url


@pytest.mark.parametrize("url", ["host:4222", "http://u:secret@host", "nats://u:secret@", "nats://a,b", "nats://a/x"])
def test_an_address_that_is_no_nats_server_is_refused_without_showing_its_password(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CORESTEER_NATS_URL", url)
    assert main(["serve"]) == 1
    complaint = capsys.readouterr().err
    assert "CORESTEER_NATS_URL in the environment" in complaint and "secret" not in complaint


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("coresteer.config.CONFIG_FILE", tmp_path / "backend.toml")
    return tmp_path / "backend.toml"


def test_options_go_before_the_environment_and_that_before_the_file(
    monkeypatch: pytest.MonkeyPatch, file: Path
) -> None:
    file.write_text('database_url = "postgresql:///file"\nport = 1\nhost = "::1"\n')
    assert (Config().database_url, Config().port, Config().host) == ("postgresql:///file", 1, "::1")
    monkeypatch.setenv("DATABASE_URL", "postgresql:///environment")
    monkeypatch.setenv("CORESTEER_PORT", "2")
    assert (Config().database_url, Config().port, Config().host) == ("postgresql:///environment", 2, "::1")
    assert Config(port=3).port == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 1", "prot in /etc/coresteer/backend.toml: Extra inputs are not permitted"),
        ("port = 0", "port in /etc/coresteer/backend.toml: Input should be greater than or equal to 1"),
        ("port = ", "/etc/coresteer/backend.toml: Invalid value"),
    ],
)
def test_a_mistake_in_the_file_is_named(file: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(text)
    assert main(["openapi"]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("CORESTEER_OIDC_ISSUER", "https://login.example.com", "CORESTEER_OIDC_ISSUER also needs"),
        ("CORESTEER_OIDC_ROLES", "sre=admin", 'must be JSON, such as {"sre": "admin"}'),
    ],
)
def test_a_mistake_in_the_settings_of_single_sign_on_is_a_sentence(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert main(["openapi"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
