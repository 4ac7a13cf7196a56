"""Learns drivers' responses to requested values, and interrupt rates by coalescing values, of a node's NICs."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.linux.atomic_file import replace_file
from coresteer_agent.state_upgrade import FORMAT, upgrade
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.nic import (
    MAX_DRIVERS,
    MAX_MESSAGE,
    MAX_NETDEVS,
    MAX_POINTS,
    MAX_RESPONSES,
    RETRY_AFTER_S,
    CoalescingPoint,
    DriverRecord,
    DriverResponse,
    NicKnowledge,
    Verdict,
)
from coresteer_core.node.rates import Rates
from coresteer_core.policies.coalescing.effective import (
    MIN_PACKETS_PER_S,
    CoalescingCounts,
    CoalescingState,
    ReceiveInterrupts,
    WriteAttempt,
    check_agreement,
    coalescing_counts,
    coalescing_state,
    receive_interrupts,
)
from coresteer_core.settings import NetdevParam, QueueParam

log = logging.getLogger("coresteer.nics")

REPORT_INTERVAL_S = 10.0
"""Minimum time between two reports, each of which is also stored."""
_WINDOWS = 2
"""Steps with enough traffic after which the effect of a change is verified."""
_WORKS_PER_S = 100.0
"""Packets; at a lower rate coalescing is not visible."""
_GROWN = 1.25
"""A point is reported again when it has grown by a quarter."""
_LONGEST_S = 3600.0
"""A longer point is halved, so that it follows the traffic."""

PointKey = tuple[str, int | None, int | None, bool]


class _Trial(Struct, frozen=True):
    """A change whose effect is being verified. before: the earlier state and its last window with enough traffic."""

    changed: dict[str, str]
    before: tuple[CoalescingState, CoalescingCounts] | None
    since: CoalescingCounts | None = None
    windows: int = 0


class _Watched(Struct):
    """State of a netdev. busy: its last window with enough traffic in the present coalescing state."""

    state: CoalescingState
    busy: CoalescingCounts | None = None
    trial: _Trial | None = None


class NicLearner:
    """Learns drivers' responses and interrupt rates of one node's NICs.

    kernel: its release; responses of another one's drivers are dropped. publish: stores what was learned and sends it
    to the backend. count_interrupts: replaces receive_interrupts where the counts are already known.
    """

    def __init__(
        self,
        kernel: str,
        publish: Callable[[NicKnowledge], None],
        *,
        learned: NicKnowledge | None = None,
        count_interrupts: Callable[[Rates, Inventory], ReceiveInterrupts] = receive_interrupts,
    ) -> None:
        learned = learned or NicKnowledge()
        self._kernel = kernel
        self._publish = publish
        self._count_interrupts = count_interrupts
        self._responses = {
            r.driver: {(t.name, t.requested): t for t in r.responses} for r in learned.drivers if r.kernel == kernel
        }
        self._points = {_key(point): point for point in learned.points}
        self._learned: NicKnowledge | None = None
        self._reported = {key: point.seconds for key, point in self._points.items()}
        self._changed = False
        self._next_report_s = 0.0
        self._inventory: Inventory | None = None
        self._states: dict[str, CoalescingState] = {}
        self._watched: dict[str, _Watched] = {}
        self._written: set[str] = set()
        self._seq = 0

    @property
    def learned(self) -> NicKnowledge:
        """Return everything learned about the node's NICs."""
        if self._learned is None:
            records = [
                DriverRecord(driver, self._kernel, list(response.values()))
                for driver, response in self._responses.items()
            ]
            self._learned = NicKnowledge(records, list(self._points.values()))
        return self._learned

    def record_attempt(self, attempt: WriteAttempt) -> None:
        """Record a driver's response to a written value."""
        setting = attempt.setting
        if not isinstance(setting, NetdevParam | QueueParam):
            return
        self._written.add(setting.netdev)
        netdev = self._inventory.netdev(setting.netdev) if self._inventory is not None else None
        if netdev is not None and netdev.driver is not None:
            message, now_ms = attempt.message[:MAX_MESSAGE], time.time_ns() // 1_000_000
            response = DriverResponse(
                setting.param,
                attempt.requested,
                attempt.verdict,
                attempt.read_back,
                message,
                now_ms,
                attempt.unsupported,
            )
            self._record(netdev.driver, response)
            if response.verdict is not Verdict.ACCEPTED:
                self.save()  # the next preview must know

    def step(self, rates: Sequence[Rates], inventory: Inventory, now_s: float) -> None:
        """Learn from the rates of the last seconds that are not processed yet. inventory: the present one.

        now_s: monotonic.
        """
        if inventory is not self._inventory:
            self._inventory = inventory
            self._states = {n.name: found for n in inventory.netdevs if (found := coalescing_state(n)) is not None}
        fresh = [each for each in rates if each.seq > self._seq and each.netdevs is not None]
        if self._states and fresh:
            self._seq = fresh[-1].seq
            self._observe(fresh, inventory)
        self._written.clear()
        self._forget(time.time_ns() // 1_000_000)
        if self._changed and now_s >= self._next_report_s:
            self._next_report_s = now_s + REPORT_INTERVAL_S
            self.save()

    def save(self) -> None:
        """Store and report everything learned since the last call."""
        if self._changed:
            self._changed = False
            self._reported = {key: point.seconds for key, point in self._points.items()}
            self._publish(self.learned)

    def _observe(self, rates: Sequence[Rates], inventory: Inventory) -> None:
        windows: dict[str, CoalescingCounts] = {}
        times: dict[str, int] = {}
        for each in rates:
            interrupts = self._count_interrupts(each, inventory)
            for counts in each.netdevs or []:
                if counts.name in self._states and counts.name in interrupts:
                    one = coalescing_counts(each, counts, interrupts[counts.name])
                    windows[counts.name] = windows[counts.name] + one if counts.name in windows else one
                    times[counts.name] = times.get(counts.name, 0) + 1
        for name, state in self._states.items():
            watched = self._watched.get(name)
            if watched is None:
                self._watched[name] = _Watched(state)
            elif watched.state != state:
                self._watched[name] = _changed(watched, state)
            elif name not in self._written and times.get(name) == len(rates):
                self._add(name, state, windows[name], rates[-1].time_ms)
                self._verify(watched, windows[name], rates[-1].time_ms)
        self._watched = {name: self._watched[name] for name in self._states}

    def _add(self, name: str, state: CoalescingState, window: CoalescingCounts, time_ms: int) -> None:
        """Add a window to the point of the coalescing values that were set during all of it."""
        if window.packets_per_s < _WORKS_PER_S:
            return
        key = (name, state.rx_usecs, state.rx_frames, state.adaptive)
        before = self._points.pop(key, None) or CoalescingPoint(*key, 0.0, 0, 0, 0, 0)
        point = replace(
            before,
            seconds=before.seconds + window.seconds,
            rx_packets=before.rx_packets + window.rx_packets,
            rx_bytes=before.rx_bytes + window.rx_bytes,
            interrupts=before.interrupts + window.interrupts,
            dropped=before.dropped + window.dropped,
            rtt_us_s=before.rtt_us_s + window.rtt_us_s,
            rtt_s=before.rtt_s + window.rtt_s,
            last_ms=time_ms,
        )
        self._points[key] = _halved(point) if point.seconds > _LONGEST_S else point
        if not before.seconds:
            self._bound_points(name)
        reported_s = self._reported.get(key, 0.0)
        if not reported_s <= point.seconds < _GROWN * reported_s:
            self._changed = True
        self._learned = None

    def _bound_points(self, netdev: str) -> None:
        """Remove the points that were updated longest ago; points are in that order."""
        mine = [key for key in self._points if key[0] == netdev]
        netdevs = list(dict.fromkeys(key[0] for key in reversed(self._points)))
        gone = {key for key in self._points if key[0] in netdevs[MAX_NETDEVS:]}
        for key in gone.union(mine[:-MAX_POINTS]):
            del self._points[key]

    def _verify(self, watched: _Watched, window: CoalescingCounts, time_ms: int) -> None:
        """Verify the effect of a change after two windows with enough traffic."""
        if window.packets_per_s < MIN_PACKETS_PER_S:
            return
        watched.busy = window
        if (trial := watched.trial) is None:
            return
        since = window if trial.since is None else trial.since + window
        if trial.windows + 1 < _WINDOWS:
            watched.trial = replace(trial, since=since, windows=trial.windows + 1)
            return
        watched.trial = None
        agreement = check_agreement(watched.state, since, *(trial.before or ()))
        if agreement.holds is False and watched.state.driver is not None:
            log.warning("The values set for %s have no effect. %s", watched.state.driver, agreement.explanation)
            for name, value in trial.changed.items():
                message = agreement.explanation[:MAX_MESSAGE]
                self._record(
                    watched.state.driver, DriverResponse(name, value, Verdict.NO_EFFECT, value, message, time_ms)
                )

    def _forget(self, now_ms: int) -> None:
        """Remove rejections that are old enough for the value to be requested again."""
        for driver, values in self._responses.items():
            fresh = {
                key: response
                for key, response in values.items()
                if response.verdict is Verdict.ACCEPTED or abs(now_ms - response.time_ms) < RETRY_AFTER_S * 1000
            }
            if len(fresh) < len(values):
                self._responses[driver] = fresh
                self._learned = None
                self._changed = True

    def _record(self, driver: str, response: DriverResponse) -> None:
        """Store a driver's last response to a value; the oldest is removed."""
        values = self._responses.pop(driver, {})
        values.pop((response.name, response.requested), None)
        values[response.name, response.requested] = response
        if len(values) > MAX_RESPONSES:
            del values[next(iter(values))]
        self._responses[driver] = values
        if len(self._responses) > MAX_DRIVERS:
            del self._responses[next(iter(self._responses))]
        self._learned = None
        self._changed = True


def _key(point: CoalescingPoint) -> PointKey:
    return point.netdev, point.rx_usecs, point.rx_frames, point.adaptive


def _halved(point: CoalescingPoint) -> CoalescingPoint:
    return replace(
        point,
        seconds=point.seconds / 2,
        rx_packets=point.rx_packets // 2,
        rx_bytes=point.rx_bytes // 2,
        interrupts=point.interrupts // 2,
        dropped=point.dropped // 2,
        rtt_us_s=point.rtt_us_s / 2,
        rtt_s=point.rtt_s / 2,
    )


def _changed(watched: _Watched, state: CoalescingState) -> _Watched:
    """Return the tracked state of a NIC after its values changed, with a trial that verifies their effect."""
    was, now = watched.state.values, state.values
    changed = {name: value for name, value in now.items() if was.get(name, value) != value}
    if not changed:
        return _Watched(state)
    return _Watched(state, trial=_Trial(changed, (watched.state, watched.busy) if watched.busy else None))


class _Format(Struct):
    format: int = 1


class _File(Struct):
    learned: NicKnowledge
    format: int = FORMAT


class NicLearningFile:
    """Reads and writes the file of everything learned about NICs, state_dir/agent/nics.json."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._complaint = ""

    def read(self) -> NicKnowledge:
        """Return everything stored about NICs; nothing if the file cannot be read."""
        try:
            text = self._path.read_bytes()
            if msgspec.json.decode(text, type=_Format).format < FORMAT:
                return msgspec.json.decode(upgrade(text, 1), type=NicKnowledge)
            return msgspec.json.decode(text, type=_File).learned
        except FileNotFoundError:
            return NicKnowledge()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("The NIC measurements in %s cannot be read (%s); they are learned again.", self._path, error)
            return NicKnowledge()

    def write(self, learned: NicKnowledge) -> None:
        """Replace the file atomically. A failure is logged once."""
        try:
            replace_file(self._path, msgspec.json.encode(_File(learned)))
            self._complaint = ""
        except OSError as error:
            if self._complaint != str(error):
                self._complaint = str(error)
                log.error(
                    "The NIC measurements cannot be written to %s: %s. A restarted agent learns them again.",
                    self._path,
                    error,
                )
