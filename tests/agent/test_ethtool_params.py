"""What is asked of the kernel for coalescing, rings and polling, byte for byte, and what its answers mean.

The kernel is a socket that answers with given bytes; the real one answers in apply/test_params.py and in the lab.
"""

import errno
import socket
import struct
from collections.abc import Callable

import pytest

from coresteer_agent.linux import ethtool_params, napi, netlink
from coresteer_agent.linux.ethtool_params import Params

COALESCE_GET, COALESCE_SET, RINGS_GET, RINGS_SET = 19, 20, 15, 16
FAMILY = 29
Answer = bytes | OSError


def u8(kind: int, value: int) -> bytes:
    return struct.pack("=HHBxxx", 5, kind, value)


def u32(kind: int, value: int) -> bytes:
    return struct.pack("=HHI", 8, kind, value)


class Kernel:
    """A generic netlink socket. answers: attributes, or an error, by command; asked: commands and attributes."""

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {}
        self.asked: list[tuple[int, bytes]] = []
        self._waiting: list[bytes] = []

    def __call__(self, *_: object) -> "Kernel":
        return self

    def settimeout(self, _: float) -> None: ...

    def setsockopt(self, *_: int) -> None: ...

    def close(self) -> None: ...

    def send(self, request: bytes) -> None:
        _, kind, _, sequence, _ = struct.unpack_from("=IHHII", request)
        command = request[16]
        if kind == 0x10:  # the controller: which number a family has
            answer: Answer = struct.pack("=HHHxx", 6, 1, FAMILY)
        else:
            assert kind == FAMILY
            self.asked.append((command, request[20:]))
            answer = self.answers.get(command, OSError(errno.EOPNOTSUPP, ""))
        if isinstance(answer, OSError):
            words = (answer.strerror or "").encode() + b"\0"
            told = struct.pack("=HH", 4 + len(words), 1) + words if answer.strerror else b""
            content = struct.pack("=i16x", -(answer.errno or 0)) + told
            self._waiting.append(struct.pack("=IHHII", 16 + len(content), 2, 0x200, sequence, 0) + content)
            return
        self._waiting.append(struct.pack("=IHHII", 20 + len(answer), kind, 0, sequence, 0) + bytes(4) + answer)
        self._waiting.append(struct.pack("=IHHIIi", 20, 2, 0, sequence, 0, 0))

    def recv_into(self, buffer: bytearray) -> int:
        message = self._waiting.pop(0)
        buffer[: len(message)] = message
        return len(message)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(socket, "socket", kernel)
    monkeypatch.setattr(netlink, "family_id", netlink.family_id.__wrapped__)
    return kernel


HEADER = struct.pack("=HHHH", 16, 0x8001, 9, 2) + b"eth0\0\0\0\0"


def test_parameters_that_the_driver_reports_are_read_and_the_others_are_absent(kernel: Kernel) -> None:
    kernel.answers[COALESCE_GET] = u32(2, 50) + u32(7, 0) + u32(10, 7) + u8(11, 1) + u8(25, 0)
    kernel.answers[RINGS_GET] = u32(2, 4096) + u32(6, 512) + u32(5, 2048) + u32(9, 256)
    assert ethtool_params.read_params("eth0") == Params(
        {
            "coalesce/rx-usecs": "50",
            "coalesce/tx-frames": "0",
            "coalesce/adaptive-rx": "on",
            "coalesce/cqe-mode-rx": "off",
            "ring/rx": "512",
            "ring/tx": "256",
        },
        {"ring/rx": "4096", "ring/tx": "2048"},
    )
    assert kernel.asked == [(COALESCE_GET, HEADER), (RINGS_GET, HEADER)]


def test_a_driver_without_coalescing_has_no_parameters_and_other_errors_are_raised(kernel: Kernel) -> None:
    assert ethtool_params.read_params("eth0") == Params({}, {})
    kernel.answers[COALESCE_GET] = OSError(errno.ENODEV, "no device matches name")
    with pytest.raises(OSError, match="no device matches name") as raised:
        ethtool_params.read_params("eth0")
    assert raised.value.errno == errno.ENODEV


@pytest.mark.parametrize(
    ("name", "value", "command", "attribute"),
    [
        ("coalesce/rx-usecs", "90", COALESCE_SET, u32(2, 90)),
        ("coalesce/tx-frames-irq", "7", COALESCE_SET, u32(9, 7)),
        ("coalesce/adaptive-tx", "on", COALESCE_SET, u8(12, 1)),
        ("coalesce/cqe-mode-tx", "off", COALESCE_SET, u8(24, 0)),
        ("ring/rx", "512", RINGS_SET, u32(6, 512)),
        ("ring/tx", "4294967295", RINGS_SET, u32(9, 0xFFFF_FFFF)),
    ],
)
def test_only_changed_parameters_are_sent(
    kernel: Kernel, name: str, value: str, command: int, attribute: bytes
) -> None:
    kernel.answers[command] = b""
    ethtool_params.set_param("eth0", name, value)
    assert kernel.asked == [(command, HEADER + attribute)]


