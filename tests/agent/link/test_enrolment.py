"""Addresses of backends, enrolment, and the key that it stores."""

import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest

from coresteer_agent.config import Config, ConfigError, check_backend, check_backends, parse_labels
from coresteer_agent.transport import enrol as enrol_module
from coresteer_agent.transport.enrol import EnrolError, NodeKey, enrol, load_key, load_or_request_key, store_key


@pytest.mark.parametrize(
    "url", ["", "example.org", "ftp://x", "http://", "http://u:p@localhost", "http://localhost:x", "http://localhost?a"]
)
def test_an_invalid_backend_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        check_backend(url, insecure=True)


def test_encryption_is_required_except_on_this_machine() -> None:
    for url in ("http://localhost:8420", "http://127.9.0.1:1", "http://[::1]:1", "https://example.org"):
        assert check_backend(url + "/", insecure=False) == url
    for url in ("http://example.org", "http://10.0.0.1:8420", "http://localhost.example.org"):
        with pytest.raises(ConfigError, match="not encrypted"):
            check_backend(url, insecure=False)
        assert check_backend(url, insecure=True) == url


def config(tmp_path: Path, backend: str, token_file: Path | None = None) -> Config:
    return Config((backend,), tmp_path, Path("/"), 1.0, "n", token_file)


def test_enrolment_stores_a_key_that_only_its_owner_can_read(
    tmp_path: Path, answer: Callable[[int, bytes], str]
) -> None:
    url = answer(200, b'{"nodes":[{"node_id":3,"name":"n","key":"k3"}]}')
    path = tmp_path / "agent/key.json"
    assert enrol([url], "token", "n", path) == NodeKey(url, 3, "n", "k3")
    assert load_key(path) == NodeKey(url, 3, "n", "k3")
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("status", "body", "transient", "says"),
    [
        (403, b'{"title":"Forbidden","detail":"The token is used."}', False, "The token is used."),
        (503, b"<html>", True, "503"),
        (200, b"<html>", True, "cannot be reached"),
        (200, b'{"nodes":[]}', False, "is it a Coresteer backend"),
    ],
)
def test_a_refused_enrolment_has_a_reason_and_says_whether_to_retry(
    tmp_path: Path, answer: Callable[[int, bytes], str], *, status: int, body: bytes, transient: bool, says: str
) -> None:
    with pytest.raises(EnrolError, match=says) as caught:
        enrol([answer(status, body)], "token", "n", tmp_path / "key.json")
    assert caught.value.transient is transient
    assert not (tmp_path / "key.json").exists()


def test_an_enrolment_that_is_ended_stores_the_key_that_the_backend_issued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(*_: object) -> tuple[list[enrol_module.EnrolledNode], str]:
        signal.raise_signal(signal.SIGTERM)
        return [enrol_module.EnrolledNode(7, "n", "secret")], ""

    monkeypatch.setattr(enrol_module, "request_keys", answer)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with pytest.raises(SystemExit):
        enrol(["http://127.0.0.1:1"], "token", "n", tmp_path / "key.json")
    signal.signal(signal.SIGTERM, before)
    key = load_key(tmp_path / "key.json")
    assert key is not None
    assert key.key == "secret"


