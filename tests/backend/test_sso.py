"""Single sign-on against a mock issuer: sign-in, roles, the ends of sessions, and attacks."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import pytest_asyncio
import requests
from pydantic import ValidationError
from sqlalchemy import select, update
from tests.backend.conftest import PASSWORD, Backend, Client, running_backend
from tests.support.mock_issuer import CLIENT_ID, CLIENT_SECRET, Claims, MockIssuer, mock_issuer
from tests.support.polling import PATIENCE_S, poll_async
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from coresteer.auth.rate_limit import LoginRateLimit
from coresteer.auth.secrets import SESSION_COOKIE, token_hash
from coresteer.auth.tables import SessionRow, UserRow
from coresteer.auth.trust import TrustWatch
from coresteer.config import Config
from coresteer.sso import service
from coresteer.sso.issuer import Issuer, IssuerUnavailableError
from coresteer.sso.service import new_sso

ROLES = {"sre": "admin", "dba": "operator:role=db", "web": "operator:role=web", "ops": "operator", "*": "viewer"}


@dataclass
class World:
    """A backend with an issuer."""

    backend: Backend
    issuer: MockIssuer

    async def begin(self, browser: Client, return_to: str = "/nodes/3") -> str:
        answer = await browser.post("/api/v1/auth/sso/begin", {"return_to": return_to})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["url"])

    async def consent(self, url: str) -> dict[str, str]:
        """What the issuer adds to the address of the page /signed-in."""
        sent = await Client("").get(url)
        address = urlsplit(sent.headers["location"])
        assert address.path == "/signed-in"
        return dict(parse_qsl(address.query))

    async def finish(self, browser: Client, answer: dict[str, str]) -> requests.Response:
        return await browser.post("/api/v1/auth/sso/finish", answer)

    async def sign_in(self) -> tuple[Client, requests.Response]:
        browser = self.backend.anonymous()
        found = await self.finish(browser, await self.consent(await self.begin(browser)))
        if found.ok:
            browser.session.headers["X-CSRF-Token"] = found.json()["csrf_token"]
        return browser, found

    async def signed_in(self) -> Client:
        browser, found = await self.sign_in()
        assert found.status_code == 200, found.text
        return browser

    async def make_due(self, *, ends_in_s: float = 60) -> None:
        """Let every session of the issuer be due for renewal."""
        now = datetime.now(UTC)
        due = update(SessionRow).where(SessionRow.renew_at.is_not(None))
        async with self.backend.database.session() as session:
            await session.execute(
                due.values(renew_at=now - timedelta(seconds=1), issuer_ends_at=now + timedelta(seconds=ends_in_s))
            )

    async def log_out_by_issuer(self, token: str) -> requests.Response:
        return await log_out_with(self.backend, f"logout_token={token}".encode())

    async def actions(self) -> list[tuple[str, str]]:
        entries = (await (await self.backend.client("admin")).get("/api/v1/audit")).json()["entries"]
        return [(entry["action"], entry["result"]) for entry in entries]


async def log_out_with(backend: Backend, body: bytes) -> requests.Response:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    path = "/api/v1/auth/sso/back-channel-logout"
    return await backend.anonymous().request("POST", path, data=body, headers=form)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def served(database_url: str) -> AsyncIterator[World]:
    async with mock_issuer() as issuer, running_backend(database_url, **settings(issuer.url)) as backend:
        await backend.client("admin")
        yield World(backend, issuer)


async def test_a_back_channel_logout_is_parsed_only_with_single_sign_on_and_within_bounds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = (b"logout_token=" + b"a" * 65_536, b"a=%41&" * 16 + b"logout_token=a", b"a=1", b"logout_token=a")
    statuses = [(await log_out_with(world.backend, body)).status_code for body in bodies]
    assert statuses == [413, 400, 400, 400]
    monkeypatch.setitem(world.backend.app.state._state, "sso", None)
    assert (await log_out_with(world.backend, b"a=1")).status_code == 404


def settings(url: str) -> dict[str, Any]:  # Any: fields of Config
    return {
        "oidc_issuer": url,
        "oidc_client_id": CLIENT_ID,
        "oidc_client_secret": CLIENT_SECRET,
        "oidc_roles": ROLES,
    }


@pytest.fixture
def world(served: World) -> World:
    """With an issuer that does as it should, and a user of this test's own."""
    fresh = MockIssuer(served.issuer.url)
    fresh.subject = fresh.session = f"{time.time_ns()}"
    for name, value in vars(fresh).items():
        setattr(served.issuer, name, value)
    return served


