"""Being built."""

from typing import Any


async def flows(*_: Any, **__: Any) -> Any:
    raise NotImplementedError


async def preview(*_: Any, **__: Any) -> Any:
    raise NotImplementedError
