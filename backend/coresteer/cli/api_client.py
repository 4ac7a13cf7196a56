"""The backend's HTTP API for commands: where it is, with whose token, and what it says when it refuses."""

import json
import os
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from coresteer.cli.supervisor import running_address
from coresteer.config import Config, is_loopback

URL, TOKEN = "CORESTEER_URL", "CORESTEER_TOKEN"
_TIMEOUT_S = 60.0


class ApiError(Exception):
    """The backend refused; the message says why. status: of its answer."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class AwayError(Exception):
    """The backend did not answer, or said that it cannot now; the message says what was tried."""


class UnknownBackendError(Exception):
    """The environment does not say which backend is asked, or with which token; the message says what to do."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The token is for this address alone."""

    def redirect_request(self, *_: object) -> None:
        """None is followed: the answer is an error."""


class Client:
    """Speaks for the owner of an API token. Raises ApiError and AwayError."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self._token = token
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if is_loopback(urlsplit(url).hostname or ""):
            handlers.append(urllib.request.ProxyHandler({}))  # one from the environment is for outside
        self._opener = urllib.request.build_opener(*handlers)

    def get(self, path: str, **query: object) -> Any:  # noqa: ANN401 - JSON
        """The answer to a GET. query: None is left out."""
        return self._json(self.fetch(path, **query))

    def post(self, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """The answer to a POST."""
        return self._json(self._send("POST", path, None if body is None else json.dumps(body).encode()))

    def fetch(self, path: str, **query: object) -> bytes:
        """The bytes that answer a GET."""
        told = {name: value for name, value in query.items() if value is not None}
        return self._send("GET", f"{path}?{urlencode(told, quote_via=quote)}" if told else path, None)

    def _json(self, content: bytes) -> Any:  # noqa: ANN401 - JSON
        try:
            return json.loads(content)
        except ValueError:
            raise ApiError(
                f"{self.url} answered with something else than JSON; is it Coresteer's address?", 200
            ) from None

    def _send(self, method: str, path: str, body: bytes | None) -> bytes:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(  # noqa: S310 - environment_client admits http and https only
            self.url + path, body, headers, method=method
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(error, self.url) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise AwayError(
                f"No backend answers at {self.url} ({reason}). Start it with `coresteer up`, or name another in {URL}."
            ) from None


def environment_client(config: Config) -> Client:
    """For the backend and with the token that the environment names; without an address, this machine's backend.

    Raises UnknownBackendError.
    """
    url = os.environ.get(URL) or running_address(config.state_dir) or config.public_address
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UnknownBackendError(f"{URL} is “{url}”; it must be an address such as https://coresteer.example.")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise UnknownBackendError(f"{URL} must begin with https://, because a token goes over it to {parts.hostname}.")
    token = os.environ.get(TOKEN, "").strip()
    if not token:
        raise UnknownBackendError(
            f"{TOKEN} is not set; make an API token in the settings under API tokens and put it there."
        )
    return Client(url, token)


def _refused(error: urllib.error.HTTPError, url: str) -> ApiError | AwayError:
    try:
        told = json.loads(error.read())
        detail = str(told["detail"])
    except (OSError, ValueError, KeyError, TypeError):
        return ApiError(f"{url} answered {error.code} {error.reason}, which is no answer of Coresteer's.", error.code)
    return AwayError(detail) if error.code == 503 else ApiError(detail, error.code)
