"""Reports over HTTP."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request, Response

from coresteer.auth.dependencies import Operator, Viewer
from coresteer.db import Session
from coresteer.inputs import RowId
from coresteer.localization.language import Language
from coresteer.origin import public_url
from coresteer.reports import service
from coresteer.reports.schemas import ShareAnswer, ShareRequest
from coresteer.reports.service import File, ReportFormat

router = APIRouter(tags=["reports"])

_MEDIA_TYPES = {
    ReportFormat.HTML: "text/html; charset=utf-8",
    ReportFormat.PDF: "application/pdf",
    ReportFormat.CSV: "text/csv; charset=utf-8",
    ReportFormat.JSON: "application/json",
}
_HEADERS = {
    "cache-control": "no-store",
    # a page that runs nothing and fetches nothing, whatever names are in it
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; font-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_ANY_FORMAT: dict[int | str, dict[str, Any]] = {  # Any: FastAPI's type for a part of OpenAPI
    200: {"content": {media.partition(";")[0]: _BINARY for media in _MEDIA_TYPES.values()}}
}


def _answer(file: File) -> Response:
    place = "inline" if file.format is ReportFormat.HTML else "attachment"
    headers = _HEADERS | {"content-disposition": f'{place}; filename="{file.name}"'}
    return Response(file.content, media_type=_MEDIA_TYPES[file.format], headers=headers)


@router.get("/api/experiments/{experiment_id}/report", response_class=Response, responses=_ANY_FORMAT)
async def get_experiment_report(
    request: Request,
    _: Viewer,
    experiment_id: RowId,
    *,
    format: ReportFormat = ReportFormat.HTML,
    language: Language = "en",
) -> Response:
    """What an experiment found and how, as a document. The same runs give the same bytes."""
    return _answer(await service.experiment_file(request.app.state.database, experiment_id, format, language))


@router.get("/api/changes/{change_id}/report", response_class=Response, responses=_ANY_FORMAT)
async def get_change_report(
    request: Request,
    _: Viewer,
    change_id: UUID,
    *,
    format: ReportFormat = ReportFormat.HTML,
    language: Language = "en",
) -> Response:
    """What the node's real traffic was like in the hour before a change and in the hour after it."""
    state = request.app.state
    return _answer(await service.change_file(state.database, state.ingest, change_id, format, language))


@router.get("/api/reports/compare", response_class=Response, responses=_ANY_FORMAT)
async def compare_experiments(
    request: Request,
    _: Viewer,
    *,
    a: Annotated[RowId, Query()],
    b: Annotated[RowId, Query()],
    format: ReportFormat = ReportFormat.HTML,
    language: Language = "en",
) -> Response:
    """Two experiments side by side: whether they agree, and what differs between them."""
    return _answer(await service.comparison_file(request.app.state.database, (a, b), format, language))


@router.post("/api/experiments/{experiment_id}/share", status_code=201)
async def share_report(
    request: Request, session: Session, identity: Operator, experiment_id: RowId, body: ShareRequest
) -> ShareAnswer:
    """A link that shows the report to whoever has it, without signing in. The token is told only now."""
    token, expires_at = await service.share(session, experiment_id, days=body.days, actor=identity.username)
    return ShareAnswer(url=f"{public_url(request)}/shared/{token}", token=token, expires_at=expires_at)


@router.delete("/api/experiments/{experiment_id}/share", status_code=204)
async def unshare_report(session: Session, identity: Operator, experiment_id: RowId) -> None:
    """End all links to the report."""
    await service.unshare(session, experiment_id, actor=identity.username)


@router.get("/shared/{token}", response_class=Response, responses=_ANY_FORMAT)
async def get_shared_report(
    request: Request,
    token: Annotated[str, Path(max_length=100)],
    *,
    format: ReportFormat = ReportFormat.HTML,
    language: Language = "en",
) -> Response:
    """The report that a link shows."""
    return _answer(await service.shared_file(request.app.state.database, token, format, language))
