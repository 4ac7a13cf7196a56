"""The keys with which an agent may connect: the present one, the one before it, and one from enrolling again."""

import logging
from collections.abc import Callable

from msgspec.structs import replace

from coresteer_agent.transport.enrol import NodeKey

log = logging.getLogger("coresteer.link")


class KeyRing:
    """Keys of this node at one backend.

    enrol_again: returns another key when the backend does not accept the present one; raises EnrolError. store: writes
    a key to disk; raises OSError.
    """

    def __init__(
        self,
        key: NodeKey,
        enrol_again: Callable[[], NodeKey] | None = None,
        store: Callable[[NodeKey], None] | None = None,
    ) -> None:
        self.key = key
        self._enrol_again = enrol_again
        self._store = store
        self._uses_previous = False

    @property
    def can_store(self) -> bool:
        """Return whether a new key of the backend can be stored."""
        return self._store is not None

    def replace(self, text: str) -> bool:
        """Store a new key and use it from now on; return False, and stay with the present one, if that fails."""
        key = replace(self.key, key=text, previous=self.key.key)
        try:
            if self._store is None:
                return False
            self._store(key)
        except OSError as error:
            log.error("This node's new key cannot be stored, so the present one stays in use: %s.", error)
            return False
        self.key, self._uses_previous = key, False
        return True

    def next_after_refusal(self) -> bool:
        """Take another key after the backend refused the present one; return False if all were tried.

        The previous one first, because a backend that was restored from a backup may know no other. Raises EnrolError.
        """
        if self.key.previous is not None:
            self.key = replace(self.key, key=self.key.previous, previous=self.key.key)
            self._uses_previous = not self._uses_previous
            if self._uses_previous:
                return True
        if self._enrol_again is None:
            return False
        self.key = self._enrol_again()
        log.info("This node was enrolled again as node %d, %s.", self.key.node_id, self.key.name)
        return True
