"""Single sign-on over HTTP: begin, finish, sign out, and the issuer's back-channel logout."""

from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response, status

from coresteer.auth.dependencies import Viewer
from coresteer.auth.endpoints import client_of, start_session
from coresteer.auth.secrets import SESSION_COOKIE
from coresteer.errors import BadRequest, NotFound, TooLarge
from coresteer.origin import public_url
from coresteer.sso.pending import COOKIE, LIFE_S
from coresteer.sso.schemas import IssuerAddress, SignInAnswer, SignInStart, SsoSignedIn
from coresteer.sso.service import SingleSignOn

router = APIRouter()

REDIRECT_PATH = "/signed-in"
"""The page to which the issuer sends the browser; its whole address is registered with the issuer."""

_MAX_LOGOUT_BYTES = 65_536
_MAX_LOGOUT_FIELDS = 16


def _sso(request: Request) -> SingleSignOn:
    sso: SingleSignOn | None = request.app.state.sso
    if sso is None:
        raise NotFound("Single sign-on is not set up; CORESTEER_OIDC_ISSUER names the issuer.")
    return sso


@router.post("/auth/sso/begin")
async def begin_sign_in(request: Request, response: Response, body: SignInStart) -> IssuerAddress:
    """Begin a sign-in with the issuer: open the address in the browser that got this answer."""
    url, cookie = await _sso(request).begin(public_url(request) + REDIRECT_PATH, body.return_to)
    is_secure = public_url(request).startswith("https:")
    response.set_cookie(COOKIE, cookie, max_age=LIFE_S, httponly=True, samesite="strict", secure=is_secure)
    return IssuerAddress(url=url)


@router.post("/auth/sso/finish")
async def finish_sign_in(request: Request, response: Response, body: SignInAnswer) -> SsoSignedIn:
    """Sign in with what the issuer added to the address of the page /signed-in."""
    signed_in, return_to = await _sso(request).finish(body, request.cookies.get(COOKIE, ""), client_of(request))
    me = start_session(request, response, signed_in)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return SsoSignedIn(**me.model_dump(), return_to=return_to)


@router.post("/auth/sso/sign-out")
async def sign_out_address(request: Request, _: Viewer) -> IssuerAddress:
    """Return the issuer's page to sign out there, too; ask before signing out here. None for local users."""
    sso: SingleSignOn | None = request.app.state.sso
    cookie = request.cookies.get(SESSION_COOKIE)
    if sso is None or cookie is None:
        return IssuerAddress(url=None)
    return IssuerAddress(url=await sso.sign_out(cookie, public_url(request) + "/login"))


# the issuer's own protocol, not part of this API
@router.post("/auth/sso/back-channel-logout", include_in_schema=False)
async def back_channel_logout(request: Request) -> Response:
    """End the sessions that the issuer has ended (OpenID Connect Back-Channel Logout 1.0)."""
    sso = _sso(request)
    if len(body := await request.body()) > _MAX_LOGOUT_BYTES:
        raise TooLarge(f"A logout token has at most {_MAX_LOGOUT_BYTES} bytes.")
    try:
        tokens = parse_qs(body.decode("ascii", "replace"), max_num_fields=_MAX_LOGOUT_FIELDS).get("logout_token", [])
    except ValueError:  # more fields
        tokens = []
    if len(tokens) != 1:
        raise BadRequest("The body must be a form with one logout_token.")
    await sso.end_by_issuer(tokens[0])
    return Response(status_code=status.HTTP_200_OK, headers={"Cache-Control": "no-store"})
