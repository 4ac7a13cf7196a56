"""When a delivery that failed is tried again. Pure."""

MAX_ATTEMPTS = 10
"""Attempts of one delivery; with the pauses between them about half an hour."""
FIRST_PAUSE_S, MAX_PAUSE_S = 5.0, 600.0


def pause_s(attempts: int, jitter: float) -> float | None:
    """Return the seconds before the next attempt after this many failed ones, None if there is none.

    The pause doubles up to MAX_PAUSE_S; jitter in [0, 1] takes up to half of it away, so that receivers that failed
    together are not tried together.
    """
    if attempts >= MAX_ATTEMPTS:
        return None
    return min(FIRST_PAUSE_S * 2.0 ** max(0, attempts - 1), MAX_PAUSE_S) * (1 - jitter / 2)
