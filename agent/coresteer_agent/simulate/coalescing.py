"""Interrupt coalescing of simulated NICs: their parameters and their drivers' responses to writes."""

import errno
import math
import os

from coresteer_core.node.nic import Timer, selects_adaptive_mode
from coresteer_core.node.nic_model import TimerParams

_POLLING = {"gro_flush_timeout": "0", "napi_defer_hard_irqs": "0", "threaded": "0"}
DEFAULT_PARAMS = {
    "igb": {
        "coalesce/rx-usecs": "3",
        "coalesce/tx-usecs": "0",
        "ntuple": "off",
        "ring/rx": "256",
        "ring/tx": "256",
        **_POLLING,
    },
    "mlx5_core": {
        "coalesce/rx-usecs": "8",
        "coalesce/rx-frames": "128",
        "coalesce/adaptive-rx": "on",
        "coalesce/cqe-mode-rx": "on",
        "coalesce/tx-usecs": "16",
        "coalesce/tx-frames": "32",
        "coalesce/adaptive-tx": "on",
        "coalesce/cqe-mode-tx": "off",
        "ntuple": "on",
        "ring/rx": "1024",
        "ring/tx": "1024",
        **_POLLING,
    },
    "ena": {
        "coalesce/rx-usecs": "20",
        "coalesce/adaptive-rx": "off",
        "coalesce/tx-usecs": "64",
        "ring/rx": "1024",
        "ring/tx": "1024",
        **_POLLING,
    },
}
"""Default parameters of a NIC by driver."""
PARAM_MAXIMA = {
    "igb": {"ring/rx": "4096", "ring/tx": "4096"},
    "mlx5_core": {"ring/rx": "8192", "ring/tx": "8192"},
    "ena": {"ring/rx": "16384", "ring/tx": "1024"},
}

_OWN_MAX_PER_S = 12_000.0
"""Interrupts of a queue at full load where the NIC adapts its coalescing."""
_MLX5_MAX_US = 4095
_IGB_STEP_US = 8


def driver_response(driver: str | None, param: str, value: str, was: str) -> str:
    """Return the value of a NIC parameter that reads back after a write. Raises OSError if the driver refuses it.

    was: the value before. As real drivers do: mlx5_core refuses long waits, igb rounds to steps, ena acknowledges
    adaptive-rx and leaves it off (as virtio_net does).
    """
    if driver == "mlx5_core" and param == "coalesce/rx-usecs" and int(value) > _MLX5_MAX_US:
        raise OSError(errno.ERANGE, os.strerror(errno.ERANGE))
    if driver == "igb" and param == "coalesce/rx-usecs" and not selects_adaptive_mode(driver, int(value)):
        return str(-(-int(value) // _IGB_STEP_US) * _IGB_STEP_US)
    return was if driver == "ena" and param == "coalesce/adaptive-rx" else value


def interrupts_per_s(wait: TimerParams | None, packets_per_s: float) -> float:
    """Return the interrupt rate of a queue for Poisson arrivals of packets_per_s.

    It applies while the queue's CPU does not poll. wait: None where the NIC adapts its coalescing. Closed form of the
    renewal process that coresteer_core.node.nic_model.predict simulates.
    """
    if packets_per_s <= 0:
        return 0.0
    if wait is None:
        return packets_per_s / (1 + packets_per_s / _OWN_MAX_PER_S)
    wait_s, frames = wait.rx_usecs * 1e-6, wait.rx_frames or 0
    if not wait_s:
        return packets_per_s / max(1, frames)
    alone = math.exp(-packets_per_s * wait_s)
    if wait.timer is Timer.RESTARTING:
        # packets until one is alone for wait_s, or rx-frames have arrived; without rx-frames that may be never
        together = (1 - (1 - alone) ** frames) / alone if frames and alone > 1e-9 else frames or 1 / max(alone, 1e-9)
        return packets_per_s / max(1.0, together)
    held_s = wait_s if not frames else min(wait_s, (frames - 1) / packets_per_s)
    return 1 / (held_s + (alone if wait.timer is Timer.THROTTLE else 1.0) / packets_per_s)
