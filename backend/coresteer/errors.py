"""API errors: exceptions with a sentence that says what happened, returned as RFC 9457 problem documents."""

import logging
from typing import Any

import psycopg
import psycopg_pool
import sqlalchemy.exc
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from coresteer.extras import MissingExtraError
from coresteer.paths import API

log = logging.getLogger("coresteer")


class Problem(Exception):  # noqa: N818 - RFC 9457 calls it so
    """Base class of errors of the API.

    detail: one sentence for the caller; field: the input that it is about, if any.
    """

    status = 500
    slug = "internal"
    title = "Something failed inside the backend"

    def __init__(self, detail: str, *, field: str | None = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.field = field
        self.headers = headers


class BadRequest(Problem):
    """400: the request cannot be parsed."""

    status, slug, title = 400, "bad-request", "The request cannot be understood"


class Unauthenticated(Problem):
    """401: no valid session or API token."""

    status, slug, title = 401, "unauthenticated", "Not signed in"


class Forbidden(Problem):
    """403: the role or token does not allow this."""

    status, slug, title = 403, "forbidden", "Not allowed"


class NotFound(Problem):
    """404: there is no such node, user, policy or other object."""

    status, slug, title = 404, "not-found", "Not found"


class Conflict(Problem):
    """409: not possible in the present state."""

    status, slug, title = 409, "conflict", "Not possible in the present state"


class SlowRequest(Problem):
    """408: the request was not complete in time."""

    status, slug, title = 408, "slow-request", "The request took too long to arrive"


class TooLarge(Problem):
    """413: the body of the request is too large."""

    status, slug, title = 413, "too-large", "The request is too large"


class Invalid(Problem):
    """422: one field of the input is invalid; its name is in ``field``."""

    status, slug, title = 422, "invalid", "The input is not valid"


class TooManyRequests(Problem):
    """429: too many attempts; retry_after_s goes into the Retry-After header."""

    status, slug, title = 429, "too-many-requests", "Too many attempts"

    def __init__(self, detail: str, *, retry_after_s: int) -> None:
        super().__init__(detail, headers={"Retry-After": str(retry_after_s)})


class HeadTooLarge(Problem):
    """431: the request line or the headers are too large."""

    status, slug, title = 431, "headers-too-large", "The request's headers are too large"


class NodeDisconnected(Problem):
    """503: the node's agent is not connected."""

    status, slug, title = 503, "node-away", "The node is not connected"


class NodeElsewhere(NodeDisconnected):
    """503: the node's agent is connected to another backend, and this one cannot send it anything."""

    status, slug, title = 503, "node-elsewhere", "The node is connected to another backend"


class AgentTimeout(Problem):
    """504: the agent is connected but did not report in time, or its backend did not; what it does is not known."""

    status, slug, title = 504, "no-answer", "The node's agent did not answer in time"


class DatabaseUnavailable(Problem):
    """503: PostgreSQL cannot be reached."""

    status, slug, title = 503, "database-away", "The database cannot be reached"


class IssuerUnavailable(Problem):
    """503: the issuer with which people sign in did not answer as it should."""

    status, slug, title = 503, "issuer-away", "The issuer does not answer"


class StorageFull(Problem):
    """507: the database's disk is full."""

    status, slug, title = 507, "storage-full", "The database's disk is full"


STORAGE_FULL = StorageFull(
    "The database could not store this, because its disk is full; nothing was changed. Free space on that disk, or "
    "lower CORESTEER_RETENTION_BYTES and start the backend again, then repeat the request."
)

DATABASE_UNAVAILABLE = DatabaseUnavailable(
    "The database does not answer. Try again in a few seconds.", headers={"Retry-After": "3"}
)


class DeposedError(Exception):
    """A task of the leader may not write any more, because another replica leads; its transaction was rolled back."""


_NO_CONNECTION = (psycopg_pool.PoolTimeout, psycopg_pool.PoolClosed, sqlalchemy.exc.TimeoutError)
# SQLSTATE: connection exceptions, shutting down or starting up, too many connections. A disk that is full or a
# deadlock are operational errors as well, but from a server that answers.
_UNREACHABLE_STATES = ("08", "57P0", "53300")


def is_database_unavailable(error: BaseException) -> bool:
    """Return whether an error means that the database cannot be reached, rather than that it rejected a statement.

    While connecting, libpq reports no SQLSTATE: a wrong password looks like an unreachable server.
    """
    if isinstance(error, sqlalchemy.exc.DBAPIError):
        return error.connection_invalidated or (error.orig is not None and is_database_unavailable(error.orig))
    if isinstance(error, psycopg.OperationalError) and not isinstance(error, _NO_CONNECTION):
        return error.sqlstate is None or error.sqlstate.startswith(_UNREACHABLE_STATES)
    return isinstance(error, _NO_CONNECTION)


def is_about_rows(error: Exception) -> bool:
    """Return whether an error is due to the rows that were written, so that writing them again fails again."""
    if isinstance(error, psycopg.Error):
        return isinstance(error, psycopg.DataError | psycopg.IntegrityError)
    return not isinstance(error, OSError | MemoryError | DeposedError)


def is_disk_full(error: BaseException) -> bool:
    """Return whether an error means that the database's disk, or a quota on it, is full."""
    cause = error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) else error
    return isinstance(cause, psycopg.errors.DiskFull)


