"""Buffer of encoded messages that the backend has not acknowledged yet."""

import zlib
from collections import deque

_FASTEST = 1


class UnacknowledgedBuffer:
    """A queue of frames with consecutive numbers, limited in count and bytes; drops the oldest first.

    Frames are compressed: on a large machine that takes a third of the memory, so an outage may be three times as long.
    Not thread-safe; callers that share it lock it.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._frames: deque[tuple[int, bytes | None]] = deque()
        self._bytes = 0
        self._next_to_send = 1
        self.next_seq = 1

    def __len__(self) -> int:
        return len(self._frames)

    @property
    def first_seq(self) -> int:
        """Return the number of the oldest frame, or of the next one to be appended if the buffer is empty."""
        return self._frames[0][0] if self._frames else self.next_seq

    def append(self, seq: int, frame: bytes) -> bool:
        """Append a frame with its number; return whether an unsent older one was dropped for it."""
        compressed = zlib.compress(frame, _FASTEST)
        self._frames.append((seq, compressed))
        self._bytes += len(compressed)
        self.next_seq = seq + 1
        lost = False
        while len(self._frames) > 1 and (len(self._frames) > self._max_count or self._bytes > self._max_bytes):
            dropped = self._drop_oldest()
            lost = lost or dropped >= self._next_to_send
        return lost

    def acknowledge(self, seq: int) -> None:
        """Remove the frames up to number seq, which the backend has stored."""
        while self._frames and self._frames[0][0] <= seq:
            self._drop_oldest()

    def reject(self, first: int, last: int) -> int:
        """Drop the content of frames first to last, which are never sent again; return how many had one.

        Their numbers stay until they are acknowledged, so that they are not taken for lost.
        """
        dropped = 0
        start = self.first_seq
        for at in range(max(first - start, 0), min(last - start + 1, len(self._frames))):
            seq, frame = self._frames[at]
            if frame is not None:
                self._frames[at] = (seq, None)
                self._bytes -= len(frame)
                dropped += 1
        return dropped

    def rewind(self) -> None:
        """Make next_frame() start again with the oldest frame, after a reconnect."""
        self._next_to_send = self.first_seq

    def next_frame(self) -> bytes | None:
        """Return the next frame to send, None if all are sent."""
        self._next_to_send = max(self._next_to_send, self.first_seq)
        while (at := self._next_to_send - self.first_seq) < len(self._frames):
            self._next_to_send += 1
            if (frame := self._frames[at][1]) is not None:
                return zlib.decompress(frame)
        return None

    def _drop_oldest(self) -> int:
        seq, frame = self._frames.popleft()
        self._bytes -= len(frame or b"")
        return seq
