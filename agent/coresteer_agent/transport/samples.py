"""Samples on their way to the backend: in blocks, which are sent until acknowledged, and for the present.

A backend that knows no blocks gets each sample by itself.
"""

import random

from coresteer_agent.transport.unacknowledged import UnacknowledgedBuffer
from coresteer_core.node.rates import Rates
from coresteer_core.node.rates_block import (
    MAX_BLOCK_CELLS,
    MAX_BLOCK_ROWS,
    MAX_BLOCK_SAMPLES,
    MAX_BLOCK_SPAN_MS,
    compress_block,
    decompress_block,
    pack_block,
    unpack_block,
)
from coresteer_core.node.summary import summarize
from coresteer_core.protocol import (
    BLOCK_S,
    SUMMARY_S,
    ColumnsMessage,
    Detail,
    RatesMessage,
    SummaryMessage,
    decode_to_backend,
    encode,
)

_MAX_RAW_BYTES = 2 * 1024 * 1024
"""Of the samples of a block in memory, half of what a block may have."""


def block_message(samples: list[Rates]) -> ColumnsMessage:
    """Return consecutive samples (at least one) of one number of CPUs as a message."""
    return ColumnsMessage(samples[0].seq, samples[-1].seq, compress_block(pack_block(samples)))


class BlockCollector:
    """Collects samples until they are a block. first_block_s, block_s: how long the samples of a block last."""

    def __init__(self, first_block_s: float = BLOCK_S) -> None:
        self.samples: list[Rates] = []
        self.block_s = BLOCK_S
        self._due_s = first_block_s
        self._duration_s = 0.0
        self._cells = self._bytes = 0

    def accepts(self, rates: Rates) -> bool:
        """Return whether a sample fits into the block: the same CPUs, shortly after the others, within the bounds."""
        if not self.samples:
            return True
        first, count = self.samples[0], len(self.samples) + 1
        return (
            rates.cpus == first.cpus
            and 0 <= rates.time_ms - first.time_ms <= MAX_BLOCK_SPAN_MS
            and count <= MAX_BLOCK_SAMPLES
            and count * max(rates.cpus, len(rates.netdevs or ())) <= MAX_BLOCK_ROWS
            and count * (self._cells + _cells(rates)) <= MAX_BLOCK_CELLS
            and self._bytes + _size(rates) <= _MAX_RAW_BYTES
        )

    def add(self, rates: Rates) -> bool:
        """Append a sample that is accepted; return whether the block is complete."""
        self.samples.append(rates)
        self._duration_s += rates.duration_s
        self._cells += _cells(rates)
        self._bytes += _size(rates)
        return self._duration_s > min(self._due_s, self.block_s) - rates.duration_s / 2

    def take(self) -> list[Rates]:
        """Return the samples of the block, and begin the next one."""
        taken, self.samples = self.samples, []
        self._due_s, self._duration_s, self._cells, self._bytes = self.block_s, 0.0, 0, 0
        return taken


def _cells(rates: Rates) -> int:
    return len(rates.irq_ids or b"") // 4


def _size(rates: Rates) -> int:
    return 10 * _cells(rates) + 31 * rates.cpus + 80 * len(rates.netdevs or ())


