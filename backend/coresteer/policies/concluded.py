"""Being built."""

from typing import Any


async def decisions(*_: Any, **__: Any) -> Any:
    raise NotImplementedError


async def drifts(*_: Any, **__: Any) -> Any:
    raise NotImplementedError


async def recommendations(*_: Any, **__: Any) -> Any:
    raise NotImplementedError
