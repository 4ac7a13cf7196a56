import asyncio
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text, update
from tests.backend.conftest import PASSWORD, Backend, Client
from tests.support.polling import PATIENCE_S
from zxcvbn import zxcvbn

from coresteer.auth import service
from coresteer.auth.rate_limit import MAX_FAILURES_PER_ADDRESS, LoginRateLimit
from coresteer.auth.schemas import UserUpdate
from coresteer.auth.tables import SessionRow
from coresteer.errors import TooManyRequests

NAME = "ada"


async def set_up_token(backend: Backend, *, replaces: bool = True) -> str | None:
    async with backend.database.session() as session:
        return await service.new_set_up_token(session, replaces=replaces)


async def forget_everybody(backend: Backend) -> None:
    async with backend.database.session() as session:
        await session.execute(text("DELETE FROM app_user"))


async def add_user(backend: Backend, username: str, role: str = "viewer") -> int:
    admin = await backend.client("admin")
    answer = await admin.post("/api/v1/users", {"username": username, "password": PASSWORD, "role": role})
    assert answer.status_code == 201, answer.text
    user_id: int = answer.json()["id"]
    return user_id


async def log_in(backend: Backend, username: str, password: str = PASSWORD) -> Client:
    client = backend.anonymous()
    answer = await client.post("/api/v1/auth/login", {"username": username, "password": password})
    assert answer.status_code == 200, answer.text
    client.session.headers["X-CSRF-Token"] = answer.json()["csrf_token"]
    return client


async def test_the_set_up_link_makes_one_administrator_and_works_once(backend: Backend) -> None:
    await forget_everybody(backend)
    token = await set_up_token(backend)
    client = backend.anonymous()
    assert (await client.get("/api/v1/auth/setup")).json() == {"needs_setup": True, "issuer": None}

    async def check(link: str | None) -> int:
        return (await client.post("/api/v1/auth/setup/check", {"token": link})).status_code

    body = {"token": token, "username": NAME, "password": PASSWORD}
    wrong = await client.post("/api/v1/auth/setup", {**body, "token": "guessed"})
    assert (wrong.status_code, await check("guessed")) == (403, 403)
    assert [await check(token), await check(token)] == [204, 204]
    answer = await client.post("/api/v1/auth/setup", body)
    assert (answer.status_code, await check(token)) == (200, 409)
    assert (answer.json()["username"], answer.json()["role"]) == (NAME, "admin")
    assert (await client.get("/api/v1/auth/me")).json() == answer.json()
    assert (await client.get("/api/v1/auth/setup")).json() == {"needs_setup": False, "issuer": None}

    (user,) = (await client.get("/api/v1/users")).json()
    assert user["last_login_at"] is not None  # the set-up signs in

    again = await backend.anonymous().post("/api/v1/auth/setup", {**body, "username": "eve"})
    assert again.status_code == 409
    assert await set_up_token(backend) is None


async def test_a_newer_set_up_link_replaces_the_older(backend: Backend) -> None:
    await forget_everybody(backend)
    older, newer = await set_up_token(backend), await set_up_token(backend)
    body = {"username": NAME, "password": PASSWORD}
    assert (await backend.anonymous().post("/api/v1/auth/setup", {**body, "token": older})).status_code == 403
    assert (await backend.anonymous().post("/api/v1/auth/setup", {**body, "token": newer})).status_code == 200


async def test_the_link_of_a_backend_that_starts_leaves_a_printed_one_valid(backend: Backend) -> None:
    await forget_everybody(backend)
    printed = await set_up_token(backend)
    await set_up_token(backend, replaces=False)
    body = {"token": printed, "username": NAME, "password": PASSWORD}
    assert (await backend.anonymous().post("/api/v1/auth/setup", body)).status_code == 200


async def test_a_name_that_does_not_exist_is_answered_like_a_wrong_password(backend: Backend) -> None:
    await add_user(backend, "known")
    answers = [
        await backend.anonymous().post("/api/v1/auth/login", {"username": name, "password": "not the password"})
        for name in ("known", "nobody-of-that-name")
    ]
    assert [answer.status_code for answer in answers] == [401, 401]
    assert len({answer.text for answer in answers}) == 1


