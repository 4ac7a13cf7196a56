"""WebSocket /api/live: samples and events as they arrive, to every open page."""

import asyncio

import msgspec
from fastapi import APIRouter, WebSocket, WebSocketException
from starlette.websockets import WebSocketDisconnect

from coresteer.auth.dependencies import identify_websocket
from coresteer.background import cancel
from coresteer.live.hub import Browser, LiveHub, Subscription

router = APIRouter()

_IDENTIFY_EVERY_S = 60.0
_SEND_TIMEOUT_S = 20.0
_TRY_AGAIN_LATER = 1013
_POLICY_VIOLATION = 1008


@router.websocket("/api/live")
async def live(websocket: WebSocket) -> None:
    """Serve the WebSocket of one page until it is closed or its session ends (checked every minute)."""
    try:
        await identify_websocket(websocket)
    except WebSocketException as refused:
        await websocket.accept()  # a page sees code and reason only of a connection that was accepted
        await websocket.close(refused.code, refused.reason)
        return
    await websocket.accept()
    hub: LiveHub = websocket.app.state.live
    browser = Browser()
    hub.join(browser)
    tasks = [
        asyncio.create_task(part)
        for part in (_receive(websocket, hub, browser), _send(websocket, browser), _check_session(websocket))
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for ended in (task.exception() for task in done):
            if isinstance(ended, WebSocketException):
                async with asyncio.timeout(_SEND_TIMEOUT_S):
                    await websocket.close(ended.code, ended.reason)
            elif ended is not None and not isinstance(ended, WebSocketDisconnect | TimeoutError | RuntimeError):
                raise ended
    finally:
        hub.leave(browser)
        await cancel(tasks)


async def _receive(websocket: WebSocket, hub: LiveHub, browser: Browser) -> None:
    while True:
        message = await websocket.receive()
        if message["type"] == "websocket.disconnect":
            return
        try:
            browser.subscription = msgspec.json.decode(message.get("text") or b"", type=Subscription)
        except msgspec.MsgspecError as error:
            raise WebSocketException(_POLICY_VIOLATION, f"Invalid subscription: {error}"[:120]) from None
        hub.join(browser)


async def _send(websocket: WebSocket, browser: Browser) -> None:
    while True:
        await browser.wake.wait()
        browser.wake.clear()
        while browser.events or browser.frames:
            async with asyncio.timeout(_SEND_TIMEOUT_S):
                if browser.events:
                    await websocket.send_text(browser.events.popleft())
                else:
                    await websocket.send_bytes(browser.frames.popleft())


async def _check_session(websocket: WebSocket) -> None:
    while True:
        await asyncio.sleep(_IDENTIFY_EVERY_S)
        try:
            await identify_websocket(websocket)
        except WebSocketException as refused:
            if refused.code != _TRY_AGAIN_LATER:  # samples are sent on without a database
                raise
