"""Buffer of one node's samples that are not stored yet."""

from collections import deque
from dataclasses import dataclass, field

from coresteer.telemetry.chunks import MAX_CELLS, encode, start_ms
from coresteer.telemetry.repository import EncodedChunk
from coresteer.telemetry.rollup import minute_rollups
from coresteer_core.node.rates import Rates

_MOST_SAMPLES = 1200
_MAX_BYTES = 2 * 1024**2
"""Of a batch, which is then stored early: 512 CPUs and 2,000 interrupts have as much in a minute."""


@dataclass
class Batch:
    """Consecutive samples of one stream that become one chunk.

    size: in bytes on the wire. rejected: invalid samples before or between them. is_admitted: whether the node's quota
    has room for the chunk, None before it is asked.
    """

    stream: str
    samples: list[Rates] = field(default_factory=list)
    size: int = 0
    cells: int = 0
    start_ms: int = 0
    rejected: int = 0
    is_admitted: bool | None = None

    def accepts(self, rates: Rates, span_ms: int) -> bool:
        """Return whether a sample fits into the batch.

        It must have the same CPUs, begin within span_ms of the start, and keep the bounds of bytes, cells and samples.
        """
        if not self.samples:
            return True
        cells = self.cells + len(rates.irq_ids or b"") // 4
        return (
            rates.cpus == self.samples[0].cpus
            and 0 <= start_ms(rates) - self.start_ms < span_ms
            and len(self.samples) < _MOST_SAMPLES
            and self.size < _MAX_BYTES
            and cells * (len(self.samples) + 1) <= MAX_CELLS
        )

    def add(self, rates: Rates, size: int) -> None:
        """Append a sample of size bytes to the batch."""
        if not self.samples:
            self.start_ms = start_ms(rates)
        self.samples.append(rates)
        self.cells += len(rates.irq_ids or b"") // 4
        self.size += size


@dataclass
class SampleBuffer:
    """Buffer of one node's samples until they are stored.

    last_seq: the last sample buffered; acked_seq: the last one stored, rejected: how many up to it are not; all of the
    current stream. waiting: sealed batches, oldest first, until they are committed. seal_at: when the open batch is
    due, monotonic s. generation: incremented before and after each commit, so that readers detect one. rejecting: all
    are ignored until the waiting batches are stored; then the connection is closed and the agent sends them again.
    """

    node_id: int
    stream: str
    acked_seq: int
    last_seq: int
    seal_at: float
    open: Batch
    rejected: int = 0
    waiting: deque[Batch] = field(default_factory=deque)
    generation: int = 0
    rejecting: bool = False

    def seal(self) -> None:
        """Move the open batch to those that wait to be stored."""
        if self.open.samples:
            self.waiting.append(self.open)
            self.open = Batch(self.stream)

    def unstored(self) -> list[Rates]:
        """Return all samples of the node that are not committed yet, oldest first."""
        return [rates for batch in (*self.waiting, self.open) for rates in batch.samples]

    @property
    def size(self) -> int:
        """Return the size of all buffered batches in bytes."""
        return self.open.size + sum(batch.size for batch in self.waiting)


def encode_batch(node_id: int, batch: Batch) -> EncodedChunk:
    """Return a sealed batch as a chunk with its roll-ups."""
    chunk, minutes = encode(batch.samples), minute_rollups(batch.samples)
    return EncodedChunk(node_id, batch.stream, chunk, minutes, batch.rejected, microsecond=chunk.first_seq % 1000)
