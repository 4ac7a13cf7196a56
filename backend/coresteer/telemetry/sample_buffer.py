"""Buffer of one node's samples that are not stored yet."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeAlias

from msgspec.structs import replace

from coresteer.telemetry import sample_columns
from coresteer.telemetry.chunks import MAX_CELLS, Chunk, encode_columns, start_ms
from coresteer.telemetry.repository import EncodedChunk
from coresteer.telemetry.rollup import minutes_of_columns
from coresteer.telemetry.sample_columns import BlockError, SampleColumns
from coresteer_core.node.rates import Rates
from coresteer_core.node.rates_block import (
    MAX_BLOCK_ROWS,
    MAX_BLOCK_SAMPLES,
    MAX_BLOCK_SPAN_MS,
    compress_block,
    decompress_block,
    pack_block,
    unpack_block,
)

_MOST_SAMPLES = 1200
_MAX_BYTES = 2 * 1024**2
"""Of a batch before compression, which is then stored early: 512 CPUs and 2,000 interrupts have as much in a minute."""
_BLOCK_BYTES = 400
"""Of a block in memory besides its compressed columns."""
_MAX_LIVE_BYTES = 8 * 1024**2
"""Of the samples of one node that a block is still to bring: those of 8,192 CPUs have 0.8 MB each."""


@dataclass(frozen=True, slots=True)
class SampleBlock:
    """A validated block as received: compressed, because most wait half a minute to be stored.

    unpacked: its bytes before compression, or those of its arrays if they take more. cells: its distinct interrupt
    cells. netdevs: their names. moved_ms: what is added to its times, because the node's clock is wrong.
    """

    first_seq: int
    last_seq: int
    cpus: int
    cells: int
    netdevs: tuple[str, ...]
    start_ms: int
    end_ms: int
    packed: bytes
    unpacked: int
    moved_ms: int = 0

    @property
    def samples(self) -> int:
        """Return the number of samples."""
        return self.last_seq - self.first_seq + 1

    @property
    def size(self) -> int:
        """Return the bytes that the block takes in memory."""
        return len(self.packed) + _BLOCK_BYTES

    def columns(self) -> SampleColumns:
        """Return the block's samples as arrays."""
        return _moved(sample_columns.read_block(decompress_block(self.packed)[0], is_valid=True), self.moved_ms)

    def rates(self) -> list[Rates]:
        """Return the block's samples, oldest first."""
        samples = unpack_block(decompress_block(self.packed)[0])
        if self.moved_ms == 0:
            return samples
        return [replace(rates, time_ms=rates.time_ms + self.moved_ms) for rates in samples]

    def after(self, seq: int) -> "SampleBlock":
        """Return the block without its samples up to a number, which are already stored."""
        rest = [rates for rates in self.rates() if rates.seq > seq]
        return read_block(rest[0].seq, self.last_seq, compress_block(pack_block(rest)), 0)[0]


def read_block(first_seq: int, last_seq: int, packed: bytes, moved_ms: int) -> tuple[SampleBlock, SampleColumns]:
    """Return a block that an agent sent, after validation, and its columns, which take ten times its memory.

    first_seq, last_seq: of its samples. moved_ms: what is added to its times. Raises BlockError.
    """
    if not 0 < last_seq - first_seq + 1 <= MAX_BLOCK_SAMPLES:
        raise BlockError(f"samples {first_seq} to {last_seq} are not 1 to {MAX_BLOCK_SAMPLES}.")
    try:
        block, unpacked = decompress_block(packed)
    except ValueError as error:
        raise BlockError(str(error)) from None
    columns = sample_columns.read_block(block)
    if wrong := sample_columns.invalid_values(columns):
        raise BlockError(wrong)
    if (int(columns.seqs[0]), int(columns.seqs[-1]), len(columns.seqs)) != (
        first_seq, last_seq, last_seq - first_seq + 1
    ):  # fmt: skip
        raise BlockError(f"its samples are not {first_seq} to {last_seq}.")
    start, end = int(columns.times_ms.min()), int(columns.times_ms.max())
    if end - start > MAX_BLOCK_SPAN_MS:
        raise BlockError(f"its times span {(end - start) / 1000:g} s, more than {MAX_BLOCK_SPAN_MS / 1000:g} s.")
    read = SampleBlock(
        first_seq,
        last_seq,
        block.cpus,
        len(columns.cells),
        tuple(columns.netdevs),
        int(columns.starts_ms.min()) + moved_ms,
        end + moved_ms,
        packed,
        max(unpacked, columns.nbytes),
        moved_ms,
    )
    return read, _moved(columns, moved_ms)