async def test_a_user_of_the_issuer_is_created_at_the_first_sign_in_and_found_at_the_next(world: World) -> None:
    world.issuer.username = "Kim Lee <kim>"
    browser, first = await world.sign_in()
    assert (first.json()["role"], first.json()["return_to"]) == ("admin", "/nodes/3")
    assert first.json()["username"].startswith("Kim-Lee-kim")
    world.issuer.username = "renamed"
    _, second = await world.sign_in()
    assert second.json()["username"] == first.json()["username"]
    users = (await browser.get("/api/v1/users")).json()
    (user,) = [user for user in users if user["username"] == first.json()["username"]]
    assert user["issuer"] == world.issuer.url
    assert (await world.actions())[:2] == [("login", "ok"), ("login", "ok")]


@pytest.mark.parametrize("name", ["ADMIN", "Issuer"])
async def test_a_name_that_is_taken_gets_a_number_and_never_the_others_rights(world: World, name: str) -> None:
    await world.backend.client("admin")
    world.issuer.username, world.issuer.groups = name, []
    _, found = await world.sign_in()
    assert found.json()["username"].startswith(f"{name}-")
    assert found.json()["role"] == "viewer"


@pytest.mark.parametrize(
    ("groups", "role", "limits"),
    [
        (["sre"], "admin", []),
        (["dba", "sre"], "admin", []),
        (["dba"], "operator", [{"role": "db"}]),
        (["web", "dba"], "operator", [{"role": "db"}]),  # of equal roles, the one that is named first
        (["other"], "viewer", []),
        ([], "viewer", []),
    ],
)
@pytest.mark.parametrize("where", ["id_token", "userinfo"])
async def test_groups_give_roles(
    world: World, groups: list[str], role: str, limits: list[dict[str, str]], where: str
) -> None:
    world.issuer.groups, world.issuer.groups_in = groups, where
    _, found = await world.sign_in()
    assert (found.json()["role"], found.json()["limits"]) == (role, limits)


async def test_users_of_the_issuer_have_no_password_and_no_role_of_their_own_here(world: World) -> None:
    browser = await world.signed_in()
    name = (await browser.get("/api/v1/auth/me")).json()["username"]
    for password in ("", " ", PASSWORD):
        body = {"username": name, "password": password}
        answer = await world.backend.anonymous().post("/api/v1/auth/login", body)
        assert answer.status_code == (401 if password else 422)
    change = {"present": "x", "password": PASSWORD}
    assert "change the password there" in (await browser.post("/api/v1/auth/password", change)).json()["detail"]
    admin = await world.backend.client("admin")
    (user,) = [user for user in (await admin.get("/api/v1/users")).json() if user["username"] == name]
    bodies: list[dict[str, object]] = [{"password": PASSWORD}, {"role": "viewer"}, {"role_labels": {}}]
    for body in bodies:
        assert (await admin.patch(f"/api/v1/users/{user['id']}", body)).status_code == 409
    assert (await admin.patch(f"/api/v1/users/{user['id']}", {"disabled": True})).status_code == 200
    assert (await browser.get("/api/v1/auth/me")).status_code == 401
    _, again = await world.sign_in()
    assert again.status_code == 403
    assert "disabled" in again.json()["detail"]


async def test_the_last_local_administrator_stays_however_many_the_issuer_has(world: World) -> None:
    browser = await world.signed_in()
    await world.backend.client("admin")
    local = [user for user in (await browser.get("/api/v1/users")).json() if user["issuer"] is None]
    admins = [user for user in local if user["role"] == "admin"]
    assert (await browser.delete(f"/api/v1/users/{admins[0]['id']}")).status_code == 409


async def test_a_session_is_renewed_before_it_ends_and_its_role_with_it(world: World) -> None:
    browser = await world.signed_in()
    assert (await browser.get("/api/v1/auth/me")).json()["role"] == "admin"
    assert world.issuer.renewals == 0
    world.issuer.groups = ["dba"]
    await world.make_due(ends_in_s=-10)  # a page that slept longer than its ID token is renewed as well
    me = (await browser.get("/api/v1/auth/me")).json()
    assert (me["role"], me["limits"], world.issuer.renewals) == ("operator", [{"role": "db"}], 1)
    assert (await browser.get("/api/v1/auth/me")).status_code == 200
    assert world.issuer.renewals == 1
    assert ("user.update_by_issuer", "ok") in (await world.actions())[:2]