def test_a_server_that_does_not_speak_http_cannot_be_reached(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = Thread(target=lambda: server.accept()[0].sendall(b"SSH-2.0-OpenSSH_9.2\r\n"))
        answering.start()
        with pytest.raises(EnrolError, match="cannot be reached to enrol n"):
            enrol([f"http://127.0.0.1:{server.getsockname()[1]}"], "token", "n", tmp_path / "key.json")
        answering.join()


def test_a_key_is_not_sent_to_another_backend(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/key.json").write_text('{"backend":"https://a.example","node_id":1,"name":"n","key":"k"}')
    assert load_or_request_key(config(tmp_path, "https://a.example")).key == "k"
    with pytest.raises(EnrolError, match=r"is for https://a\.example"):
        load_or_request_key(config(tmp_path, "https://b.example"))


def test_a_key_is_used_at_every_backend_of_a_list_with_one_that_is_known(tmp_path: Path) -> None:
    a, b, c = (f"https://{name}.example" for name in "abc")
    store_key(tmp_path / "agent/key.json", NodeKey(a, 1, "n", "k"))

    def addresses(*backends: str) -> tuple[str, ...]:
        return load_or_request_key(Config(backends, tmp_path, Path("/"), 1.0, "n")).addresses

    assert addresses(a, b) == (a, b)
    assert addresses(b, c) == (b, c)  # b was in the list before
    with pytest.raises(EnrolError, match=r"is for https://b\.example, not https://a\.example"):
        addresses(a)
    assert addresses(c) == (c,)


def test_enrolment_uses_a_backend_that_answers(tmp_path: Path, answer: Callable[[int, bytes], str]) -> None:
    url = answer(200, b'{"nodes":[{"node_id":3,"name":"n","key":"k3"}]}')
    backends = ["http://127.0.0.1:1", url, "http://127.0.0.1:2"]
    key = enrol(backends, "token", "n", tmp_path / "key.json")
    assert (key.backend, key.addresses) == (url, tuple(backends))


def test_a_refused_token_is_not_sent_to_every_backend(tmp_path: Path, answer: Callable[[int, bytes], str]) -> None:
    refusing = [answer(403, f'{{"detail":"Refused {number}."}}'.encode()) for number in range(2)]
    with pytest.raises(EnrolError, match=r"Refused \d\.$") as caught:
        enrol(refusing, "token", "n", tmp_path / "key.json")
    assert not caught.value.transient


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["https://a.example/"], ("https://a.example",)),
        (["https://a.example,https://b.example", "https://a.example"], ("https://a.example", "https://b.example")),
        ([" https://a.example , "], ("https://a.example",)),
    ],
)
def test_backends_are_listed_with_commas_or_by_repetition(texts: list[str], found: tuple[str, ...]) -> None:
    assert check_backends(texts, insecure=False) == found


@pytest.mark.parametrize(
    ("texts", "labels"),
    [
        ([""], {}),
        (["rack=r01 role=db"], {"rack": "r01", "role": "db"}),
        (["rack=r01,role=", "url=a=b"], {"rack": "r01", "role": "", "url": "a=b"}),
    ],
)
def test_labels_are_given_with_spaces_commas_or_by_repetition(texts: list[str], labels: dict[str, str]) -> None:
    assert parse_labels(texts) == labels


@pytest.mark.parametrize(
    "text", ["rack", "Rack=r01", "=r01", f"rack={'r' * 64}", "rack=\x7f", " ".join(f"l{n}=x" for n in range(33))]
)
def test_an_invalid_label_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="label"):
        parse_labels([text])


def test_a_list_of_backends_has_at_least_one() -> None:
    with pytest.raises(ConfigError, match="No backend is given"):
        check_backends([","], insecure=False)


def test_a_token_that_names_an_authority_is_not_sent_unencrypted(
    tmp_path: Path, answer: Callable[[int, bytes], str]
) -> None:
    url = answer(200, b"{}")
    with pytest.raises(EnrolError, match="is not encrypted; the token was not sent"):
        enrol([url], f"secret.{'0' * 64}", "n", tmp_path / "key.json")


def test_a_missing_token_file_is_transient_and_a_missing_token_is_explained(tmp_path: Path) -> None:
    with pytest.raises(EnrolError) as caught:
        load_or_request_key(config(tmp_path, "http://localhost", tmp_path / "token"))
    assert caught.value.transient
    with pytest.raises(EnrolError, match="Create an enrolment token") as caught:
        load_or_request_key(config(tmp_path, "http://localhost"))
    assert not caught.value.transient


def test_a_damaged_key_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "key.json").write_text('{"backend":')
    with pytest.raises(EnrolError, match="Enrol again"):
        load_key(tmp_path / "key.json")
