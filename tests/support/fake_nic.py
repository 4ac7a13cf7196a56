"""FakeNic: a NIC's table of flow rules behind the ethtool ioctl, with the kernel's struct layouts and errors."""

import errno
import os
import struct
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from coresteer_agent.apply import flow_rule
from coresteer_agent.linux import features, flow_rules

SPEC_BYTES = 168
_AT = 16
_COUNT_AT = _AT + SPEC_BYTES
_SLOT_BYTES = 1 + SPEC_BYTES + 4
_FLOW_RSS = 1 << 29


class FakeNic:
    """Answers ETHTOOL_GRXCLSRLCNT, GRXCLSRULE, GRXCLSRLALL, SRXCLSRLDEL and SRXCLSRLINS for any netdev.

    The table is a file, so that it outlives a killed process as the NIC's does. size: its slots. room: how many rules
    fit, below size where hardware has less. alter: what the driver makes of a rule. refuse: the error of
    insertions. flags: of the data that the driver returns (RX_CLS_LOC_SPECIAL). contexts: returns the numbers of its
    RSS contexts.
    """

    def __init__(self, path: Path, size: int, room: int | None = None) -> None:
        path.write_bytes(bytes(size * _SLOT_BYTES))
        self._fd = os.open(path, os.O_RDWR)
        self.size = size
        self.room = size if room is None else room
        self.alter: Callable[[bytes], bytes] = lambda spec: spec
        self.refuse: int | None = None
        self.flags = 0
        self.contexts: Callable[[], Collection[int]] = frozenset

    @property
    def rules(self) -> dict[int, bytes]:
        """The rules by slot, each as struct ethtool_rx_flow_spec."""
        return {location: slot[1 : 1 + SPEC_BYTES] for location, slot in self._slots()}

    @property
    def contexts_of_rules(self) -> dict[int, int]:
        """The RSS context by slot of each rule that names one."""
        return {
            location: int.from_bytes(slot[-4:], sys.byteorder)
            for location, slot in self._slots()
            if int.from_bytes(slot[1:5], sys.byteorder) & _FLOW_RSS
        }

    def _slots(self) -> list[tuple[int, bytes]]:
        table = os.pread(self._fd, self.size * _SLOT_BYTES, 0)
        slots = (table[at : at + _SLOT_BYTES] for at in range(0, len(table), _SLOT_BYTES))
        return [(location, slot) for location, slot in enumerate(slots) if slot[0]]

    def put(self, location: int, spec: bytes | None, context: int = 0) -> None:
        """Place a rule in a slot, or remove it (None)."""
        slot = bytes(_SLOT_BYTES) if spec is None else b"\1" + spec + context.to_bytes(4, sys.byteorder)
        os.pwrite(self._fd, slot, location * _SLOT_BYTES)

    def reset(self) -> None:
        """Lose all rules, as when a driver resets its device."""
        for location in self.rules:
            self.put(location, None)

    def ioctl(self, netdev: str, command: bytes) -> bytes:
        """Answer as the kernel does. Raises OSError with the driver's errno."""
        assert netdev == "eth0"
        number, flow_type, data = struct.unpack_from("=IIQ", command)
        spec = command[_AT:_COUNT_AT]
        [count] = struct.unpack_from("=I", command, _COUNT_AT)
        [location] = struct.unpack_from("=I", spec, 160)
        assert (flow_type, data) == (0, 0)
        assert len(command) >= 192, "the kernel copies the whole struct ethtool_rxnfc"
        rules = self.rules
        match number:
            case 0x2E:
                return command[:8] + struct.pack("=Q", self.flags) + spec + struct.pack("=I4x", len(rules))
            case 0x2F:
                if location not in rules:
                    raise _error(errno.ENOENT)
                context = struct.pack("=I", self.contexts_of_rules.get(location, 0))
                return command[:_AT] + rules[location] + context + command[_COUNT_AT + 4 :]
            case 0x30:
                if count < len(rules):
                    raise _error(errno.EMSGSIZE)
                assert len(command) >= _COUNT_AT + 4 + 4 * count
                found = struct.pack(f"={len(rules)}I", *rules)
                answer = command[:8] + struct.pack("=Q", self.size | self.flags) + spec
                return (answer + struct.pack("=I", len(rules)) + found).ljust(len(command), b"\0")
            case 0x31:
                if location not in rules:
                    raise _error(errno.ENOENT)
                self.put(location, None)
            case 0x32:
                if self.refuse is not None:
                    raise _error(self.refuse)
                if location >= self.size or self._lacks_context(spec, count):
                    raise _error(errno.EINVAL)
                if location not in rules and len(rules) >= self.room:
                    raise _error(errno.ENOSPC)
                self.put(location, self.alter(spec), count)
            case _:
                raise _error(errno.EOPNOTSUPP)
        return command

    def _lacks_context(self, spec: bytes, context: int) -> bool:
        """Return whether a rule names an RSS context that does not exist, or a queue besides."""
        rule_type, queue = struct.unpack_from("=I", spec)[0], struct.unpack_from("=Q", spec, 152)[0]
        return bool(rule_type & _FLOW_RSS) and (queue != 0 or context not in self.contexts())


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


def install(monkeypatch: pytest.MonkeyPatch, nic: FakeNic) -> None:
    """Let the agent take this NIC for eth0 of the running kernel, with ntuple on."""
    monkeypatch.setattr(features, "read_ntuple", lambda _: "on")
    monkeypatch.setattr(flow_rules, "ioctl", nic.ioctl)
    monkeypatch.setattr(flow_rule, "is_running_kernel", lambda _: True)