async def test_the_session_cookie_is_out_of_reach_for_scripts_and_other_sites(backend: Backend) -> None:
    await add_user(backend, "cookie-owner")
    answer = await backend.anonymous().post("/api/v1/auth/login", {"username": "COOKIE-owner", "password": PASSWORD})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("name", ["anonymous", "Coresteer", "issuer", "agent"])
async def test_no_user_may_be_named_like_an_actor_of_the_system(backend: Backend, name: str) -> None:
    admin = await backend.client("admin")
    answer = await admin.post("/api/v1/users", {"username": name, "password": PASSWORD, "role": "viewer"})
    assert answer.status_code == 422
    assert f"the name {name.lower()}" in answer.json()["detail"]


async def test_five_wrong_passwords_make_one_wait_and_the_header_says_how_long(backend: Backend) -> None:
    await add_user(backend, "guessed-at")
    body = {"username": "guessed-at", "password": "wrong"}
    codes = [(await backend.anonymous().post("/api/v1/auth/login", body)).status_code for _ in range(5)]
    assert codes == [401] * 5
    answer = await backend.anonymous().post("/api/v1/auth/login", {**body, "password": PASSWORD})
    assert answer.status_code == 429
    assert 0 < int(answer.headers["retry-after"]) <= 301
    await log_in(backend, "admin")  # others are not held up


async def test_wrong_passwords_sent_at_the_same_time_are_all_counted(backend: Backend) -> None:
    await add_user(backend, "stormed")
    body = {"username": "stormed", "password": "wrong"}
    answers = await asyncio.gather(*(backend.anonymous().post("/api/v1/auth/login", body) for _ in range(12)))
    assert sorted(answer.status_code for answer in answers) == [401] * 5 + [429] * 7


def test_logins_from_one_ipv6_network_count_together() -> None:
    limit = LoginRateLimit(clock=lambda: 0.0)
    for number in range(MAX_FAILURES_PER_ADDRESS):
        limit.record_attempt(f"user-{number}", f"2001:db8:1:2::{number + 1:x}")
    with pytest.raises(TooManyRequests):
        limit.record_attempt("another", "2001:db8:1:2:3:4:5:6")
    limit.record_success("user-1", "2001:db8:1:2::9")
    limit.record_attempt("another", "2001:db8:1:2:3:4:5:6")


@pytest.mark.parametrize(("network", "most"), [("2001:db8:1:{:x}::1", 60), ("2001:db8:1:{:x}00::1", 240)])
def test_logins_from_a_larger_ipv6_network_count_together(network: str, most: int) -> None:
    limit = LoginRateLimit(clock=lambda: 0.0)
    for number in range(most):
        limit.record_attempt(f"user-{number}", network.format(number))
    with pytest.raises(TooManyRequests):
        limit.record_attempt("another", network.format(most))
    limit.record_success("user-1", network.format(1))
    limit.record_attempt("another", network.format(most))


def test_only_so_many_attempts_wait_but_an_address_of_an_earlier_sign_in_always_may() -> None:
    limit = LoginRateLimit()
    limit.record_success(NAME, "2001:db8::1")
    with ExitStack() as waiting:
        for number in range(16):
            waiting.enter_context(limit.turn(f"192.0.2.{number}"))
        with pytest.raises(TooManyRequests, match="Try again in 3 seconds"):
            waiting.enter_context(limit.turn("192.0.2.99"))
        waiting.enter_context(limit.turn("2001:db8::2"))
    with limit.turn("192.0.2.99"):
        pass


async def test_failures_fill_the_audit_log_with_one_entry_of_a_user_and_network_in_five_minutes(
    backend: Backend,
) -> None:
    await add_user(backend, "guessed-often")
    body = {"username": "guessed-often", "password": "wrong"}
    codes = [(await backend.anonymous().post("/api/v1/auth/login", body)).status_code for _ in range(3)]
    entries = (await (await backend.client("admin")).get("/api/v1/audit?text=guessed-often&action=login")).json()
    assert (codes, [entry["result"] for entry in entries["entries"]]) == ([401] * 3, ["refused"])
    now = 0.0
    limit = LoginRateLimit(clock=lambda: now)
    networks = ["2001:db8::1", "2001:db8:0:1::1", "2001:db8:1::1", "192.0.2.1", "192.0.2.2"]
    assert [limit.is_first("unknown user", each) for each in networks] == [True, False, True, True, True]
    now = 301.0
    assert limit.is_first("unknown user", "192.0.2.1")