async def test_a_renewal_without_an_id_token_asks_for_the_groups(world: World) -> None:
    browser = await world.signed_in()
    world.issuer.renews_id_token, world.issuer.groups = False, ["dba"]
    await world.make_due()
    assert (await browser.get("/api/v1/auth/me")).json()["role"] == "operator"


async def test_requests_at_the_same_time_renew_a_session_once(world: World) -> None:
    browser = await world.signed_in()
    await world.make_due()
    answers = await asyncio.gather(*(browser.get("/api/v1/auth/me") for _ in range(6)))
    assert {answer.status_code for answer in answers} == {200}
    assert world.issuer.renewals == 1


async def test_processes_renew_a_session_once(world: World) -> None:
    browser = await world.signed_in()
    await world.make_due(ends_in_s=-1)
    config = world.backend.app.state.config
    first, second = (new_sso(world.backend.database, config, LoginRateLimit()) for _ in range(2))
    assert first is not None and second is not None
    cookie = str(browser.session.cookies[SESSION_COOKIE])
    world.issuer.answers.clear()
    renewing = asyncio.create_task(first.renew(cookie))
    await poll_async(lambda: world.issuer.renewals)
    waiting = asyncio.create_task(second.renew(cookie))
    world.issuer.answers.set()
    assert None not in await asyncio.gather(renewing, waiting)
    assert world.issuer.renewals == 1


async def test_no_transaction_waits_for_the_issuer(world: World) -> None:
    browser = await world.signed_in()
    name = (await browser.get("/api/v1/auth/me")).json()["username"]
    admin = await world.backend.client("admin")
    (user,) = [user for user in (await admin.get("/api/v1/users")).json() if user["username"] == name]
    await world.make_due()
    world.issuer.answers.clear()
    renewing = asyncio.create_task(browser.get("/api/v1/auth/me"))
    await poll_async(lambda: world.issuer.renewals)
    disabled = admin.patch(f"/api/v1/users/{user['id']}", {"disabled": True})
    assert (await asyncio.wait_for(disabled, PATIENCE_S)).status_code == 200
    world.issuer.answers.set()
    assert (await renewing).status_code == 401


async def test_a_session_that_the_issuer_does_not_renew_ends(world: World) -> None:
    browser = await world.signed_in()
    world.issuer.refuses = True
    await world.make_due()
    assert (await browser.get("/api/v1/auth/me")).status_code == 401
    world.issuer.refuses = False
    assert (await browser.get("/api/v1/auth/me")).status_code == 401
    assert (await world.actions())[0] == ("session.end_by_issuer", "ok")


async def test_an_issuer_that_does_not_answer_ends_a_session_only_when_its_word_has_expired(world: World) -> None:
    browser = await world.signed_in()
    world.issuer.fails = True
    await world.make_due()
    assert (await browser.get("/api/v1/auth/me")).status_code == 200
    await world.make_due(ends_in_s=-1)
    for _ in range(2):  # the second one comes before the issuer is asked again
        assert (await browser.get("/api/v1/auth/me")).status_code == 401
    world.issuer.fails = False
    await world.make_due(ends_in_s=-1)
    assert (await browser.get("/api/v1/auth/me")).status_code == 200


