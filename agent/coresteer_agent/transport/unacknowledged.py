"""The samples that the backend has not acknowledged yet, as the frames that carry them."""

import zlib
from collections import deque

_FASTEST = 1


class ReplayBuffer:
    """Bounded by count and by bytes; the oldest go first. Sequence numbers in it follow one another.

    Frames are kept compressed: on a large machine that is a third of the memory, and thrice the outage that fits.
    Not locked: whoever shares it locks.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._frames: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._next_to_send = 1
        self.next_seq = 1

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def first_seq(self) -> int:
        """The oldest sample that can still be sent; the next one to come when there is none."""
        return self._frames[0][0] if self._frames else self.next_seq

    def append(self, seq: int, frame: bytes) -> bool:
        """Take the next sample in; whether an older one, not sent yet, had to go for it."""
        kept = zlib.compress(frame, _FASTEST)
        self._frames.append((seq, kept))
        self._bytes += len(kept)
        self.next_seq = seq + 1
        lost = False
        while len(self._frames) > 1 and (len(self._frames) > self._max_count or self._bytes > self._max_bytes):
            gone = self._drop_oldest()
            lost = lost or gone >= self._next_to_send
        return lost

    def acknowledge(self, seq: int) -> None:
        """Everything up to seq is on disk."""
        while self._frames and self._frames[0][0] <= seq:
            self._drop_oldest()

    def rewind(self) -> None:
        """Send everything in it again."""
        self._next_to_send = self.first_seq

    def next_frame(self) -> bytes | None:
        """The next frame to send, None when all are sent."""
        self._next_to_send = max(self._next_to_send, self.first_seq)
        at = self._next_to_send - self.first_seq
        if at >= len(self._frames):
            return None
        self._next_to_send += 1
        return zlib.decompress(self._frames[at][1])

    def _drop_oldest(self) -> int:
        seq, frame = self._frames.popleft()
        self._bytes -= len(frame)
        return seq
