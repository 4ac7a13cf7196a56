"""The key that an agent's connection presents: looked up, and looked up again whenever it changes."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import ExitStack

from coresteer.auth.trust import TrustWatch
from coresteer.background import cancel
from coresteer.gateway.batch_loader import BatchLoader
from coresteer.nodes.repository import AgentIdentity
from coresteer.telemetry.service import TRY_AGAIN_LATER
from coresteer_core.protocol import CloseCode

log = logging.getLogger("coresteer.nodes")

MAX_CONNECTIONS = 16
"""With one key, before Hello and while closing included; an agent that reconnects has two or three."""


class Refused(Exception):  # noqa: N818 - a reason for the peer, not an error here
    """The agent's connection must be closed with this code and reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class PresentedKey:
    """The key that a connection stands for. refuse: called once that is no longer valid, at any stage."""

    def __init__(
        self, agents: BatchLoader[bytes, AgentIdentity], trust: TrustWatch, refuse: Callable[[Refused], None]
    ) -> None:
        self.hash = b""
        self._agents = agents
        self._trust = trust
        self._refuse = refuse
        self._watching = ExitStack()
        self._is_doubted = False
        self._checks: list[asyncio.Task[None]] = []

    def watch(self, key_hash: bytes) -> None:
        """Stand for the key with this hash from now on, and check it again whenever it changes. Raises Refused."""
        if self._trust.watchers(key_hash) >= MAX_CONNECTIONS:
            raise Refused(TRY_AGAIN_LATER, f"This key has {MAX_CONNECTIONS} connections already.")
        self.hash = key_hash
        self._watching.close()
        self._watching.enter_context(self._trust.watch(key_hash, self._doubt))

    async def identify(self) -> AgentIdentity:
        """Return the node that the key belongs to. Raises Refused."""
        identity = await self._agents.get(self.hash)
        if identity is None:
            raise Refused(CloseCode.BAD_KEY, "This key is unknown or revoked; enrol this agent again.")
        if identity.expired:
            reason = f"This key expired unused. Run `coresteer readmit {identity.name}` and enrol again."
            raise Refused(CloseCode.BAD_KEY, reason)
        return identity

    async def close(self) -> None:
        """Stop checking the key."""
        self._watching.close()
        await cancel(self._checks)

    def _doubt(self) -> None:
        self._is_doubted = True
        if all(check.done() for check in self._checks):
            self._checks = [asyncio.create_task(self._check())]

    async def _check(self) -> None:
        while self._is_doubted:
            self._is_doubted = False
            try:
                await self.identify()
            except Refused as refused:
                self._refuse(refused)
            except Exception as error:  # the key is checked again once the database answers
                log.debug("An agent's key could not be checked: %r", error)
