"""Sign-in, users and API tokens over HTTP."""

from urllib.parse import urlsplit

from fastapi import APIRouter, Request, Response, status

from coresteer.auth import repository, service
from coresteer.auth.dependencies import Admin, Identity, Viewer, lock_credential
from coresteer.auth.schemas import (
    ApiToken,
    ApiTokenCreate,
    ApiTokenCreated,
    BrowserSession,
    LoginRequest,
    Me,
    PasswordChange,
    SessionId,
    SetupLink,
    SetupRequest,
    SetupState,
    User,
    UserCreate,
    UserUpdate,
)
from coresteer.auth.secrets import SESSION_COOKIE
from coresteer.auth.tables import ApiTokenRow
from coresteer.db import Session
from coresteer.errors import Forbidden
from coresteer.inputs import RowId
from coresteer.origin import public_url

router = APIRouter()

_MAX_BROWSER = 300
"""Characters of the User-Agent header that are stored."""


def to_me(identity: Identity) -> Me:
    """Return what the page knows of its user."""
    return Me(
        username=identity.username,
        role=identity.role,
        limits=[dict(each) for each in identity.limits],
        csrf_token=identity.csrf_token,
        issuer=identity.issuer,
    )


def start_session(request: Request, response: Response, signed_in: service.SignedIn) -> Me:
    """Set the cookie of a new session."""
    response.set_cookie(
        SESSION_COOKIE,
        signed_in.cookie,
        httponly=True,
        samesite="strict",
        secure=public_url(request).startswith("https:"),
    )
    return to_me(signed_in.identity)


def client_of(request: Request) -> service.Client:
    """Return where a user signs in."""
    address = request.client.host if request.client else "unknown"
    browser = request.headers.get("user-agent", "")[:_MAX_BROWSER]
    return service.Client(address, browser.encode("ascii", "replace").decode())


def _api_token(row: ApiTokenRow) -> ApiToken:
    return ApiToken.model_validate(
        {
            "id": row.id,
            "name": row.name,
            "role": row.role,
            "role_labels": row.role_labels,
            "created_by": row.user.username,
            "created_at": row.created_at,
            "last_used_at": row.last_used_at,
            "expires_at": row.expires_at,
        }
    )


@router.get("/auth/setup")
async def setup_state(request: Request, session: Session) -> SetupState:
    """Return whether the first administrator has yet to be created, and with which issuer people can sign in."""
    issuer = request.app.state.config.oidc_issuer
    return SetupState(needs_setup=not await repository.has_users(session), issuer=issuer and urlsplit(issuer).hostname)


@router.post("/auth/setup/check", status_code=status.HTTP_204_NO_CONTENT)
async def check_set_up_link(body: SetupLink, session: Session) -> None:
    """Check a set-up link without using it: a problem says why it cannot create the first administrator."""
    await service.check_set_up_link(session, body.token)


@router.post("/auth/setup")
async def setup(request: Request, response: Response, body: SetupRequest, session: Session) -> Me:
    """Create the first administrator with the token of the set-up link, and sign in."""
    return start_session(request, response, await service.set_up(session, body, client_of(request)))


@router.post("/auth/login")
async def login(request: Request, response: Response, body: LoginRequest) -> Me:
    """Sign in with name and password; the session is in an HttpOnly cookie."""
    state = request.app.state
    signed_in = await service.log_in(state.database, state.login_limit, body, client_of(request))
    return start_session(request, response, signed_in)


@router.post("/auth/logout", status_code=status.HTTP_204_NO_CONTENT)
async def logout(request: Request, response: Response, identity: Viewer, session: Session) -> None:
    """Sign out: end the session of the cookie."""
    await service.log_out(session, identity, request.cookies.get(SESSION_COOKIE))
    response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict")


@router.get("/auth/me")
async def me(identity: Viewer) -> Me:
    """Return the signed-in user."""
    return to_me(identity)


@router.post("/auth/password", status_code=status.HTTP_204_NO_CONTENT)
async def change_password(request: Request, identity: Viewer, body: PasswordChange) -> None:
    """Change the user's own password; their other sessions end."""
    state, cookie = request.app.state, request.cookies.get(SESSION_COOKIE)
    if identity.via != "session" or cookie is None:
        raise Forbidden("A password is changed on the page Account; an API token may not.")
    await service.change_password(
        state.database, state.login_limit, identity, body, cookie=cookie, client=client_of(request)
    )


@router.get("/auth/sessions")
async def list_sessions(request: Request, identity: Viewer, session: Session) -> list[BrowserSession]:
    """List the user's own browser sessions, newest first."""
    return await service.own_sessions(session, identity, request.cookies.get(SESSION_COOKIE))


@router.delete("/auth/sessions/{session_id}", status_code=status.HTTP_204_NO_CONTENT)
async def end_session(identity: Viewer, session_id: SessionId, session: Session) -> None:
    """End one of the user's own browser sessions; its open pages close at once."""
    await service.end_own_session(session, identity, session_id)


@router.get("/users")
async def list_users(_: Admin, session: Session) -> list[User]:
    """List all users, also disabled ones."""
    return [User.model_validate(row, from_attributes=True) for row in await repository.list_users(session)]


@router.post("/users", status_code=status.HTTP_201_CREATED)
async def create_user(by: Admin, body: UserCreate, session: Session) -> User:
    """Create a user."""
    return User.model_validate(await service.create_user(session, by, body), from_attributes=True)


@router.patch("/users/{user_id}")
async def update_user(by: Admin, user_id: RowId, body: UserUpdate, session: Session) -> User:
    """Change a user's role or password, or disable or enable the user."""
    row = await service.update_user(session, by.username, user_id, body)
    return User.model_validate(row, from_attributes=True)


@router.delete("/users/{user_id}", status_code=status.HTTP_204_NO_CONTENT)
async def delete_user(by: Admin, user_id: RowId, session: Session) -> None:
    """Delete a user; a pseudonym takes the name's place in history and audit log."""
    await service.delete_user(session, by, user_id)


@router.get("/tokens")
async def list_tokens(_: Admin, session: Session) -> list[ApiToken]:
    """List all API tokens, without their secret texts."""
    return [_api_token(row) for row in await repository.list_api_tokens(session)]


@router.post("/tokens", status_code=status.HTTP_201_CREATED)
async def create_token(request: Request, by: Admin, body: ApiTokenCreate, session: Session) -> ApiTokenCreated:
    """Create an API token; only this response contains its secret text."""
    await lock_credential(session, request, by)
    row, text = await service.create_api_token(session, by, body)
    return ApiTokenCreated(**_api_token(row).model_dump(), token=text)


@router.delete("/tokens/{token_id}", status_code=status.HTTP_204_NO_CONTENT)
async def delete_token(by: Admin, token_id: RowId, session: Session) -> None:
    """Revoke an API token at once."""
    await service.delete_api_token(session, by, token_id)