def _moved(columns: SampleColumns, by_ms: int) -> SampleColumns:
    return columns if by_ms == 0 else columns.moved(by_ms)


Part: TypeAlias = Rates | SampleBlock


@dataclass
class Batch:
    """Consecutive samples of one stream that become one chunk.

    parts: blocks, or samples that arrived one by one. samples: their number. size: in bytes in memory; unpacked: as
    in SampleBlock. netdevs: a bound of how many different ones the samples have; last_netdevs: those of the last part.
    rejected: invalid samples before or between them. is_admitted: whether the node's quota has room for
    the chunk, None before it is asked. encoded: the chunk, of a batch that was encoded when it was complete.
    """

    stream: str
    parts: list[Part] = field(default_factory=list)
    samples: int = 0
    size: int = 0
    unpacked: int = 0
    cells: int = 0
    netdevs: int = 0
    last_netdevs: tuple[str, ...] = ()
    start_ms: int = 0
    end_ms: int = 0
    rejected: int = 0
    is_admitted: bool | None = None
    encoded: EncodedChunk | None = field(default=None, compare=False)

    def accepts(self, part: Part, span_ms: int) -> bool:
        """Return whether a sample or block fits into the batch.

        It must have the same CPUs, begin within span_ms of the start, and keep the bounds of memory.
        """
        if not self.parts:
            return True
        cells, count, start = self.cells + _cells(part), self.samples + _count(part), _start_ms(part)
        rows = max(part.cpus, self.netdevs + self._new_netdevs(_netdevs(part)))
        return (
            part.cpus == self.parts[0].cpus
            and 0 <= start - self.start_ms < span_ms
            and self.samples < _MOST_SAMPLES
            and self.unpacked < _MAX_BYTES
            and cells * count <= MAX_CELLS
            and rows * count <= MAX_BLOCK_ROWS
        )

    def is_complete(self, last: SampleBlock, span_ms: int) -> bool:
        """Return whether another block as long as the last one would reach far beyond span_ms."""
        return self.end_ms - self.start_ms > span_ms - (last.end_ms - last.start_ms) / 2

    def add(self, part: Part, size: int) -> None:
        """Append a sample or block of size bytes to the batch."""
        if not self.parts:
            self.start_ms = _start_ms(part)
        self.parts.append(part)
        self.samples += _count(part)
        self.cells += _cells(part)
        self.netdevs, self.last_netdevs = self.netdevs + self._new_netdevs(names := _netdevs(part)), names
        self.size += size
        self.unpacked += part.unpacked if isinstance(part, SampleBlock) else size
        self.end_ms = part.end_ms if isinstance(part, SampleBlock) else part.time_ms

    def _new_netdevs(self, names: tuple[str, ...]) -> int:
        return 0 if names == self.last_netdevs else len(names)

    def columns(self, last: SampleColumns | None = None) -> SampleColumns:
        """Return the samples as arrays. last: those of the last part, if they are decoded."""
        parts = self.parts if last is None else self.parts[:-1]
        decoded = [each for is_block, some in groupby(parts, _is_block) for each in _columns(is_block, [*some])]
        return sample_columns.join(decoded if last is None else [*decoded, last])

    def rates(self) -> list[Rates]:
        """Return the samples, oldest first."""
        return [each for part in self.parts for each in (part.rates() if isinstance(part, SampleBlock) else [part])]