def test_a_refusal_contains_the_kernels_extended_acknowledgement(kernel: Kernel) -> None:
    kernel.answers[RINGS_SET] = OSError(errno.EINVAL, "requested ring size exceeds maximum")
    with pytest.raises(OSError, match="requested ring size exceeds maximum"):
        ethtool_params.set_param("eth0", "ring/rx", "9999")
    kernel.answers[COALESCE_SET] = OSError(errno.EINVAL, "")
    with pytest.raises(OSError, match="Invalid argument"):
        ethtool_params.set_param("eth0", "coalesce/rx-usecs", "5")


def test_a_number_beyond_u32_is_refused_before_it_is_sent(kernel: Kernel) -> None:
    with pytest.raises(OSError, match="exceeds 32 bits"):
        ethtool_params.set_param("eth0", "coalesce/rx-usecs", str(1 << 32))
    with pytest.raises(OSError, match="exceeds 32 bits"):
        napi.set_param(5, "napi_defer_hard_irqs", str(1 << 32))
    assert kernel.asked == []


def test_napi_parameters_are_read_and_set_by_napi_id(kernel: Kernel) -> None:
    kernel.answers = {11: u32(2, 8193) + u32(5, 2) + struct.pack("=HHQ", 12, 6, 5 << 32), 14: b""}
    assert napi.read_params(8193) == {"napi_defer_hard_irqs": "2", "gro_flush_timeout": str(5 << 32)}
    napi.set_param(8193, "gro_flush_timeout", "20000")
    napi.set_param(8193, "napi_defer_hard_irqs", "3")
    assert kernel.asked == [
        (11, u32(2, 8193)),
        (14, u32(2, 8193) + struct.pack("=HHQ", 12, 6, 20000)),
        (14, u32(2, 8193) + u32(5, 3)),
    ]


def test_a_queue_without_a_known_napi_has_no_napi_parameters(kernel: Kernel) -> None:
    kernel.answers[10] = u32(1, 0) + u32(3, 0)
    with pytest.raises(OSError, match="does not report the queue's NAPI id"):
        napi.read_napi_id("lo", 0)
    assert kernel.asked[0] == (10, u32(1, 0) + u32(2, 1) + u32(3, 0))


def coalesce(command: int, **fields: int) -> bytes:
    """struct ethtool_coalesce."""
    at = {"rx_usecs": 1, "rx_frames": 2, "tx_usecs": 5, "tx_frames": 6, "adaptive_rx": 10, "rate_low": 12}
    numbers = [command] + [0] * 22
    for name, value in fields.items():
        numbers[at[name]] = value
    return struct.pack("=23I", *numbers)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[int, bytes]], list[bytes]]:
    """Answers per-queue ioctls from the coalescing of queues, which it keeps; what it was asked is returned."""

    def make(queues: dict[int, bytes]) -> list[bytes]:
        asked: list[bytes] = []

        def answer(_: str, command: bytes) -> bytes:
            asked.append(command)
            first, sub_command, *words = struct.unpack_from("=II128I", command)
            assert first == 0x4B
            mask = sum(word << 32 * number for number, word in enumerate(words))
            numbers = [number for number in range(4096) if mask >> number & 1]
            if not set(numbers) <= queues.keys():
                raise OSError(errno.EINVAL, "Invalid argument")
            if sub_command == 0x0F:
                queues[numbers[0]] = command[520:]
            return command[:520] + b"".join(queues[number] for number in numbers)

        monkeypatch.setattr(ethtool_params, "ioctl", answer)
        return asked

    return make


def test_the_coalescing_of_all_queues_is_read_in_one_request(device: Callable[[dict[int, bytes]], list[bytes]]) -> None:
    asked = device({0: coalesce(14, rx_usecs=3), 33: coalesce(14, rx_usecs=50, tx_frames=8, adaptive_rx=1)})
    told = ethtool_params.read_queue_params("eth0", [33, 0])
    assert len(asked) == 1
    assert (told[0]["coalesce/rx-usecs"], told[0]["coalesce/adaptive-rx"]) == ("3", "off")
    assert (told[33]["coalesce/rx-usecs"], told[33]["coalesce/tx-frames"]) == ("50", "8")
    assert told[33]["coalesce/adaptive-rx"] == "on"
    assert "coalesce/cqe-mode-rx" not in told[0]


def test_one_parameter_of_a_queue_is_written_with_the_current_values_of_the_others(
    device: Callable[[dict[int, bytes]], list[bytes]],
) -> None:
    queues = {3: coalesce(14, rx_usecs=3, rx_frames=64, rate_low=9)}
    device(queues)
    ethtool_params.set_queue_param("eth0", 3, "coalesce/rx-usecs", "50")
    assert queues[3] == coalesce(15, rx_usecs=50, rx_frames=64, rate_low=9)
    ethtool_params.set_queue_param("eth0", 3, "coalesce/adaptive-rx", "on")
    assert queues[3] == coalesce(15, rx_usecs=50, rx_frames=64, rate_low=9, adaptive_rx=1)
    with pytest.raises(OSError, match="exceeds 32 bits"):
        ethtool_params.set_queue_param("eth0", 3, "coalesce/rx-usecs", str(1 << 32))


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_driver_without_queue_coalescing_has_no_queue_parameters(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(*_: object) -> bytes:
        raise OSError(code, "")

    monkeypatch.setattr(ethtool_params, "ioctl", refuse)
    assert ethtool_params.read_queue_params("eth0", [0, 1]) == {}
