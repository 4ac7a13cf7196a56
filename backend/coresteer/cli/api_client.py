"""HTTP client of the commands: address and token from the environment, and errors as sentences."""

import json
import os
import secrets
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from coresteer.cli.supervisor import running_address
from coresteer.config import Config, is_loopback
from coresteer.paths import API

URL, TOKEN = "CORESTEER_URL", "CORESTEER_TOKEN"
ENVIRONMENT = f"{URL} is the backend's address (default: this machine's), {TOKEN} an API token."
"""The end of the help of each command that uses the API."""
POLL_S = 1.0
"""How often commands that wait for the end of something ask for its state."""
MAX_OUTAGE_S = 600.0
"""How long they wait for a backend that does not answer: it may be restarting."""
_TIMEOUT_S = 60.0
_PROXY_ERRORS = (502, 503, 504)
"""What a proxy answers, without a problem document, while the backend behind it does not."""
T = TypeVar("T")


class ApiError(Exception):
    """The backend refused the request; the message says why. status: of its response."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class WaitingError(ApiError):
    """The backend stored the request, and waits for the approval of another operator before it carries it out."""

    def __init__(self, sentence: str, approval_id: int) -> None:
        super().__init__(sentence, 202)
        self.approval_id = approval_id


class UnreachableError(Exception):
    """The backend did not answer, or answered that it cannot now; the message says what was tried."""


class UnknownBackendError(Exception):
    """The environment has no address or token; the message says what to set."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the token is for this address only."""

    def redirect_request(self, *_: object) -> None:
        """Return None: the response is an error."""


class ApiClient:
    """HTTP client with an API token; its methods raise ApiError and UnreachableError.

    Paths are those below API, except request's.
    """

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self._token = token
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects(), urllib.request.HTTPCookieProcessor()]
        if is_loopback(urlsplit(url).hostname or ""):
            handlers.append(urllib.request.ProxyHandler({}))  # a proxy in the environment is for other hosts
        self._opener = urllib.request.build_opener(*handlers)

    def get(self, path: str, **query: object) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON response to a GET of path. query: None values are omitted."""
        return self.parsed(self.fetch(path, **query))

    def post(self, path: str, body: object = None, *, csrf_token: str = "") -> Any:  # noqa: ANN401 - JSON
        """Return the JSON response to a POST of body to path. csrf_token: of the session, where there is no token."""
        content = None if body is None else json.dumps(body).encode()
        return self.parsed(self.request("POST", API + path, content, csrf_token=csrf_token))

    def put(self, path: str, body: object) -> Any:  # noqa: ANN401 - JSON
        """Return the JSON response to a PUT of body to path."""
        return self.parsed(self.request("PUT", API + path, json.dumps(body).encode()))

    def delete(self, path: str) -> None:
        """Send a DELETE of path."""
        self.request("DELETE", API + path)

    def fetch(self, path: str, **query: object) -> bytes:
        """Return the raw bytes of the response to a GET of path."""
        parameters = {name: value for name, value in query.items() if value is not None}
        suffix = f"?{urlencode(parameters, quote_via=quote)}" if parameters else ""
        return self.request("GET", f"{API}{path}{suffix}")

    def parsed(self, content: bytes) -> Any:  # noqa: ANN401 - JSON
        """Return an answer that must be JSON. Raises ApiError."""
        try:
            return json.loads(content)
        except ValueError:
            raise ApiError(f"{self.url} answered something other than JSON; is it Coresteer's address?", 200) from None

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        media_type: str = "application/json",
        csrf_token: str = "",
    ) -> bytes:
        """Return the raw bytes of the response to a request of any kind. path: from the root of the address."""
        headers = {"Content-Type": media_type, "X-CSRF-Token": csrf_token}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        request = urllib.request.Request(  # noqa: S310 - environment_client admits http and https only
            self.url + path, body, headers, method=method
        )
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                content: bytes = answer.read()
                if answer.status == 202:
                    approval = self.parsed(content)
                    raise WaitingError(approval["sentence"], approval["id"])
                return content
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(error, self.url) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise UnreachableError(
                    f"The certificate of {self.url} is not trusted ({reason}). If its authority is unknown here, name "
                    "the authority's file in SSL_CERT_FILE: with --tls auto, the backend's ca.pem."
                ) from None
            raise UnreachableError(
                f"No backend answers at {self.url} ({reason}). Start it with `coresteer up`, or set {URL} to another."
            ) from None


def through_outages(ask: Callable[[], T]) -> T:
    """Return what ask returns; repeat it while no backend answers, and say so on stderr.

    Raises UnreachableError after MAX_OUTAGE_S, and what else ask raises.
    """
    began, said = time.monotonic(), ""
    while True:
        try:
            return ask()
        except UnreachableError as error:
            if time.monotonic() - began > MAX_OUTAGE_S:
                raise
            if str(error) != said:
                said = str(error)
                print(f"coresteer: {said} Retrying.", file=sys.stderr, flush=True)
        time.sleep(POLL_S)


def environment_client(config: Config) -> ApiClient:
    """Return a client for the backend and token that the environment names, by default this machine's backend.

    Raises UnknownBackendError.
    """
    url = os.environ.get(URL) or running_address(config.state_dir) or config.public_address
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UnknownBackendError(f"{URL} is “{url}”; it must be an address such as https://coresteer.example.")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise UnknownBackendError(f"{URL} must begin with https://, because the token is sent to {parts.hostname}.")
    token = os.environ.get(TOKEN, "").strip()
    if not token:
        raise UnknownBackendError(
            f"{TOKEN} is not set; create an API token in the settings under API tokens and set it there."
        )
    if not (token.isascii() and token.isprintable()):
        raise UnknownBackendError(f"{TOKEN} has a character that no API token has; copy the token again.")
    return ApiClient(url, token)


def sign_up(address: str, set_up_token: str) -> ApiClient:
    """Create the first administrator of a backend on this machine; return a client with an API token of theirs.

    Their password is random and not kept. Raises ApiError and UnreachableError.
    """
    client = ApiClient(address, "")
    me = client.post("/auth/setup", {"token": set_up_token, "username": "local", "password": secrets.token_urlsafe(24)})
    body = {"name": "local command", "role": "admin", "expires_in_days": 1}
    return ApiClient(address, client.post("/tokens", body, csrf_token=me["csrf_token"])["token"])


def _refused(error: urllib.error.HTTPError, url: str) -> ApiError | UnreachableError:
    try:
        problem = json.loads(error.read())
        detail = str(problem["detail"])
    except (OSError, ValueError, KeyError, TypeError):
        if error.code in _PROXY_ERRORS:
            return UnreachableError(f"No backend answers behind {url} ({error.code} {error.reason}).")
        return ApiError(f"{url} answered {error.code} {error.reason}, not a response of Coresteer.", error.code)
    return UnreachableError(detail) if error.code == 503 else ApiError(detail, error.code)
