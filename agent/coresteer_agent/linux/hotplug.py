"""Receives hot-plug events (uevents) of the kernel through libudev."""

import errno
import logging
from typing import TYPE_CHECKING

from coresteer_agent.replaced_modules import replaced_modules

if TYPE_CHECKING:
    import pyudev

_log = logging.getLogger(__name__)

SUBSYSTEMS = frozenset({"cpu", "net", "pci"})
_LIBRARIES = {"udev": "libudev.so.1"}
_BUFFER_BYTES = 8 * 1024 * 1024


class HotplugMonitor:
    """Monitors CPUs, netdevs and PCI devices that are added, removed or changed.

    Raises OSError where the kernel refuses, as in some containers, and where there is no libudev.
    """

    def __init__(self) -> None:
        self._monitor = self._listen()

    @staticmethod
    def _listen() -> "pyudev.Monitor":
        # otherwise ctypes searches for libudev by running ldconfig or a compiler
        unused: dict[str, dict[str, object]] = {
            "ctypes.util": {"find_library": _LIBRARIES.get},
            "subprocess": {"check_output": None},
        }
        with replaced_modules(unused):
            import pyudev  # noqa: PLC0415 - memory that an agent on a captured tree need not spend

        # from the kernel itself: containers and small systems have no udev daemon
        try:
            context = pyudev.Context()
        except ImportError as error:
            raise OSError(errno.ENOENT, "libudev is not installed") from error
        monitor = pyudev.Monitor.from_netlink(context, source="kernel")
        for subsystem in sorted(SUBSYSTEMS):
            monitor.filter_by(subsystem)
        try:
            monitor.set_receive_buffer_size(_BUFFER_BYTES)
        except OSError as error:
            if error.errno != errno.EPERM:
                raise
            _log.info("Without root the buffer for device events stays small; more of them at once cause a re-read.")
        monitor.start()
        return monitor

    def changed(self) -> set[str]:
        """Return the subsystems with hot-plug events since the last call; does not block.

        When more happened than the buffer holds, events are lost and the monitor is started anew: then
        everything counts as changed.
        """
        found: set[str] = set()
        try:
            while (device := self._monitor.poll(timeout=0)) is not None:
                found.add(device.subsystem)
        except OSError as error:
            _log.warning("Device events were lost (%s); topology and devices are read again.", error)
            self._monitor = self._listen()
            return set(SUBSYSTEMS)
        return found
