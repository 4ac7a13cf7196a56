"""Alerts over HTTP. Only administrators choose what is watched and which servers the backend tells."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from coresteer.alerts import service
from coresteer.alerts.schemas import (
    AlertFilter,
    AlertList,
    AlertRule,
    AlertRuleBody,
    Delivery,
    Receiver,
    ReceiverBody,
    ReceiverTest,
    SignalInfo,
    Silence,
    SilenceBody,
)
from coresteer.auth.dependencies import Admin, Operator, Viewer
from coresteer.db import Session
from coresteer.inputs import RowId

router = APIRouter()


@router.get("/alerts")
async def list_alerts(session: Session, _: Viewer, filters: Annotated[AlertFilter, Depends()]) -> AlertList:
    """List alerts: those that fire first, then those that are resolved, the newest first."""
    return await service.list_alerts(session, filters)


@router.get("/alert-signals")
async def list_alert_signals(_: Viewer) -> list[SignalInfo]:
    """List the signals that rules may watch, with their units."""
    return service.signals()


@router.get("/alert-rules")
async def list_alert_rules(session: Session, _: Viewer) -> list[AlertRule]:
    """List the rules by name."""
    return await service.list_rules(session)


@router.post("/alert-rules", status_code=201)
async def create_alert_rule(session: Session, by: Admin, body: AlertRuleBody) -> AlertRule:
    """Create a rule; the leader evaluates it within 15 s."""
    return await service.create_rule(session, body, actor=by.username)


@router.put("/alert-rules/{rule_id}")
async def change_alert_rule(session: Session, by: Admin, rule_id: RowId, body: AlertRuleBody) -> AlertRule:
    """Replace a rule. Disabled, its alerts are resolved."""
    return await service.change_rule(session, rule_id, body, actor=by.username)


@router.delete("/alert-rules/{rule_id}", status_code=204)
async def delete_alert_rule(session: Session, by: Admin, rule_id: RowId) -> None:
    """Delete a rule with its alerts; receivers are not told."""
    await service.delete_rule(session, rule_id, actor=by.username)


@router.get("/alert-silences")
async def list_alert_silences(session: Session, _: Viewer) -> list[Silence]:
    """List the silences in force."""
    return await service.list_silences(session)


@router.post("/alert-silences", status_code=201)
async def create_alert_silence(session: Session, by: Operator, body: SilenceBody) -> Silence:
    """Silence alerts: receivers are not told of those that match until the silence ends."""
    return await service.create_silence(session, body, actor=by.username)


@router.delete("/alert-silences/{silence_id}", status_code=204)
async def end_alert_silence(session: Session, by: Operator, silence_id: RowId) -> None:
    """End a silence now; receivers are told of what still fires."""
    await service.end_silence(session, silence_id, actor=by.username)


@router.get("/alert-receivers")
async def list_alert_receivers(session: Session, _: Viewer) -> list[Receiver]:
    """List the receivers by name, without their secrets."""
    return await service.list_receivers(session)


@router.post("/alert-receivers", status_code=201)
async def create_alert_receiver(session: Session, by: Admin, body: ReceiverBody) -> Receiver:
    """Create a receiver; it is told of what fires already."""
    return await service.create_receiver(session, body, actor=by.username)


@router.put("/alert-receivers/{receiver_id}")
async def change_alert_receiver(session: Session, by: Admin, receiver_id: RowId, body: ReceiverBody) -> Receiver:
    """Replace a receiver; without a secret, it keeps the present one."""
    return await service.change_receiver(session, receiver_id, body, actor=by.username)


@router.delete("/alert-receivers/{receiver_id}", status_code=204)
async def delete_alert_receiver(session: Session, by: Admin, receiver_id: RowId) -> None:
    """Delete a receiver with what waits to be sent to it."""
    await service.delete_receiver(session, receiver_id, actor=by.username)


@router.post("/alert-receivers/{receiver_id}/test")
async def test_alert_receiver(request: Request, by: Admin, receiver_id: RowId) -> ReceiverTest:
    """Send a test notification to a receiver now, and return the outcome."""
    return await service.test_receiver(request.app.state.alerts, receiver_id, actor=by.username)


@router.get("/alert-receivers/{receiver_id}/deliveries")
async def list_alert_deliveries(session: Session, _: Viewer, receiver_id: RowId) -> list[Delivery]:
    """List the newest 100 notifications of a receiver with their outcomes."""
    return await service.list_deliveries(session, receiver_id)