class OutgoingSamples:
    """Samples that are to be sent. Not thread-safe; the link locks it.

    max_count: of samples that are not acknowledged; max_bytes: of their blocks.
    """

    def __init__(self, max_count: int, max_bytes: int) -> None:
        # a fleet that was started together does not send its blocks together
        self._collector = BlockCollector(random.uniform(0, BLOCK_S))  # noqa: S311 - no secret
        self._buffer = UnacknowledgedBuffer(max_count, max_bytes)
        self._columns = True
        self._newest: tuple[Rates, frozenset[str] | None] | None = None
        self._summary_due_s = 0.0
        self._summary: bytes | None = None
        self._live: bytes | None = None
        self._is_connected = False
        self._detail = Detail.BLOCKS

    def __len__(self) -> int:
        return len(self._buffer) + len(self._collector.samples)

    @property
    def sends_on_demand(self) -> bool:
        """Return whether the backend asks for what somebody wants to see, and does not now."""
        return self._columns and self._detail is not Detail.SAMPLES

    @property
    def sends_blocks_only(self) -> bool:
        """Return whether the backend needs nothing of the present beyond what goes with each block."""
        return self._columns and self._detail is Detail.BLOCKS

    @property
    def has_frame(self) -> bool:
        """Return whether next_frame() has something to send."""
        return self._summary is not None or self._live is not None or self._buffer.unsent > 0

    @property
    def first_seq(self) -> int:
        """Return the number of the oldest sample that is not acknowledged, or of the next one."""
        return self._buffer.first_seq

    def add(self, rates: Rates, physical: frozenset[str] | None) -> bool:
        """Add a sample; return whether an unsent older one was dropped for it. physical: as in summarize()."""
        is_full = not self._collector.accepts(rates)
        lost = self.seal() if is_full else False
        self._newest = rates, physical
        is_complete = self._collector.add(rates)
        if is_complete or not self._columns:
            lost = self.seal() or lost
        if self._is_connected and self._columns:
            self._summary_due_s -= rates.duration_s
            if (
                is_complete
                or is_full
                or self._summary_due_s < rates.duration_s / 2
                or self._detail is not Detail.BLOCKS
            ):
                self._summary_due_s = SUMMARY_S
                self._summary = encode(SummaryMessage(summarize(rates, physical)))
            self._live = encode(RatesMessage(rates)) if self._detail is Detail.SAMPLES else None
        return lost

    def seal(self) -> bool:
        """Make the collected samples a block to be sent; return whether an unsent older one was dropped for it."""
        if not (samples := self._collector.take()):
            return False
        return self._buffer.append(samples[0].seq, samples[-1].seq, encode(block_message(samples)))

    def watch(self, detail: Detail) -> None:
        """Send this much of the present from now on, beginning with the newest interval."""
        self._detail = detail
        if self._newest is None or detail is Detail.BLOCKS:
            return
        rates, physical = self._newest
        self._summary = encode(SummaryMessage(summarize(rates, physical)))
        if detail is Detail.SAMPLES:
            self.seal()
            self._live = encode(RatesMessage(rates))

    def begin(self, acked_seq: int, *, columns: bool, block_s: float = BLOCK_S) -> None:
        """Begin a connection to a backend that has stored samples up to acked_seq.

        columns: whether it knows blocks; block_s: how long the samples of one shall last.
        """
        self.end()
        self._collector.block_s = block_s
        self._is_connected, self._columns, self._summary_due_s = True, columns, 0.0
        self._buffer.acknowledge(acked_seq)
        self._buffer.rewind()
        if not columns:
            self.seal()
            self._buffer.replace_frames(_single_blocks)

    def end(self) -> None:
        """End a connection."""
        self._is_connected, self._detail = False, Detail.BLOCKS
        self._summary = self._live = None

    def acknowledge(self, seq: int) -> None:
        """Remove the samples up to number seq, which the backend has stored."""
        self._buffer.acknowledge(seq)

    def reject(self, first: int, last: int) -> int:
        """Drop samples that the backend will never store; return how many."""
        return self._buffer.reject(first, last)

    def next_frame(self) -> bytes | None:
        """Return the next frame to send, None if all are sent."""
        if self._summary is not None:
            summary, self._summary = self._summary, None
            return summary
        # the block with the samples before it comes first, unless there are many to send again
        if self._live is not None and self._buffer.unsent != 1:
            live, self._live = self._live, None
            return live
        frame = self._buffer.next_frame()
        return frame if frame is None or self._columns else encode(RatesMessage(_samples(frame)[0]))


def _single_blocks(frame: bytes) -> list[tuple[int, int, bytes]]:
    return [(rates.seq, rates.seq, encode(block_message([rates]))) for rates in _samples(frame)]


def _samples(frame: bytes) -> list[Rates]:
    """Return the samples of an encoded block_message()."""
    message = decode_to_backend(frame)
    assert isinstance(message, ColumnsMessage)  # noqa: S101 - nothing else is buffered
    return unpack_block(decompress_block(message.packed)[0])
