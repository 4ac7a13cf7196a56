"""Compression of arrays of numbers: byte planes, then zstd. Pure."""

import threading
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import zstandard

U8: TypeAlias = npt.NDArray[np.uint8]
U32: TypeAlias = npt.NDArray[np.uint32]
I64: TypeAlias = npt.NDArray[np.int64]
U64: TypeAlias = npt.NDArray[np.uint64]
F64: TypeAlias = npt.NDArray[np.float64]

_MAX_COLUMN_BYTES = 1 << 30


class _OfThread(threading.local):
    """zstd's contexts, which no two threads may use at the same time."""

    def __init__(self) -> None:
        self.compressor = zstandard.ZstdCompressor(level=1, write_content_size=True, write_checksum=False)
        self.decompressor = zstandard.ZstdDecompressor()


_of_thread = _OfThread()


def compress(data: bytes) -> bytes:
    """Return data as a compressed zstd frame of level 1."""
    # copied, because behind its bytes the result keeps the memory of the largest possible one
    return bytes(memoryview(_of_thread.compressor.compress(data)))


def decompress(data: bytes) -> bytes:
    """Return the data of a zstd frame made by compress. Raises ZstdError for other bytes or more than 1 GiB."""
    return _of_thread.decompressor.decompress(data, max_output_size=_MAX_COLUMN_BYTES)


def to_byte_planes(values: npt.NDArray[np.uint32] | npt.NDArray[np.uint64]) -> bytes:
    """Return numbers as byte planes: all lowest bytes, then all second ones and so on.

    The highest planes are omitted if they are all zero.
    """
    flat = np.ascontiguousarray(values).reshape(-1)
    if not flat.size:
        return b""
    used = (int(flat.max()).bit_length() + 7) // 8
    return flat.view(np.uint8).reshape(-1, flat.itemsize)[:, :used].T.tobytes()


def u32_from_planes(planes: bytes, size: int) -> U32:
    """Return the u32 numbers that to_byte_planes() packed. size: how many they are."""
    return _joined(planes, size, 4).view("<u4")


def u64_from_planes(planes: bytes, size: int) -> U64:
    """Return the u64 numbers that to_byte_planes() packed. size: how many they are."""
    return _joined(planes, size, 8).view("<u8")


def _joined(planes: bytes, size: int, width: int) -> U8:
    joined = np.zeros((size, width), np.uint8)
    for row, plane in enumerate(np.frombuffer(planes, np.uint8).reshape(-1, max(1, size))):
        joined[:, row] = plane
    return joined.reshape(-1)