async def test_signing_in_is_not_counted_as_a_failure_of_its_address() -> None:
    limit = LoginRateLimit()
    for number in range(MAX_FAILURES_PER_ADDRESS + 1):
        limit.record_attempt(f"user-{number}", "192.0.2.1")
        limit.record_success(f"user-{number}", "192.0.2.1")


@pytest.mark.parametrize("token", [None, "", "wrong", "ä"])
async def test_a_change_by_cookie_without_the_sessions_csrf_token_is_refused(
    backend: Backend, token: str | None
) -> None:
    client = await backend.client("admin")
    client.session.headers.pop("X-CSRF-Token")
    headers = {} if token is None else {"X-CSRF-Token": token.encode()}
    answer = await client.post("/api/v1/auth/logout", headers=headers)
    assert answer.status_code == 403
    assert "X-CSRF-Token" in answer.json()["detail"]
    assert (await client.get("/api/v1/auth/me")).status_code == 200


async def test_a_change_from_a_page_of_another_origin_is_refused(backend: Backend) -> None:
    body = {"username": "admin", "password": PASSWORD}
    elsewhere = await backend.anonymous().post("/api/v1/auth/login", body, headers={"Origin": "http://evil.example"})
    assert elsewhere.status_code == 403
    invalid = await backend.anonymous().post("/api/v1/auth/login", body, headers={"Origin": "http://["})
    assert invalid.status_code == 403
    here = await backend.anonymous().post("/api/v1/auth/login", body, headers={"Origin": backend.url})
    assert here.status_code == 200


async def test_logging_out_ends_the_session_not_only_the_cookie(backend: Backend) -> None:
    client = await backend.client("viewer")
    thief = Client(backend.url)
    thief.session.cookies.update(client.session.cookies)
    assert (await client.post("/api/v1/auth/logout")).status_code == 204
    assert (await thief.get("/api/v1/auth/me")).status_code == 401


@pytest.mark.parametrize("change", [{"disabled": True}, {"password": "another password"}])
async def test_disabling_and_a_new_password_end_a_persons_sessions_and_api_tokens(
    backend: Backend, change: dict[str, object]
) -> None:
    name = "-".join(change)
    user_id = await add_user(backend, f"revoked-by-{name}", "admin")
    client = await log_in(backend, f"revoked-by-{name}")
    _, script = await make_token(backend, client)
    admin = await backend.client("admin")
    assert (await admin.patch(f"/api/v1/users/{user_id}", change)).status_code == 200
    assert (await client.get("/api/v1/auth/me")).status_code == 401
    old_password = {"username": f"revoked-by-{name}", "password": PASSWORD}
    assert (await backend.anonymous().post("/api/v1/auth/login", old_password)).status_code == 401
    await admin.patch(f"/api/v1/users/{user_id}", {"disabled": False})
    assert (await script.get("/api/v1/auth/me")).status_code == 401


async def test_a_session_ends_twelve_hours_after_its_last_use_and_use_moves_the_end(backend: Backend) -> None:
    client = await backend.client("operator")
    almost = datetime.now(UTC) + timedelta(minutes=5)
    async with backend.database.session() as session:
        await session.execute(update(SessionRow).values(expires_at=almost))
    assert (await client.get("/api/v1/auth/me")).status_code == 200
    async with backend.database.session() as session:
        latest = (await session.execute(text("SELECT max(expires_at) FROM session"))).scalar_one()
        assert latest > datetime.now(UTC) + timedelta(hours=11, minutes=55)
        await session.execute(update(SessionRow).values(expires_at=datetime.now(UTC)))
    assert (await client.get("/api/v1/auth/me")).status_code == 401


