"""What the bench of policies reads in the guest: settings and counters, and what the consumers say."""

import json
import re
import time
from dataclasses import dataclass

from tests.lab.rig import Guest, GuestError
from tests.lab.steering.mixes import Mix

_LOG = "watch.log"
_PATIENCE_S = 120


@dataclass(frozen=True)
class Reading:
    """Of one moment. settings: by key. irq_cpus: CPU of each interrupt. busy: non-idle ticks by CPU, since boot.

    ipis: rows CAL and RES of /proc/interrupts. received_rps: of softnet_stat, wake-ups of CPUs to which RPS or RFS
    handed packets. out_of_order, retransmitted: TCP segments, the second by the senders. All are counts since boot.
    """

    at_s: float
    settings: dict[str, str]
    irq_cpus: dict[str, int]
    busy: list[int]
    ipis: int
    received_rps: int
    out_of_order: int
    retransmitted: int


def begin_watch(guest: Guest, every_s: float, seconds: float) -> None:
    """Begin to read each few seconds."""
    guest.start("python", "-m", "tests.lab.steering.watch", str(every_s), str(int(seconds / every_s)), output=_LOG)


def await_readings(guest: Guest, settle_s: float, seconds: float) -> list[Reading]:
    """Return the readings from settle_s after the first on, once they cover some seconds of the guest's time.

    Raises GuestError.
    """
    end = time.monotonic() + settle_s + seconds + _PATIENCE_S
    while time.monotonic() < end:
        every = _readings((guest.share / _LOG).read_text())
        found = [each for each in every if each.at_s >= every[0].at_s + settle_s]
        if found and found[-1].at_s - found[0].at_s >= seconds:
            return found
        time.sleep(0.5)  # a file tells nobody when it grows
    raise GuestError(f"{guest.machine.name} was not read for {seconds:.0f} s.")


def read_once(guest: Guest) -> Reading:
    """Return what is read now."""
    return _readings(guest.python("tests.lab.steering.watch", "0", "1").stdout)[0]


def _readings(text: str) -> list[Reading]:
    return [Reading(**json.loads(line)) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]


def changed(before: Reading, after: Reading) -> list[str]:
    """Return the keys of the settings that differ; those that appeared or vanished do not count."""
    return [key for key, value in before.settings.items() if value != after.settings.get(key, value)]


@dataclass(frozen=True)
class Cell:
    """Bytes that a consumer read in one second. napi: id of the NAPI that was polled for them."""

    port: int
    at_s: float
    protocol_cpu: int
    task_cpu: int
    napi: int
    bytes: int


def cells(guest: Guest, mix: Mix) -> list[Cell]:
    """Return what the consumers have said so far."""
    found = []
    for each in mix.consumers:
        for line in (guest.share / each.log).read_text().splitlines():
            if line.startswith("{") and line.endswith("}"):
                said = json.loads(line)
                found += [Cell(each.port, said["time_s"], *cell) for cell in said["received"]]
    return found


def napi_irqs(guest: Guest) -> dict[int, str]:
    """Return the interrupt of each NAPI of the receiving NICs by its id."""
    queues: dict[str, list[int]] = json.loads(guest.python("tests.lab.steering.napis").stdout)
    irqs = {
        name: irq
        for irq, name in re.findall(r"^ *(\d+):.* (eth[01]-TxRx-\d+)$", guest.read("/proc/interrupts"), re.MULTILINE)
    }
    return {
        napi: irqs[f"{netdev}-TxRx-{queue}"] for netdev, napis in queues.items() for queue, napi in enumerate(napis)
    }
