"""WebSocket /api/v1/live: samples and events as they arrive, to every open page."""

import asyncio
import logging
import time
from collections.abc import Coroutine
from contextlib import ExitStack

import msgspec
from fastapi import APIRouter, WebSocket, WebSocketException
from starlette.websockets import WebSocketDisconnect

from coresteer.auth.dependencies import Identity, credential_hash, identify_websocket
from coresteer.background import cancel
from coresteer.live.hub import Browser, LiveHub, Subscription

log = logging.getLogger("coresteer.live")
router = APIRouter()

_SEND_TIMEOUT_S = 20.0
_TRY_AGAIN_LATER = 1013
_POLICY_VIOLATION = 1008
_MESSAGES_PER_S = 5.0
"""A page sends one when its user opens another page; one that sends more, after a burst, is not read for a while."""
_BURST = 50.0
_PENALTY_S = 10.0
"""Before a connection that sends too much is closed: it counts against its user's pages until then."""


@router.websocket("/live")
async def live(websocket: WebSocket) -> None:
    """Serve the WebSocket of one page until it is closed, or its session or API token ends or changes its role."""
    hub: LiveHub = websocket.app.state.live
    doubted = asyncio.Event()
    with ExitStack() as stack:
        if (credential := credential_hash(websocket)) is not None:
            stack.enter_context(websocket.app.state.trust.watch(credential, doubted.set))
        try:
            identity = await identify_websocket(websocket)
            browser = stack.enter_context(hub.browser(identity.username))
        except WebSocketException as refused:
            await websocket.accept()  # a page sees code and reason only of a connection that was accepted
            await websocket.close(refused.code, refused.reason)
            return
        await websocket.accept()
        await _serve(
            websocket,
            _receive(websocket, hub, browser, identity.username),
            _send(websocket, browser),
            _check(websocket, identity, doubted),
        )


async def _serve(websocket: WebSocket, *parts: Coroutine[None, None, None]) -> None:
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for ended in (task.exception() for task in done):
            if isinstance(ended, WebSocketException):
                async with asyncio.timeout(_SEND_TIMEOUT_S):
                    await websocket.close(ended.code, ended.reason)
            elif ended is not None and not isinstance(ended, WebSocketDisconnect | TimeoutError | RuntimeError):
                raise ended
    finally:
        await cancel(tasks)


async def _receive(websocket: WebSocket, hub: LiveHub, browser: Browser, username: str) -> None:
    budget, received_at = _BURST, time.monotonic()
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        now = time.monotonic()
        budget, received_at = min(_BURST, budget + (now - received_at) * _MESSAGES_PER_S) - 1, now
        if budget < 0:
            log.warning("A page of %s sends too much, and is closed.", username)
            await asyncio.sleep(_PENALTY_S)
            raise WebSocketException(_POLICY_VIOLATION, f"A page may send {_MESSAGES_PER_S:.0f} messages a second.")
        try:
            subscription = msgspec.json.decode(message.get("text") or b"", type=Subscription)
        except msgspec.MsgspecError as error:
            raise WebSocketException(_POLICY_VIOLATION, f"Invalid subscription: {error}"[:120]) from None
        hub.subscribe(browser, subscription)


async def _send(websocket: WebSocket, browser: Browser) -> None:
    while True:
        await browser.wake.wait()
        browser.wake.clear()
        while browser.events or browser.frames:
            async with asyncio.timeout(_SEND_TIMEOUT_S):
                if browser.events:
                    await websocket.send_text(browser.next_event())
                else:
                    await websocket.send_bytes(browser.frames.popleft())


async def _check(websocket: WebSocket, identity: Identity, doubted: asyncio.Event) -> None:
    """Identify again whenever the session, the API token or its user has changed."""
    while True:
        await doubted.wait()
        doubted.clear()
        try:
            present = await identify_websocket(websocket)
        except WebSocketException as refused:
            if refused.code != _TRY_AGAIN_LATER:  # samples are sent on without a database
                raise
        else:
            if (present.role, present.limits) != (identity.role, identity.limits):
                raise WebSocketException(_POLICY_VIOLATION, f"Your role is {present.role} now.")