async def test_a_session_ends_after_thirty_days_however_it_is_used(backend: Backend) -> None:
    client = await backend.client("operator")
    now = datetime.now(UTC)
    begun, end = now - timedelta(days=29, hours=23), now + timedelta(hours=1)
    async with backend.database.session() as session:
        await session.execute(update(SessionRow).values(created_at=begun, expires_at=now + timedelta(minutes=5)))
    assert (await client.get("/api/v1/auth/me")).status_code == 200
    async with backend.database.session() as session:
        latest = (await session.execute(text("SELECT max(expires_at) FROM session"))).scalar_one()
        assert abs(latest - end) < timedelta(seconds=1)


@pytest.mark.parametrize("password", ["1234567890", "password123", "qwertyuiop", "aaaaaaaaaa", "coresteer1"])
async def test_a_password_that_is_guessed_first_is_refused(backend: Backend, password: str) -> None:
    admin = await backend.client("admin")
    answer = await admin.post("/api/v1/users", {"username": "careless", "password": password, "role": "viewer"})
    assert answer.status_code == 422
    assert "Use several unrelated words." in answer.text
    assert answer.json()["errors"][0]["field"] == "password"


async def test_a_guessable_password_leaves_the_set_up_link_valid(backend: Backend) -> None:
    await forget_everybody(backend)
    body = {"token": await set_up_token(backend), "username": NAME}
    for password, status in (("password123", 422), (PASSWORD, 200)):
        answer = await backend.anonymous().post("/api/v1/auth/setup", {**body, "password": password})
        assert answer.status_code == status


