"""Reports over HTTP: of experiments and changes, and links to them."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request, Response

from coresteer.auth.dependencies import Operator, Viewer
from coresteer.db import Session
from coresteer.inputs import RowId
from coresteer.localization.language import Language
from coresteer.origin import public_url
from coresteer.reports import service
from coresteer.reports.schemas import ShareRequest, ShareResponse
from coresteer.reports.service import ReportFile, ReportFormat

router = APIRouter()
shared_router = APIRouter()

_MEDIA_TYPES = {
    ReportFormat.HTML: "text/html; charset=utf-8",
    ReportFormat.PDF: "application/pdf",
    ReportFormat.CSV: "text/csv; charset=utf-8",
    ReportFormat.JSON: "application/json",
    ReportFormat.MARKDOWN: "text/markdown; charset=utf-8",
}
_HEADERS = {
    "cache-control": "no-store",
    # no scripts and no external resources, whatever names the report contains
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; font-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_ANY_FORMAT: dict[int | str, dict[str, Any]] = {  # Any: FastAPI's type for a part of OpenAPI
    200: {"content": {media.partition(";")[0]: _BINARY for media in _MEDIA_TYPES.values()}}
}


def _answer(file: ReportFile) -> Response:
    disposition = "inline" if file.format is ReportFormat.HTML else "attachment"
    headers = _HEADERS | {"content-disposition": f'{disposition}; filename="{file.name}"'}
    return Response(file.content, media_type=_MEDIA_TYPES[file.format], headers=headers)


@router.get("/experiments/{experiment_id}/report", response_class=Response, responses=_ANY_FORMAT)
async def get_experiment_report(
    request: Request,
    _: Viewer,
    experiment_id: RowId,
    *,
    format: ReportFormat = ReportFormat.HTML,
    language: Language = "en",
) -> Response:
    """Return the report of an experiment as a file. The same runs give the same bytes."""
    return _answer(await service.experiment_file(request.app.state.database, experiment_id, format, language))


@router.get("/changes/{change_id}/report", response_class=Response, responses=_ANY_FORMAT)
async def get_change_report(
    request: Request,
    _: Viewer,
    change_id: UUID,
    *,
    format: ReportFormat = ReportFormat.HTML,
    language: Language = "en",
) -> Response:
    """Return the report of a change as a file: real traffic in the hour before and the hour after it."""
    state = request.app.state
    return _answer(await service.change_file(state.database, state.ingest, change_id, format, language))


@router.get("/simulations/{simulation_id}/report", response_class=Response, responses=_ANY_FORMAT)
async def get_simulation_report(
    request: Request,
    _: Viewer,
    simulation_id: RowId,
    *,
    format: ReportFormat = ReportFormat.HTML,
    language: Language = "en",
) -> Response:
    """Return the report of a coscheduling study as a file. The same runs give the same bytes."""
    return _answer(await service.simulation_file(request.app.state.database, simulation_id, format, language))


@router.get("/reports/compare", response_class=Response, responses=_ANY_FORMAT)
async def compare_experiments(
    request: Request,
    _: Viewer,
    *,
    a: Annotated[RowId, Query()],
    b: Annotated[RowId, Query()],
    format: ReportFormat = ReportFormat.HTML,
    language: Language = "en",
) -> Response:
    """Return the comparison of two experiments as a file: whether their results agree, and how they differ."""
    return _answer(await service.comparison_file(request.app.state.database, (a, b), format, language))


@router.post("/experiments/{experiment_id}/share", status_code=201)
async def share_report(
    request: Request, session: Session, identity: Operator, experiment_id: RowId, body: ShareRequest
) -> ShareResponse:
    """Create a link to an experiment's report that works without signing in. The token is returned only now."""
    token, expires_at = await service.create_link(session, experiment_id, days=body.days, actor=identity.username)
    return ShareResponse(url=f"{public_url(request)}/shared/{token}", token=token, expires_at=expires_at)


@router.delete("/experiments/{experiment_id}/share", status_code=204)
async def unshare_report(session: Session, identity: Operator, experiment_id: RowId) -> None:
    """Revoke all links to an experiment's report."""
    await service.delete_links(session, experiment_id, actor=identity.username)


@shared_router.get("/shared/{token}", response_class=Response, responses=_ANY_FORMAT)
async def get_shared_report(
    request: Request,
    token: Annotated[str, Path(max_length=100)],
    *,
    format: ReportFormat = ReportFormat.HTML,
    language: Language = "en",
) -> Response:
    """Return the report that a link leads to."""
    return _answer(await request.app.state.shared_reports.file(token, format, language))
