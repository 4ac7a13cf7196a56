"""Agents' keys: which are in use, and new ones in place of those that are old."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Protocol

from coresteer.audit.service import record
from coresteer.background import cancel, repeat
from coresteer.db import Database
from coresteer.nodes import repository
from coresteer.nodes.service import hash_key, new_key

log = logging.getLogger("coresteer.nodes")

NOTE_EVERY_S = 3600.0
"""How often a connection says that its key is in use."""
_AT_ONCE = 500
_PAUSE_S = 0.2


class KeyHolder(Protocol):
    """Interface of a connection to an agent that holds a key. rotates_keys: the agent can store a new one."""

    @property
    def key_hash(self) -> bytes:
        """Return the hash of the key that the connection stands for."""

    @property
    def rotates_keys(self) -> bool:
        """Return whether the agent can store a new key."""

    def offer_key(self, key: str) -> None:
        """Send the agent a new key to store."""


class KeyRotation:
    """Notes the use of connected agents' keys, and sends those whose key is old a new one.

    Both keys are valid until the agent has stored the new one, and the old one for repository.OVERLAP from then on.
    """

    def __init__(self, database: Database, rotation: timedelta) -> None:
        self._database = database
        self._rotation = rotation
        self._used: dict[bytes, KeyHolder] = {}
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start noting uses and rotating keys."""
        failure = "Noting the use of agents' keys failed; retrying."
        self._tasks = [asyncio.create_task(repeat(self._work, _PAUSE_S, log, failure))]

    async def stop(self) -> None:
        """Stop rotating keys; what was not noted is noted when the agents connect again."""
        await cancel(self._tasks)

    def note_use(self, holder: KeyHolder) -> None:
        """Note that an agent is connected with its key, and rotate the key if it is old."""
        self._used[holder.key_hash] = holder
        self._wake.set()

    async def _work(self) -> None:
        if not self._used:
            self._wake.clear()
            await self._wake.wait()
        some = {key: self._used.pop(key) for key in list(self._used)[:_AT_ONCE]}
        try:
            await self.note(some)
        except Exception:
            self._used = some | self._used
            raise

    async def note(self, used: Mapping[bytes, KeyHolder]) -> None:
        """Note the use of keys, by their hash, now, and rotate those that are due."""
        async with self._database.session() as session:
            noted = await repository.note_key_use(session, list(used), self._rotation)
            for key in noted:
                if key.is_new:
                    record(
                        session,
                        actor="coresteer",
                        action="node.rotate_key",
                        target=key.name,
                        node_id=key.node_id,
                        detail={"previous_key_valid_for_hours": repository.OVERLAP / timedelta(hours=1)},
                    )
        for key in noted:
            if key.is_due and used[key.hash].rotates_keys:
                await self._rotate(key.hash, used[key.hash])

    async def _rotate(self, presented: bytes, holder: KeyHolder) -> None:
        key = new_key()
        async with self._database.session() as session:
            is_replaced = await repository.replace_key(session, presented, hash_key(key))
        if is_replaced:
            holder.offer_key(key)