async def test_a_password_is_judged_only_for_somebody_who_may_set_one_and_outside_the_event_loop(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_user(backend, "slow-to-judge")
    client, slow = await log_in(backend, "slow-to-judge"), "4@8({[<369&#!1/|0$5+7%2" * 8
    judged: list[tuple[str, int]] = []

    def judge(password: str, user_inputs: list[str]) -> Mapping[str, Any]:  # Any: as zxcvbn's
        judged.append((threading.current_thread().name.partition("_")[0], len(password)))
        return zxcvbn(password, user_inputs)

    monkeypatch.setattr("coresteer.auth.secrets.zxcvbn", judge)
    set_up = {"token": "guessed", "username": NAME, "password": slow}
    assert (await backend.anonymous().post("/api/v1/auth/setup", set_up)).status_code == 409
    wrong = await client.post("/api/v1/auth/password", {"present": "wrong", "password": slow})
    assert (wrong.status_code, judged) == (403, [])
    right = await client.post("/api/v1/auth/password", {"present": PASSWORD, "password": slow})
    assert (right.status_code, judged) == (204, [("scrypt", 24)])
    await log_in(backend, "slow-to-judge", slow)
    await forget_everybody(backend)
    assert (await backend.anonymous().post("/api/v1/auth/setup", set_up)).status_code == 403
    assert len(judged) == 1


ROLES = ("anonymous", "viewer", "operator", "admin")
# the answer to each role: method, path, body, then the status by role in the order above
MATRIX = [
    ("GET", "/api/v1/auth/me", None, (401, 200, 200, 200)),
    ("GET", "/api/v1/auth/sessions", None, (401, 200, 200, 200)),
    ("DELETE", "/api/v1/auth/sessions/0", None, (401, 404, 404, 404)),
    ("POST", "/api/v1/auth/password", {"present": "x", "password": "short"}, (401, 422, 422, 422)),
    ("DELETE", "/api/v1/users/999999", None, (401, 403, 403, 404)),
    ("GET", "/api/v1/audit", None, (401, 200, 200, 200)),
    ("GET", "/api/v1/users", None, (401, 403, 403, 200)),
    ("POST", "/api/v1/users", {"username": "new", "password": "short", "role": "viewer"}, (401, 403, 403, 422)),
    ("PATCH", "/api/v1/users/999999", {"disabled": True}, (401, 403, 403, 404)),
    ("GET", "/api/v1/tokens", None, (401, 403, 403, 200)),
    ("POST", "/api/v1/tokens", {"name": "ci", "role": "viewer"}, (401, 403, 403, 201)),
    ("DELETE", "/api/v1/tokens/999999", None, (401, 403, 403, 404)),
    ("POST", "/api/v1/enrolment-tokens", {}, (401, 403, 403, 201)),
    ("GET", "/api/v1/enrolment-tokens", None, (401, 403, 403, 200)),
    ("DELETE", "/api/v1/enrolment-tokens/999999", None, (401, 403, 403, 404)),
    ("GET", "/api/v1/health", None, (200, 200, 200, 200)),
    ("GET", "/api/v1/auth/setup", None, (200, 200, 200, 200)),
]


@pytest.mark.parametrize(("method", "path", "body", "expected"), MATRIX, ids=[f"{m[0]} {m[1]}" for m in MATRIX])
async def test_each_role_may_do_what_the_table_says(
    backend: Backend, method: str, path: str, body: object, expected: tuple[int, ...]
) -> None:
    clients = [backend.anonymous() if role == "anonymous" else await backend.client(role) for role in ROLES]
    codes = [(await client.request(method, path, json=body)).status_code for client in clients]
    assert tuple(codes) == expected


async def test_the_last_administrator_who_can_sign_in_can_be_neither_disabled_nor_demoted(backend: Backend) -> None:
    await forget_everybody(backend)
    admin = await backend.client("admin")
    user_id = (await admin.get("/api/v1/users")).json()[0]["id"]
    for change in ({"disabled": True}, {"role": "operator"}):
        answer = await admin.patch(f"/api/v1/users/{user_id}", change)
        assert answer.status_code == 409
        assert "last administrator" in answer.json()["detail"]
    await add_user(backend, "second", "admin")
    assert (await admin.patch(f"/api/v1/users/{user_id}", {"role": "operator"})).status_code == 200
    assert (await admin.get("/api/v1/auth/me")).json()["role"] == "operator"
    await forget_everybody(backend)


async def test_a_name_can_be_taken_once_whatever_its_case(backend: Backend) -> None:
    await add_user(backend, "Grace")
    admin = await backend.client("admin")
    answer = await admin.post("/api/v1/users", {"username": "gRACE", "password": PASSWORD, "role": "viewer"})
    assert answer.status_code == 409
    assert answer.json()["errors"][0]["field"] == "username"


async def make_token(backend: Backend, client: Client, **body: object) -> tuple[int, Client]:
    answer = await client.post("/api/v1/tokens", {"name": "a script", "role": "operator", **body})
    assert answer.status_code == 201, answer.text
    script = backend.anonymous()
    script.session.headers["Authorization"] = f"Bearer {answer.json()['token']}"
    return answer.json()["id"], script


async def test_an_api_token_works_without_csrf_until_it_is_deleted_and_notes_its_use(backend: Backend) -> None:
    admin = await backend.client("admin")
    token_id, script = await make_token(backend, admin, role="admin")
    assert (await script.get("/api/v1/auth/me")).json() == {
        "username": "admin",
        "role": "admin",
        "limits": [],
        "issuer": None,
        "csrf_token": None,
    }
    assert (await script.post("/api/v1/enrolment-tokens", {})).status_code == 201
    kept = next(token for token in (await admin.get("/api/v1/tokens")).json() if token["id"] == token_id)
    assert kept["last_used_at"] is not None
    assert "token" not in kept
    assert (await admin.delete(f"/api/v1/tokens/{token_id}")).status_code == 204
    assert (await script.get("/api/v1/auth/me")).status_code == 401


@pytest.mark.parametrize("path", ["tokens", "enrolment-tokens"])
async def test_a_token_that_is_made_during_a_reset_of_the_password_does_not_outlive_it(
    backend: Backend, path: str
) -> None:
    name = f"reset-beside-{path}"
    user_id = await add_user(backend, name, "admin")
    thief = await log_in(backend, name)
    async with asyncio.timeout(PATIENCE_S), backend.database.session() as session:
        await service.update_user(session, "admin", user_id, UserUpdate(password="another password"))
        body = {"name": "kept", "role": "admin"} if path == "tokens" else {}
        making = asyncio.create_task(thief.post(f"/api/v1/{path}", body))
        while await session.scalar(text("SELECT count(*) FROM pg_locks WHERE NOT granted")) == 0:
            assert not making.done(), "it waits for the reset"
    assert (await making).status_code == 401


async def test_an_api_token_never_has_more_rights_than_its_maker_has_now(backend: Backend) -> None:
    user_id = await add_user(backend, "demoted", "admin")
    maker = await log_in(backend, "demoted")
    _, script = await make_token(backend, maker, role="admin")
    admin = await backend.client("admin")
    await admin.patch(f"/api/v1/users/{user_id}", {"role": "viewer"})
    assert (await script.get("/api/v1/auth/me")).json()["role"] == "viewer"
    await admin.patch(f"/api/v1/users/{user_id}", {"disabled": True})
    assert (await script.get("/api/v1/auth/me")).status_code == 401


async def test_an_api_token_stops_when_it_expires(backend: Backend) -> None:
    _, script = await make_token(backend, await backend.client("admin"), expires_in_days=1)
    assert (await script.get("/api/v1/auth/me")).status_code == 200
    async with backend.database.session() as session:
        await session.execute(text("UPDATE api_token SET expires_at = now()"))
    assert (await script.get("/api/v1/auth/me")).status_code == 401


async def test_no_secret_is_stored_in_clear_text(backend: Backend) -> None:
    client = await log_in(backend, "admin")
    cookie = client.session.cookies["coresteer_session"]
    assert cookie
    answer = await client.post("/api/v1/tokens", {"name": "kept as a hash", "role": "viewer"})
    async with backend.database.session() as session:
        for table in ("session", "api_token", "one_time_token", "enrolment_token", "app_user", "audit"):
            kept = str((await session.execute(text(f"SELECT * FROM {table}"))).all())  # noqa: S608 - names above
            assert cookie not in kept
            assert answer.json()["token"] not in kept
            assert PASSWORD not in kept


async def test_a_user_changes_their_own_password_which_ends_their_other_sessions(backend: Backend) -> None:
    await add_user(backend, "changes-password")
    here, elsewhere = await log_in(backend, "changes-password"), await log_in(backend, "changes-password")
    wrong = await here.post("/api/v1/auth/password", {"present": "wrong", "password": "another good password"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (403, "present")
    weak = await here.post("/api/v1/auth/password", {"present": PASSWORD, "password": "password123"})
    assert weak.status_code == 422
    changed = await here.post("/api/v1/auth/password", {"present": PASSWORD, "password": "another good password"})
    assert changed.status_code == 204
    assert (await here.get("/api/v1/auth/me")).status_code == 200
    assert (await elsewhere.get("/api/v1/auth/me")).status_code == 401
    body = {"username": "changes-password", "password": "another good password"}
    assert (await backend.anonymous().post("/api/v1/auth/login", body)).status_code == 200
    _, token = await make_token(backend, await backend.client("admin"))
    by_token = await token.post("/api/v1/auth/password", {"present": PASSWORD, "password": "another good password"})
    assert by_token.status_code == 403


async def test_guesses_of_the_present_password_are_limited(backend: Backend) -> None:
    await add_user(backend, "guessed")
    client = await log_in(backend, "guessed")
    body = {"present": "wrong", "password": "another good password"}
    codes = [(await client.post("/api/v1/auth/password", body)).status_code for _ in range(6)]
    assert codes == [403] * 5 + [429]


async def test_a_user_sees_and_ends_their_own_sessions_only(backend: Backend) -> None:
    await add_user(backend, "two-sessions")
    here, elsewhere = await log_in(backend, "two-sessions"), await log_in(backend, "two-sessions")
    sessions = (await here.get("/api/v1/auth/sessions")).json()
    assert [(each["current"], each["address"]) for each in sessions] == [(False, "127.0.0.1"), (True, "127.0.0.1")]
    assert all("python-requests" in each["browser"] for each in sessions)
    other = await backend.client("admin")
    assert (await other.delete(f"/api/v1/auth/sessions/{sessions[0]['id']}")).status_code == 404
    assert (await here.delete(f"/api/v1/auth/sessions/{sessions[0]['id']}")).status_code == 204
    assert (await elsewhere.get("/api/v1/auth/me")).status_code == 401
    assert [each["current"] for each in (await here.get("/api/v1/auth/sessions")).json()] == [True]


async def test_a_user_has_a_limited_number_of_sessions(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coresteer.auth.service._MAX_SESSIONS", 2)
    await add_user(backend, "signs-in-often")
    clients = [await log_in(backend, "signs-in-often") for _ in range(3)]
    assert [(await client.get("/api/v1/auth/me")).status_code for client in clients] == [401, 200, 200]
