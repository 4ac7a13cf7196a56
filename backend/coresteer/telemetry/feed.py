"""What one node sent and is not stored yet."""

from collections import deque
from dataclasses import dataclass, field

from coresteer.telemetry.chunks import MAX_CELLS, start_ms
from coresteer_core.node.rates import Rates

_MOST_SAMPLES = 1200


@dataclass
class Batch:
    """Consecutive samples of one stream that become one chunk. size: bytes they came in."""

    stream: str
    samples: list[Rates] = field(default_factory=list)
    size: int = 0
    cells: int = 0
    start_ms: int = 0

    def takes(self, rates: Rates, span_ms: int) -> bool:
        """Whether rates may join: same CPUs, within span_ms of the start, and not too many cells or samples."""
        if not self.samples:
            return True
        cells = self.cells + len(rates.irq_ids or b"") // 4
        return (
            rates.cpus == self.samples[0].cpus
            and 0 <= start_ms(rates) - self.start_ms < span_ms
            and len(self.samples) < _MOST_SAMPLES
            and cells * (len(self.samples) + 1) <= MAX_CELLS
        )

    def add(self, rates: Rates, size: int) -> None:
        """Append."""
        if not self.samples:
            self.start_ms = start_ms(rates)
        self.samples.append(rates)
        self.cells += len(rates.irq_ids or b"") // 4
        self.size += size


@dataclass
class Feed:
    """One node's way into the database.

    last_seq: the last sample taken; acked_seq: the last one stored; both of the present stream. waiting: batches
    that are full, oldest first; they stay until they are committed. seal_at: when the open one is due (monotonic).
    generation: grows before and after each commit, so that a reader can tell whether one came between.
    holding: samples are dropped until what waits is stored; then the connection is closed and the agent replays.
    """

    node_id: int
    stream: str
    acked_seq: int
    last_seq: int
    seal_at: float
    open: Batch
    waiting: deque[Batch] = field(default_factory=deque)
    generation: int = 0
    holding: bool = False

    def seal(self) -> None:
        """Put the open batch among those that wait."""
        if self.open.samples:
            self.waiting.append(self.open)
            self.open = Batch(self.stream)

    def unstored(self) -> list[Rates]:
        """Everything that is not committed yet, oldest first."""
        return [rates for batch in (*self.waiting, self.open) for rates in batch.samples]

    @property
    def size(self) -> int:
        """Bytes that it holds."""
        return self.open.size + sum(batch.size for batch in self.waiting)
