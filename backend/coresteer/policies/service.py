"""Being built."""

from typing import Any


async def create(*_: Any, **__: Any) -> Any:
    raise NotImplementedError


async def create_version(*_: Any, **__: Any) -> Any:
    raise NotImplementedError


async def delete(*_: Any, **__: Any) -> Any:
    raise NotImplementedError


async def diff(*_: Any, **__: Any) -> Any:
    raise NotImplementedError


async def every(*_: Any, **__: Any) -> Any:
    raise NotImplementedError


async def get(*_: Any, **__: Any) -> Any:
    raise NotImplementedError


async def set_enabled(*_: Any, **__: Any) -> Any:
    raise NotImplementedError


async def versions(*_: Any, **__: Any) -> Any:
    raise NotImplementedError
