"""Buffer of encoded messages that the backend has not acknowledged yet."""

from collections import deque
from collections.abc import Callable, Iterable


class UnacknowledgedBuffer:
    """A queue of frames with consecutive numbers, limited in numbers and bytes; drops the oldest first.

    A frame may have several numbers, as a block of samples has. Not thread-safe; callers that share it lock it.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._frames: deque[tuple[int, int, bytes | None]] = deque()
        self._bytes = 0
        self._sent = 0  # of the frames, from the oldest on
        self.next_seq = 1

    def __len__(self) -> int:
        return self.next_seq - self.first_seq

    @property
    def first_seq(self) -> int:
        """Return the first number of the oldest frame, or the next one to be appended if the buffer is empty."""
        return self._frames[0][0] if self._frames else self.next_seq

    @property
    def unsent(self) -> int:
        """Return how many frames next_frame() has not returned."""
        return len(self._frames) - self._sent

    def append(self, first: int, last: int, frame: bytes) -> bool:
        """Append a frame with its numbers; return whether an unsent older one was dropped for it."""
        self._frames.append((first, last, frame))
        self._bytes += len(frame)
        self.next_seq = last + 1
        lost = False
        while len(self._frames) > 1 and (len(self) > self._max_count or self._bytes > self._max_bytes):
            lost = lost or self._sent == 0
            self._drop_oldest()
        return lost

    def acknowledge(self, seq: int) -> None:
        """Remove the frames up to number seq, which the backend has stored."""
        while self._frames and self._frames[0][1] <= seq:
            self._drop_oldest()

    def reject(self, first: int, last: int) -> int:
        """Drop the content of frames within first to last, which are never sent again; return how many numbers had one.

        Their numbers stay until they are acknowledged, so that they are not taken for lost.
        """
        dropped = 0
        for at, (begin, end, frame) in enumerate(self._frames):
            if frame is not None and first <= begin and end <= last:
                self._frames[at] = (begin, end, None)
                self._bytes -= len(frame)
                dropped += end - begin + 1
        return dropped

    def replace_frames(self, replace: Callable[[bytes], Iterable[tuple[int, int, bytes]]]) -> None:
        """Replace each frame that has several numbers by others with the same numbers, and make all of them unsent."""
        frames, next_seq = self._frames, self.next_seq
        self._frames, self._bytes, self._sent = deque(), 0, 0
        for first, last, frame in frames:
            if frame is None or first == last:
                self._frames.append((first, last, frame))
                self._bytes += len(frame or b"")
            else:
                for each in replace(frame):
                    self.append(*each)
        self.next_seq = next_seq

    def rewind(self) -> None:
        """Make next_frame() start again with the oldest frame, after a reconnect."""
        self._sent = 0

    def next_frame(self) -> bytes | None:
        """Return the next frame to send, None if all are sent."""
        while self._sent < len(self._frames):
            self._sent += 1
            if (frame := self._frames[self._sent - 1][2]) is not None:
                return frame
        return None

    def _drop_oldest(self) -> None:
        _, _, frame = self._frames.popleft()
        self._bytes -= len(frame or b"")
        self._sent = max(0, self._sent - 1)
