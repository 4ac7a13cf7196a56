"""Coscheduling schemes: what a process does while it waits for a message, and what an arriving message does."""

from enum import IntEnum

from msgspec import Struct


class Wait(IntEnum):
    """What receive() does without a message. SPIN_* wait for the spin time first."""

    BUSY = 0
    BLOCK = 1
    SPIN_BLOCK = 2
    SPIN_YIELD = 3


class Arrival(IntEnum):
    """What an arriving message does beyond waking a process that sleeps until it arrives."""

    NONE = 0
    INTERRUPT_BOOST = 1
    PERIODIC_BOOST = 2


class Scheme(Struct, frozen=True):
    """A combination. reorder: with process reordering, written +RO."""

    wait: Wait
    arrival: Arrival
    reorder: bool = False

    def __str__(self) -> str:
        """Return the scheme's name in the literature, for example SB or IB-DCS+RO."""
        return NAMES[self.wait, self.arrival] + ("+RO" if self.reorder else "")


NAMES = {
    (Wait.BUSY, Arrival.NONE): "SPIN",
    (Wait.BLOCK, Arrival.NONE): "IB",
    (Wait.SPIN_BLOCK, Arrival.NONE): "SB",
    (Wait.SPIN_YIELD, Arrival.NONE): "SY",
    (Wait.BUSY, Arrival.INTERRUPT_BOOST): "DCS",
    (Wait.BLOCK, Arrival.INTERRUPT_BOOST): "IB-DCS",
    (Wait.SPIN_BLOCK, Arrival.INTERRUPT_BOOST): "SB-DCS",
    (Wait.SPIN_YIELD, Arrival.INTERRUPT_BOOST): "SY-DCS",
    (Wait.BUSY, Arrival.PERIODIC_BOOST): "PB",
    (Wait.BLOCK, Arrival.PERIODIC_BOOST): "IB-PB",
    (Wait.SPIN_BLOCK, Arrival.PERIODIC_BOOST): "SB-PB",
    (Wait.SPIN_YIELD, Arrival.PERIODIC_BOOST): "SY-PB",
}
SCHEMES = {
    str(scheme): scheme
    for wait, arrival in NAMES
    for scheme in (Scheme(wait, arrival), Scheme(wait, arrival, reorder=True))
}
"""All 24 by name."""
