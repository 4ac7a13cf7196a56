"""What an agent learns of its NICs: what their drivers made of values, and what they did while values stood."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from coresteer_agent.runtime.atomic_file import replace_file
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.nic import (
    ASKED_AGAIN_S,
    MAX_DRIVERS,
    MAX_NETDEVS,
    MAX_POINTS,
    MAX_TRIED,
    MAX_WORDS,
    DriverRecord,
    Learned,
    Point,
    Tried,
    Verdict,
)
from coresteer_core.node.rates import Rates
from coresteer_core.policies.coalescing.effective import (
    ENOUGH_PER_S,
    Attempt,
    Interrupts,
    Measured,
    Standing,
    agrees,
    measured,
    receive_interrupts,
    standing_of,
)
from coresteer_core.settings import NetdevParam, QueueParam

log = logging.getLogger("coresteer.nics")

TELL_S = 10.0
"""What was learned is told and kept at most so often."""
_WINDOWS = 2
"""Steps with enough traffic that a change is judged by."""
_WORKS_PER_S = 100.0
"""Packets: with fewer, a netdev shows nothing of its coalescing."""
_GROWN = 1.25
"""A point that has grown by less than a quarter is not told anew."""
_LONGEST_S = 3600.0
"""A point of more is halved, so that it follows the traffic."""

PointKey = tuple[str, int | None, int | None, bool]


class _Trial(Struct, frozen=True):
    """A change that is to show. before: what stood until then, and what was measured last with enough traffic."""

    changed: dict[str, str]
    before: tuple[Standing, Measured] | None
    since: Measured | None = None
    windows: int = 0


class _Watched(Struct):
    """A netdev. busy: its last window with enough traffic, while standing stood."""

    standing: Standing
    busy: Measured | None = None
    trial: _Trial | None = None


class NicBook:
    """What is learned of one node's NICs.

    kernel: its release; what was learned with another one says nothing of its drivers. keep: makes it outlive this
    process and tells it to the backend. counted: as receive_interrupts, for who knows it without counting.
    """

    def __init__(
        self,
        kernel: str,
        keep: Callable[[Learned], None],
        *,
        learned: Learned | None = None,
        counted: Callable[[Rates, Inventory], Interrupts] = receive_interrupts,
    ) -> None:
        learned = learned or Learned()
        self._kernel = kernel
        self._keep = keep
        self._counted = counted
        self._tried = {r.driver: {(t.name, t.asked): t for t in r.tried} for r in learned.drivers if r.kernel == kernel}
        self._points = {_key(point): point for point in learned.points}
        self._learned: Learned | None = None
        self._told = {key: point.seconds for key, point in self._points.items()}
        self._news = False
        self._next_tell_s = 0.0
        self._inventory: Inventory | None = None
        self._standing: dict[str, Standing] = {}
        self._watched: dict[str, _Watched] = {}
        self._written: set[str] = set()
        self._seq = 0

    @property
    def learned(self) -> Learned:
        """All of it."""
        if self._learned is None:
            records = [
                DriverRecord(driver, self._kernel, list(tried.values())) for driver, tried in self._tried.items()
            ]
            self._learned = Learned(records, list(self._points.values()))
        return self._learned

    def attempted(self, attempt: Attempt) -> None:
        """A value was asked of a driver."""
        setting = attempt.setting
        if not isinstance(setting, NetdevParam | QueueParam):
            return
        self._written.add(setting.netdev)
        netdev = self._inventory.netdev(setting.netdev) if self._inventory is not None else None
        if netdev is not None and netdev.driver is not None:
            words, now_ms = attempt.words[:MAX_WORDS], time.time_ns() // 1_000_000
            tried = Tried(
                setting.param, attempt.asked, attempt.verdict, attempt.stood, words, now_ms, attempt.unsupported
            )
            self._note(netdev.driver, tried)
            if tried.verdict is not Verdict.TAKEN:
                self.save()  # whoever asks next is to know

    def step(self, rates: Sequence[Rates], inventory: Inventory, now_s: float) -> None:
        """Some seconds have passed. rates: of them; those seen before are left out. inventory: as it is now.

        now_s: monotonic.
        """
        if inventory is not self._inventory:
            self._inventory = inventory
            self._standing = {n.name: found for n in inventory.netdevs if (found := standing_of(n)) is not None}
        fresh = [each for each in rates if each.seq > self._seq and each.netdevs is not None]
        if self._standing and fresh:
            self._seq = fresh[-1].seq
            self._look(fresh, inventory)
        self._written.clear()
        self._forget(time.time_ns() // 1_000_000)
        if self._news and now_s >= self._next_tell_s:
            self._next_tell_s = now_s + TELL_S
            self.save()

    def save(self) -> None:
        """Keep what is not kept yet."""
        if self._news:
            self._news = False
            self._told = {key: point.seconds for key, point in self._points.items()}
            self._keep(self.learned)

    def _look(self, rates: Sequence[Rates], inventory: Inventory) -> None:
        windows: dict[str, Measured] = {}
        times: dict[str, int] = {}
        for each in rates:
            interrupts = self._counted(each, inventory)
            for counts in each.netdevs or []:
                if counts.name in self._standing and counts.name in interrupts:
                    one = measured(each, counts, interrupts[counts.name])
                    windows[counts.name] = windows[counts.name] + one if counts.name in windows else one
                    times[counts.name] = times.get(counts.name, 0) + 1
        for name, standing in self._standing.items():
            watched = self._watched.get(name)
            if watched is None:
                self._watched[name] = _Watched(standing)
            elif watched.standing != standing:
                self._watched[name] = _changed(watched, standing)
            elif name not in self._written and times.get(name) == len(rates):
                self._add(name, standing, windows[name], rates[-1].time_ms)
                self._judge(watched, windows[name], rates[-1].time_ms)
        self._watched = {name: self._watched[name] for name in self._standing}

    def _add(self, name: str, standing: Standing, window: Measured, time_ms: int) -> None:
        """To the point of the values that stand, and that stood all the while."""
        if window.packets_per_s < _WORKS_PER_S:
            return
        key = (name, standing.rx_usecs, standing.rx_frames, standing.adaptive)
        before = self._points.pop(key, None) or Point(*key, 0.0, 0, 0, 0, 0)
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
        told_s = self._told.get(key, 0.0)
        if not told_s <= point.seconds < _GROWN * told_s:
            self._news = True
        self._learned = None

    def _bound_points(self, netdev: str) -> None:
        """The points that were added to last stay; they are in that order."""
        mine = [key for key in self._points if key[0] == netdev]
        netdevs = list(dict.fromkeys(key[0] for key in reversed(self._points)))
        gone = {key for key in self._points if key[0] in netdevs[MAX_NETDEVS:]}
        for key in gone.union(mine[:-MAX_POINTS]):
            del self._points[key]

    def _judge(self, watched: _Watched, window: Measured, time_ms: int) -> None:
        """The lie test, once a change has stood for two windows with enough traffic."""
        if window.packets_per_s < ENOUGH_PER_S:
            return
        watched.busy = window
        if (trial := watched.trial) is None:
            return
        since = window if trial.since is None else trial.since + window
        if trial.windows + 1 < _WINDOWS:
            watched.trial = replace(trial, since=since, windows=trial.windows + 1)
            return
        watched.trial = None
        agreement = agrees(watched.standing, since, *(trial.before or ()))
        if agreement.holds is False and watched.standing.driver is not None:
            log.warning("What %s was set to has no effect. %s", watched.standing.driver, agreement.words)
            for name, value in trial.changed.items():
                words = agreement.words[:MAX_WORDS]
                self._note(watched.standing.driver, Tried(name, value, Verdict.NO_EFFECT, value, words, time_ms))

    def _forget(self, now_ms: int) -> None:
        """What a driver did not take so long ago that it may be asked again."""
        for driver, values in self._tried.items():
            fresh = {
                key: tried
                for key, tried in values.items()
                if tried.verdict is Verdict.TAKEN or abs(now_ms - tried.time_ms) < ASKED_AGAIN_S * 1000
            }
            if len(fresh) < len(values):
                self._tried[driver] = fresh
                self._learned = None
                self._news = True

    def _note(self, driver: str, tried: Tried) -> None:
        """The last word on a value; what was said last is kept."""
        values = self._tried.pop(driver, {})
        values.pop((tried.name, tried.asked), None)
        values[tried.name, tried.asked] = tried
        if len(values) > MAX_TRIED:
            del values[next(iter(values))]
        self._tried[driver] = values
        if len(self._tried) > MAX_DRIVERS:
            del self._tried[next(iter(self._tried))]
        self._learned = None
        self._news = True


def _key(point: Point) -> PointKey:
    return point.netdev, point.rx_usecs, point.rx_frames, point.adaptive


def _halved(point: Point) -> Point:
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


def _changed(watched: _Watched, standing: Standing) -> _Watched:
    """Other values stand, and are to show if they are among those that decide."""
    was, now = watched.standing.values, standing.values
    changed = {name: value for name, value in now.items() if was.get(name, value) != value}
    if not changed:
        return _Watched(standing)
    return _Watched(standing, trial=_Trial(changed, (watched.standing, watched.busy) if watched.busy else None))


class NicsFile:
    """The file that lets what was learned outlive the agent: state_dir/agent/nics.json."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._complaint = ""

    def read(self) -> Learned:
        """What the last run kept; nothing where it cannot be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Learned)
        except FileNotFoundError:
            return Learned()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("%s cannot be read (%s); what NICs do is learned anew.", self._path, error)
            return Learned()

    def write(self, learned: Learned) -> None:
        """Replace the file at once. What cannot be written is said once."""
        try:
            replace_file(self._path, msgspec.json.encode(learned))
            self._complaint = ""
        except OSError as error:
            if self._complaint != str(error):
                self._complaint = str(error)
                log.error("%s cannot be written: %s. A restarted agent will learn anew.", self._path, error)