@pytest.mark.parametrize("hangs", [False, True])
async def test_an_open_page_ends_with_its_session_when_the_issuer_does_not_answer(
    world: World, hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_RETRY", timedelta(seconds=0.2))
    browser = await world.signed_in()
    cookie = str(browser.session.cookies[SESSION_COOKIE])
    headers = {"Cookie": f"{SESSION_COOKIE}={cookie}", "Origin": browser.url}
    url = browser.url.replace("http", "ws", 1) + "/api/v1/live"
    trust: TrustWatch = world.backend.app.state.trust
    async with asyncio.timeout(PATIENCE_S), connect(url, additional_headers=headers, proxy=None) as page:
        world.issuer.fails = not hangs
        if hangs:
            world.issuer.answers.clear()
        await world.make_due(ends_in_s=-1)
        trust._doubt(token_hash(cookie).hex())  # as once a minute
        with pytest.raises(ConnectionClosed, match="Sign in"):
            while True:
                await page.recv()
    world.issuer.answers.set()


@pytest.mark.parametrize("answer", [(429, '{"errorCode": "E0000047"}'), (403, '{"message": "Forbidden"}'), (200, "[]")])
async def test_an_answer_without_tokens_is_none(world: World, answer: tuple[int, str]) -> None:
    browser = await world.signed_in()
    world.issuer.fails, world.issuer.fails_with = True, answer
    await world.make_due(ends_in_s=-1)
    assert (await browser.get("/api/v1/auth/me")).status_code == 401
    _, found = await world.sign_in()
    assert found.status_code == 503
    world.issuer.fails = False
    await world.make_due(ends_in_s=-1)
    assert (await browser.get("/api/v1/auth/me")).status_code == 200


async def test_without_a_refresh_token_a_session_ends_with_the_id_token(world: World) -> None:
    world.issuer.gives_refresh = False
    browser = await world.signed_in()
    async with world.backend.database.session() as session:
        query = select(SessionRow).join(SessionRow.user).where(UserRow.subject == world.issuer.subject)
        row = (await session.scalars(query)).one()
        assert row.renew_at is None
        assert row.issuer_ends_at is not None
        assert row.issuer_ends_at <= datetime.now(UTC) + timedelta(seconds=world.issuer.life_s)
        row.issuer_ends_at = datetime.now(UTC) - timedelta(seconds=1)
    assert (await browser.get("/api/v1/auth/me")).status_code == 401


async def test_who_loses_every_group_loses_sessions_and_api_tokens(database_url: str) -> None:
    async with mock_issuer() as issuer:
        config = settings(issuer.url) | {"oidc_roles": {"sre": "admin"}}
        async with running_backend(database_url, **config) as backend:
            world = World(backend, issuer)
            browser = await world.signed_in()
            token = (await browser.post("/api/v1/tokens", {"name": "ci", "role": "admin"})).json()["token"]
            script = backend.anonymous()
            script.session.headers["Authorization"] = f"Bearer {token}"
            assert (await script.get("/api/v1/auth/me")).json()["role"] == "admin"
            issuer.groups = []
            await world.make_due()
            assert (await browser.get("/api/v1/auth/me")).status_code == 401
            assert (await script.get("/api/v1/auth/me")).status_code == 401
            _, again = await world.sign_in()
            assert again.status_code == 403
            assert "None of your groups" in again.json()["detail"]


async def test_an_api_token_follows_its_owners_role_and_waits_for_the_issuer_after_30_days(world: World) -> None:
    browser = await world.signed_in()
    token = (await browser.post("/api/v1/tokens", {"name": "ci", "role": "admin"})).json()["token"]
    script = world.backend.anonymous()
    script.session.headers["Authorization"] = f"Bearer {token}"
    world.issuer.groups = ["dba"]
    await world.signed_in()
    me = (await script.get("/api/v1/auth/me")).json()
    assert (me["role"], me["limits"]) == ("operator", [{"role": "db"}])
    of_subject = update(UserRow).where(UserRow.subject == world.issuer.subject)
    async with world.backend.database.session() as session:
        await session.execute(of_subject.values(confirmed_at=datetime.now(UTC) - timedelta(days=30)))
    assert (await script.get("/api/v1/auth/me")).status_code == 401
    await world.signed_in()
    assert (await script.get("/api/v1/auth/me")).status_code == 200


@pytest.mark.parametrize("by", ["sub", "sid", "both"])
async def test_a_logout_token_ends_the_sessions_it_names(world: World, by: str) -> None:
    named = await world.signed_in()
    world.issuer.session = "another"
    other = await world.signed_in()
    sid = world.issuer.subject  # the first session's id, see the fixture
    cases: dict[str, dict[str, str | None]] = {
        "sub": {"sid": None},
        "sid": {"sub": None, "sid": sid},
        "both": {"sid": sid},
    }
    claims = cases[by]
    assert (await world.log_out_by_issuer(world.issuer.logout_token(**claims))).status_code == 200
    assert (await named.get("/api/v1/auth/me")).status_code == 401
    assert (await other.get("/api/v1/auth/me")).status_code == (401 if by == "sub" else 200)
    assert (await world.actions())[0] == ("session.end_by_issuer", "ok")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"iss": "https://elsewhere.example"}, "iss"),
        ({"aud": "another client"}, "aud"),
        ({"exp": 1_600_000_000}, "expired"),
        ({"jti": None}, "jti"),
        ({"events": None}, "not a logout token"),
        ({"nonce": "n"}, "not a logout token"),
        ({"sub": None, "sid": None}, "neither a user nor a session"),
    ],
)
async def test_an_invalid_logout_token_is_refused(world: World, changes: dict[str, object], says: str) -> None:
    browser = await world.signed_in()
    answer = await world.log_out_by_issuer(world.issuer.logout_token(**changes))
    assert answer.status_code == 400
    assert says in answer.json()["detail"]
    assert (await browser.get("/api/v1/auth/me")).status_code == 200