def _is_block(part: Part) -> bool:
    return isinstance(part, SampleBlock)


def _columns(is_block: bool, parts: Sequence[Part]) -> list[SampleColumns]:
    if is_block:
        return [part.columns() for part in parts if isinstance(part, SampleBlock)]
    return [sample_columns.columns_of([part for part in parts if isinstance(part, Rates)])]


def _start_ms(part: Part) -> int:
    return part.start_ms if isinstance(part, SampleBlock) else start_ms(part)


def _cells(part: Part) -> int:
    return part.cells if isinstance(part, SampleBlock) else len(part.irq_ids or b"") // 4


def _netdevs(part: Part) -> tuple[str, ...]:
    return part.netdevs if isinstance(part, SampleBlock) else tuple(netdev.name for netdev in part.netdevs or ())


def _count(part: Part) -> int:
    return part.samples if isinstance(part, SampleBlock) else 1


@dataclass
class SampleBuffer:
    """Buffer of one node's samples until they are stored.

    last_seq: the last sample buffered; acked_seq: the last one stored, rejected: how many up to it are not; all of the
    current stream. waiting: sealed batches, oldest first, until they are committed. seal_at: when the open batch is
    due, monotonic s. generation: incremented before and after each commit, so that readers detect one. rejecting: all
    are ignored until the waiting batches are stored; then the connection is closed and the agent sends them again.
    live: samples for the present that a block is still to bring.
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
    live: deque[Rates] = field(default_factory=lambda: deque(maxlen=MAX_BLOCK_SAMPLES))

    def seal(self) -> None:
        """Move the open batch to those that wait to be stored."""
        if self.open.parts:
            self.waiting.append(self.open)
            self.open = Batch(self.stream)

    def add_live(self, rates: Rates, size: int) -> None:
        """Keep a sample of size bytes until a block brings it."""
        self.live.append(rates)
        while len(self.live) > 1 and len(self.live) * size > _MAX_LIVE_BYTES:
            self.live.popleft()

    def drop_live(self) -> None:
        """Forget the live samples that blocks have brought."""
        while self.live and self.live[0].seq <= self.last_seq:
            self.live.popleft()

    def unstored(self) -> list[Rates]:
        """Return all samples of the node that are not committed yet, oldest first."""
        self.drop_live()
        return [rates for batch in (*self.waiting, self.open) for rates in batch.rates()] + list(self.live)

    @property
    def is_empty(self) -> bool:
        """Return whether no sample waits to be stored."""
        return not self.waiting and not self.open.parts

    @property
    def size(self) -> int:
        """Return the size of all buffered batches in bytes."""
        return self.open.size + sum(batch.size for batch in self.waiting)


def encode_batch(node_id: int, batch: Batch, last: SampleColumns | None = None) -> EncodedChunk:
    """Return a complete batch as a chunk with its roll-ups. last: the columns of its last part, if they are decoded."""
    samples = batch.columns(last)
    chunk, minutes = encode_columns(samples), minutes_of_columns(samples)
    return EncodedChunk(node_id, batch.stream, chunk, minutes, batch.rejected, microsecond=chunk.first_seq % 1000)


def unencoded(node_id: int, batch: Batch, refusal: str) -> EncodedChunk:
    """Return a sealed batch as a chunk that is rejected, because it cannot be encoded."""
    first, last = batch.parts[0], batch.parts[-1]
    chunk = Chunk(
        first.first_seq if isinstance(first, SampleBlock) else first.seq,
        last.last_seq if isinstance(last, SampleBlock) else last.seq,
        batch.start_ms,
        batch.end_ms,
        batch.samples,
        first.cpus,
        scalars=b"",
        columns={},
    )
    return EncodedChunk(node_id, batch.stream, chunk, [], batch.rejected, refusal)
