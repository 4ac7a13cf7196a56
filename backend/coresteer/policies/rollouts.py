"""Being built."""

from typing import Any


async def get(*_: Any, **__: Any) -> Any:
    raise NotImplementedError


async def start(*_: Any, **__: Any) -> Any:
    raise NotImplementedError


async def stop(*_: Any, **__: Any) -> Any:
    raise NotImplementedError