async def test_a_logout_token_with_an_invalid_header_is_refused(world: World) -> None:
    await world.signed_in()
    header = base64.urlsafe_b64encode(b'{"alg":"RS256","crit":5}').decode().rstrip("=")
    answer = await world.log_out_by_issuer(f"{header}.e30.AA")
    assert answer.status_code == 400
    assert "not valid" in answer.json()["detail"]


async def test_strangers_cannot_make_the_backend_ask_for_keys_that_it_cannot_read(world: World) -> None:
    backend_issuer = Issuer(world.issuer.url, CLIENT_ID, CLIENT_SECRET, scopes="openid", groups_claim="groups")
    world.issuer.gives_keys = False
    token = MockIssuer(world.issuer.url).logout_token()
    with pytest.raises(IssuerUnavailableError):
        await backend_issuer.logout(token)
    world.issuer.gives_keys = True
    with pytest.raises(IssuerUnavailableError):  # not asked again so soon, and the issuer is to try again
        await backend_issuer.logout(token)


async def test_a_logout_token_works_once_and_only_with_the_issuers_key(world: World) -> None:
    await world.signed_in()
    token = world.issuer.logout_token()
    assert (await world.log_out_by_issuer(token)).status_code == 200
    browser = await world.signed_in()
    again = await world.log_out_by_issuer(token)
    assert again.status_code == 400
    assert "used already" in again.json()["detail"]
    stranger = MockIssuer(world.issuer.url, subject=world.issuer.subject)
    assert (await world.log_out_by_issuer(stranger.logout_token())).status_code == 400
    assert (await browser.get("/api/v1/auth/me")).status_code == 200


@pytest.mark.parametrize("elliptic", [False, True])
async def test_the_issuer_may_replace_its_key_at_any_time(world: World, elliptic: bool) -> None:
    await world.signed_in()
    world.issuer.rotate(elliptic=elliptic)
    await world.signed_in()


@pytest.mark.parametrize(("groups", "status"), [(None, 200), ("sre", 200), ({"sre": {}}, 200), (5, 401)])
async def test_groups_are_a_list_or_an_object_or_one_or_none(world: World, groups: object, status: int) -> None:
    world.issuer.alter = lambda claims: claims | {"groups": groups}
    _, answer = await world.sign_in()
    assert answer.status_code == status, answer.text


def altered(**changes: object) -> Callable[[Claims], Claims]:
    return lambda claims: {name: value for name, value in (claims | changes).items() if value is not None}


@pytest.mark.parametrize(
    ("alter", "says"),
    [
        (altered(nonce="of another sign-in"), "nonce"),
        (altered(nonce=None), "nonce"),
        (altered(aud="another client"), "aud"),
        (altered(aud=[CLIENT_ID, "another"], azp="another"), "azp"),
        (altered(iss="https://elsewhere.example"), "iss"),
        (altered(exp=1_600_000_000), "expired"),
        (altered(exp=None), "exp"),
        (altered(iat=4_000_000_000), "in the future"),
        (altered(sub=None), "sub"),
    ],
)
async def test_an_id_token_that_is_not_for_this_sign_in_is_refused(
    world: World, alter: Callable[[Claims], Claims], says: str
) -> None:
    world.issuer.alter = alter
    _, answer = await world.sign_in()
    assert answer.status_code == 401
    assert says in answer.json()["detail"]
    assert "coresteer_session" not in answer.cookies


@pytest.mark.parametrize("attack", ["unsigned", "signed_by_secret", "by_a_stranger", "with_a_key_it_brings"])
async def test_an_id_token_without_the_issuers_signature_is_refused(world: World, attack: str) -> None:
    stranger = MockIssuer(world.issuer.url)
    world.issuer.sign = {
        "unsigned": world.issuer.unsigned,
        "signed_by_secret": world.issuer.signed_by_secret,
        "by_a_stranger": stranger.signed,
        "with_a_key_it_brings": lambda claims: stranger.signed(claims, kid=str(world.issuer.keys[0].kid)),
    }[attack]
    _, answer = await world.sign_in()
    assert answer.status_code == 401
    assert "not valid" in answer.json()["detail"]


