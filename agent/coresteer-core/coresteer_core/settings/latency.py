"""Warnings about how long packets may wait for an interrupt."""

from coresteer_core.node.nic import Timer

_LONG_WAIT_US = 1000


def latency_warnings(timer: Timer | None, params: dict[str, str], direction: str) -> list[tuple[str, str]]:
    """Return (code of PlanWarning, sentence) pairs for coalescing parameters: delays over 1 ms, adaptive mode.

    timer: when its timer starts, None where that is unknown. direction: ``rx`` or ``tx``.
    """
    found = []
    usecs, frames = (int(params.get(f"coalesce/{direction}-{unit}", 0)) for unit in ("usecs", "frames"))
    product = usecs * frames if timer in (None, Timer.RESTARTING) else 0
    if product > max(usecs, _LONG_WAIT_US):
        why = f"({direction}-usecs {usecs} × {direction}-frames {frames})"
        sentence = f"a packet may wait {_ms(product)} for its interrupt, as each packet restarts the timer {why}."
        if timer is None:
            sentence = (
                f"a packet may wait {_ms(product)} for its interrupt if each packet restarts the timer {why}, "
                "which is not known."
            )
        found.append(("latency", sentence))
    elif usecs > _LONG_WAIT_US:
        found.append(("latency", f"a packet may wait {_ms(usecs)} for its interrupt ({direction}-usecs)."))
    elif usecs == 0 and frames > 1 and f"coalesce/{direction}-usecs" in params:
        sentence = f"with {direction}-usecs 0 a packet waits without a time limit until {frames} have arrived."
        found.append(("latency", sentence))
    flush_us = int(params.get("gro_flush_timeout", 0)) / 1000 if direction == "rx" else 0
    if flush_us > _LONG_WAIT_US:
        found.append(("latency", f"a packet may wait {_ms(flush_us)} until the kernel polls (gro_flush_timeout)."))
    if params.get(f"coalesce/adaptive-{direction}") == "on":
        found.append(("adaptive", f"adaptive-{direction} is on, so the driver itself changes {direction}-usecs."))
    return found


def _ms(us: float) -> str:
    return f"{us / 1000:.3g} ms"
