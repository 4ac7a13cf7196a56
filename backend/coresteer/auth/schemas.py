"""Request and response bodies of sign-in, users and API tokens."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator

from coresteer.audit.service import SYSTEM_ACTORS
from coresteer.inputs import STORABLE, RequestBody, TextPattern, validation_error


def _check_reserved(username: str) -> str:
    if username.lower() in SYSTEM_ACTORS:
        raise validation_error(
            f"The audit log uses the name {username.lower()} for what no user does. Use another name."
        )
    return username


Username = Annotated[
    str,
    Field(min_length=1, max_length=64),
    TextPattern(r"[A-Za-z0-9._@\-]+", "A user name is made of the letters A to Z in either case, digits and . _ @ -"),
    AfterValidator(_check_reserved),
]
_MAX_PASSWORD = 200
Password = Annotated[str, Field(min_length=10, max_length=_MAX_PASSWORD), STORABLE]
"""A new password; hash_password refuses one that is easy to guess, for which strangers must not make it compute."""
Name = Annotated[str, Field(min_length=1, max_length=100), STORABLE]
Token = Annotated[str, Field(min_length=1, max_length=200), STORABLE]


SessionId = Annotated[str, Field(max_length=16), TextPattern(r"[0-9a-f]+", "A session's id is hexadecimal.")]


class Role(StrEnum):
    """viewer reads, operator also changes nodes, admin also manages users, tokens and agents."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


RoleLabels = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=63), STORABLE], Annotated[str, Field(max_length=200), STORABLE]],
    Field(max_length=32),
]
"""Shell patterns by name of a label, as in a policy's selector."""
ONLY_OPERATORS = "Only the role operator can be limited to labels."


class SetupState(BaseModel):
    """Whether the first administrator must still be created, with the printed set-up link (needs_setup).

    issuer: host name of the issuer with which people can sign in, None without one.
    """

    needs_setup: bool
    issuer: str | None


class SetupLink(RequestBody):
    """The token of a set-up link."""

    token: Token


class SetupRequest(RequestBody):
    """The token of the set-up link, and the first administrator's name and password."""

    token: Token
    username: Username
    password: Password


class LoginRequest(RequestBody):
    """A user's name and password."""

    username: Annotated[str, Field(min_length=1, max_length=64), STORABLE]
    password: Annotated[str, Field(min_length=1, max_length=_MAX_PASSWORD), STORABLE]


class Me(BaseModel):
    """The signed-in user, by session or API token. csrf_token: for the X-CSRF-Token header of every unsafe request.

    limits: an operator's, patterns that the labels of a node must all match; elsewhere, the user is a viewer.
    issuer: the address of the issuer that has the user's password, None of a local user.
    """

    username: str
    role: Role
    limits: list[dict[str, str]]
    csrf_token: str | None
    issuer: str | None


class PasswordChange(RequestBody):
    """The user's present password, and the one to use from now on."""

    present: Annotated[str, Field(min_length=1, max_length=_MAX_PASSWORD), STORABLE]
    password: Password


class BrowserSession(BaseModel):
    """A signed-in session of the user who asks. id: of this list only; current: the one that asks.

    address, browser: where it was signed in, None if that was before they were stored.
    """

    id: str
    current: bool
    address: str | None
    browser: str | None
    created_at: datetime
    expires_at: datetime


class _LimitedRole(RequestBody):
    role: Role
    role_labels: RoleLabels = Field(default={})

    @model_validator(mode="after")
    def _limits_an_operator(self) -> Self:
        if self.role_labels and self.role is not Role.OPERATOR:
            raise validation_error(ONLY_OPERATORS)
        return self


class User(BaseModel):
    """A user, as administrators see it. role_labels: of the nodes of which it is operator; empty for every node.

    issuer: with which the user signs in and from which the role comes; None of a local user.
    """

    id: int
    username: str
    role: Role
    role_labels: dict[str, str]
    issuer: str | None
    disabled: bool
    created_at: datetime
    last_login_at: datetime | None


class UserCreate(_LimitedRole):
    """Name, role and password of a new user. role_labels: of the nodes of which it is operator; empty for all nodes."""

    username: Username
    password: Password


class UserUpdate(RequestBody):
    """Changes of a user, at least one; absent fields are unchanged, but a new role begins without labels."""

    role: Role | None = None
    role_labels: RoleLabels | None = None
    disabled: bool | None = None
    password: Password | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if all(each is None for each in (self.role, self.role_labels, self.disabled, self.password)):
            raise validation_error("Give at least one of role, role_labels, disabled and password.")
        return self


class ApiToken(BaseModel):
    """An API token for scripts, sent as ``Authorization: Bearer``. Its text is returned once, when it is created."""

    id: int
    name: str
    role: Role
    role_labels: dict[str, str]
    created_by: str
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None


class ApiTokenCreate(_LimitedRole):
    """A new API token, with at most its creator's rights."""

    name: Name
    expires_in_days: Annotated[int, Field(ge=1, le=3650)] | None = None


class ApiTokenCreated(ApiToken):
    """A new API token with its secret text, which no other response contains."""

    token: str