async def test_an_answer_fits_only_the_sign_in_of_its_browser_and_only_once(world: World) -> None:
    browser, victim = world.backend.anonymous(), world.backend.anonymous()
    answer = await world.consent(await world.begin(browser))
    await world.begin(victim)
    for given in (answer, answer | {"state": "guessed"}):
        refused = await world.finish(victim, given)
        assert refused.status_code == 400
        assert "did not begin this sign-in" in refused.json()["detail"]
    assert (await world.finish(world.backend.anonymous(), answer)).status_code == 400
    begun = browser.session.cookies.copy()
    assert (await world.finish(browser, answer)).status_code == 200
    assert (await world.finish(browser, answer)).status_code == 400
    browser.session.cookies.update(begun)  # the cookie of the sign-in, kept by who replays the code
    replayed = await world.finish(browser, answer)
    assert replayed.status_code == 401
    assert "The code is not valid" in replayed.json()["detail"]


async def test_a_code_is_useless_without_the_verifier_of_its_sign_in(world: World) -> None:
    browser, thief = world.backend.anonymous(), world.backend.anonymous()
    stolen = await world.consent(await world.begin(browser))
    own = await world.consent(await world.begin(thief))
    assert (await world.finish(thief, {"code": stolen["code"], "state": own["state"]})).status_code == 401


@pytest.mark.parametrize(
    "path", ["https://evil.example", "//evil.example", "/\\evil.example", "evil", "/a\nb", "javascript:alert(1)", ""]
)
async def test_a_sign_in_returns_to_this_site_only(world: World, path: str) -> None:
    answer = await world.backend.anonymous().post("/api/v1/auth/sso/begin", {"return_to": path})
    assert answer.status_code == 422


async def test_what_the_issuer_refuses_is_said(world: World) -> None:
    browser = world.backend.anonymous()
    answer = await world.consent(await world.begin(browser))
    denied = {"state": answer["state"], "error": "access_denied", "error_description": "You may not"}
    refused = await world.finish(browser, denied)
    assert (refused.status_code, refused.json()["detail"]) == (401, "The issuer refused: You may not.")


async def test_signing_out_here_leads_to_signing_out_there(world: World) -> None:
    browser = await world.signed_in()
    url = (await browser.post("/api/v1/auth/sso/sign-out")).json()["url"]
    sent = await Client("").get(url)
    assert sent.headers["location"] == f"{world.backend.url}/login"
    given = world.issuer.signed_out[-1]
    assert given["client_id"] == [CLIENT_ID]
    assert given["id_token_hint"][0].count(".") == 2
    local = await world.backend.client("viewer")
    assert (await local.post("/api/v1/auth/sso/sign-out")).json() == {"url": None}


async def test_the_database_holds_no_token_of_the_issuer_in_the_clear(world: World) -> None:
    browser = await world.signed_in()
    async with world.backend.database.pool.connection() as connection:
        rows = await (await connection.execute("SELECT to_jsonb(session)::text, issuer_tokens FROM session")).fetchall()
    for token in (*world.issuer.refresh_tokens, str(browser.session.cookies[SESSION_COOKIE])):
        assert not any(token in text or token.encode() in (sealed or b"") for text, sealed in rows)


async def test_without_an_issuer_there_is_no_sign_in_with_one(backend: Backend) -> None:
    assert (await backend.anonymous().get("/api/v1/auth/setup")).json()["issuer"] is None
    assert (await backend.anonymous().post("/api/v1/auth/sso/begin", {})).status_code == 404


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"oidc_issuer": "http://login.example.com"}, "https://"),
        ({"oidc_client_id": ""}, "CORESTEER_OIDC_CLIENT_ID"),
        ({"oidc_roles": {}}, "CORESTEER_OIDC_ROLES"),
        ({"oidc_roles": {"sre": "root"}}, "must be viewer, operator"),
        ({"oidc_roles": {"sre": "admin:role=db"}}, "must be viewer, operator"),
        ({"oidc_roles": {"sre": "operator:"}}, "must be viewer, operator"),
        ({"oidc_roles": {"sre": "operator:role"}}, "must be viewer, operator"),
    ],
)
def test_an_incomplete_configuration_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Config.model_validate(settings("https://login.example.com") | changes)