def database_error_message(error: BaseException) -> str:
    """Return the error message of the database server or of libpq on one line."""
    cause = error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) and error.orig is not None else error
    message = cause.diag.message_primary if isinstance(cause, psycopg.Error) else None
    return " ".join((message or str(cause)).split()).rstrip(".")


PROBLEM_SCHEMA = {
    "title": "Problem",
    "description": "What went wrong (RFC 9457). errors names the fields of the request that are not valid.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "errors"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "message"],
                "properties": {"field": {"type": "string"}, "message": {"type": "string"}},
            },
        },
    },
}
"""The JSON schema of every error answer."""


class ProblemResponse(JSONResponse):
    """JSON with the media type of RFC 9457."""

    media_type = "application/problem+json"


def problem_response(
    status: int,
    slug: str,
    title: str,
    detail: str,
    *,
    errors: list[dict[str, str]] | None = None,
    headers: dict[str, str] | None = None,
) -> ProblemResponse:
    """Return an error response (RFC 9457) with type, title, status, detail and errors."""
    content = {"type": f"urn:coresteer:{slug}", "title": title, "status": status, "detail": detail}
    return ProblemResponse({**content, "errors": errors or []}, status_code=status, headers=headers)


def to_response(problem: Problem) -> ProblemResponse:
    """Return the HTTP response for a Problem."""
    errors = [{"field": problem.field, "message": problem.detail}] if problem.field else None
    return problem_response(
        problem.status, problem.slug, problem.title, problem.detail, errors=errors, headers=problem.headers
    )


def _field_name(location: tuple[Any, ...]) -> str:  # Any: Pydantic's locations mix names and list positions
    """Return ``names[3]`` for ``("body", "names", 3)``; a parameter's own name; ``body`` for the whole body."""
    name = ""
    for part in location[1:]:
        if part != "[key]":  # Pydantic's mark for the name of an entry rather than its value
            name += f"[{part}]" if isinstance(part, int) else f".{part}"
    # a name may hold half of a surrogate pair, which UTF-8 cannot
    return name.removeprefix(".").encode(errors="backslashreplace").decode() or "body"


def _field_of(error: dict[str, Any]) -> str:  # Any: Pydantic's description of an error
    """Return the name of the field that a validation error is about, with the path below it in a msgspec struct."""
    return _field_name(error["loc"]) + str(error.get("ctx", {}).get("path", ""))


async def _on_problem(_: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, Problem)  # noqa: S101 - Starlette's handler type is wider than what it is registered for
    return to_response(error)


async def _on_invalid(_: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - as above
    errors = [
        # the location is the position in the JSON, not a field
        {"field": "body" if item["type"] == "json_invalid" else _field_of(item), "message": str(item["msg"])}
        for item in error.errors()
    ]
    detail = "; ".join(f"{item['field']}: {item['message']}" for item in errors[:5])
    return problem_response(422, Invalid.slug, Invalid.title, detail, errors=errors)


async def _on_http(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - as above
    headers = dict(error.headers) if error.headers else None
    if error.status_code == 404:
        detail = f"There is no page or endpoint at {request.url.path}."
        if request.url.path.startswith("/api/") and not request.url.path.startswith(f"{API}/"):
            detail = (
                f"The API is at {API}, such as {API}/nodes; nothing is at {request.url.path}. If a page of an earlier "
                "version shows this, reload it."
            )
        return problem_response(404, NotFound.slug, NotFound.title, detail)
    if error.status_code == 405:
        detail = f"{request.url.path} does not support the method {request.method}."
        return problem_response(405, "method-not-allowed", "Method not allowed", detail, headers=headers)
    if error.status_code == TooLarge.status:
        return problem_response(413, TooLarge.slug, TooLarge.title, str(error.detail))
    return problem_response(error.status_code, "http", "The request failed", str(error.detail), headers=headers)


async def _on_database_error(request: Request, error: Exception) -> ProblemResponse:
    if is_database_unavailable(error):  # PostgreSQL stops when its log has no room
        disk = request.app.state.readiness.disk()
        return to_response(DATABASE_UNAVAILABLE if disk is None else StorageFull(disk))
    if is_disk_full(error):
        request.app.state.database.note_failure(error)
        log.error("%s %s: the database's disk is full.", request.method, request.url.path)
        return to_response(STORAGE_FULL)
    cause = error.orig if isinstance(error, sqlalchemy.exc.DBAPIError) else error
    if isinstance(cause, psycopg.DataError):  # SQLSTATE class 22: a value that no column can hold
        log.warning("%s %s: the database refused a value: %s", request.method, request.url.path, cause)
        return to_response(Invalid("The database cannot store a value of the request."))
    return await _on_unexpected(request, error)


async def _on_missing_extra(_: Request, error: Exception) -> ProblemResponse:
    return problem_response(501, "missing-extra", "A part of the backend is not installed", str(error))


async def _on_unexpected(request: Request, error: Exception) -> ProblemResponse:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return to_response(Problem("An unexpected error occurred in the backend; its log has the details."))


def install_error_handlers(app: FastAPI) -> None:
    """Register handlers that return every error of the app's routes as a problem document."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    for kind in (psycopg.Error, psycopg_pool.PoolTimeout, psycopg_pool.PoolClosed, sqlalchemy.exc.SQLAlchemyError):
        app.add_exception_handler(kind, _on_database_error)
    app.add_exception_handler(MissingExtraError, _on_missing_extra)
    app.add_exception_handler(Exception, _on_unexpected)
