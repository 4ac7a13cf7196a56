"""What is asked of the kernel for ntuple, byte for byte, and what its answers mean (struct ethtool_gfeatures)."""

import errno
import struct
from collections.abc import Iterator

import pytest

from coresteer_agent.linux import features

NAMES = [b"tx-scatter-gather", *[b"rx-gro"] * 32, b"rx-ntuple-filter", b"rx-hashing"]
BIT = 1 << NAMES.index(b"rx-ntuple-filter") % 32


class Kernel:
    """Answers the ioctls about features. available, active: bits of the second block. written: the last SFEATURES."""

    def __init__(self) -> None:
        self.available, self.active = BIT, 0
        self.names = NAMES
        self.written = b""

    def __call__(self, netdev: str, command: bytes) -> bytes:
        [number] = struct.unpack_from("=I", command)
        if number == 0x37:
            assert command == struct.pack("=IIQI", 0x37, 0, 1 << 4, 0)
            return struct.pack("=IIQI", 0x37, 0, 1 << 4, len(self.names))
        if number == 0x1B:
            assert command == struct.pack("=III", 0x1B, 4, len(self.names)).ljust(12 + 32 * len(self.names), b"\0")
            return command[:12] + b"".join(name.ljust(32, b"\0") for name in self.names)
        if number == 0x3A:
            assert command == struct.pack("=II", 0x3A, 2) + bytes(32)
            return command[:8] + struct.pack("=8I", 1, 1, 1, 0, self.available, 0, self.active, 0)
        assert number == 0x3B
        self.written = command
        return command


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    kernel = Kernel()
    monkeypatch.setattr(features, "ioctl", kernel)
    features._bit_of_names.cache_clear()
    yield kernel
    features._bit_of_names.cache_clear()


@pytest.mark.parametrize(
    ("available", "active", "value"),
    [(BIT, 0, "off"), (BIT, BIT, "on"), (0, 0, None), (0, BIT, None), (~BIT & 0xFFFF_FFFF, BIT, None)],
)
def test_ntuple_is_known_where_the_driver_does_not_have_it_fixed(
    kernel: Kernel, available: int, active: int, value: str | None
) -> None:
    kernel.available, kernel.active = available, active
    assert features.read_ntuple("eth0") == value


@pytest.mark.parametrize("on", [True, False])
def test_only_ntuple_is_switched(kernel: Kernel, on: bool) -> None:
    features.set_ntuple("eth0", on=on)
    assert kernel.written == struct.pack("=6I", 0x3B, 2, 0, 0, BIT, BIT if on else 0)


def test_a_kernel_without_the_feature_has_none(kernel: Kernel) -> None:
    kernel.names = NAMES[:4]
    assert features.read_ntuple("eth0") is None
    with pytest.raises(OSError, match="no feature ntuple"):
        features.set_ntuple("eth0", on=True)


@pytest.mark.parametrize(("code", "raises"), [(errno.EOPNOTSUPP, False), (errno.ENODEV, True)])
def test_a_device_without_features_has_none_and_other_errors_are_raised(
    code: int, raises: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(code, "No")

    monkeypatch.setattr(features, "ioctl", refuse)
    if raises:
        with pytest.raises(OSError, match="No"):
            features.read_ntuple("eth0")
    else:
        assert features.read_ntuple("eth0") is None


def test_the_loopback_device_has_ntuple_fixed() -> None:
    assert features.read_ntuple("lo") is None
