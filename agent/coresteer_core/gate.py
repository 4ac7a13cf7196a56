"""Who of those that wait goes in next: the class with the lowest F, first come first served within it.

A state machine: what happened goes in, who is to be let in comes out. No I/O, no clock.
"""


class Gate:
    """slots: how many may be inside at once. Workers are numbers that the caller gives."""

    def __init__(self, classes: dict[str, tuple[float, int | None]], *, slots: int, window_s: float) -> None:
        """classes: target in percent and deadline in µs, by name, in order of precedence."""
        raise NotImplementedError

    def enter(self, worker: int, name: str, time_s: float) -> list[int]:
        """A worker asks. Returns who is let in now. Raises KeyError for a class that there is not."""
        raise NotImplementedError

    def leave(self, worker: int, time_s: float, *, ok: bool) -> list[int]:
        """A worker that was inside, or waited, is done. Returns who is let in now."""
        raise NotImplementedError
