"""Figures from which a node is a hot spot, beside dropped packets, on the fleet page and in `coresteer top`."""

SOFTIRQ_PERCENT = 60
"""Softirq of its hottest CPU."""
BUSY_PERCENT = 95
"""Time of its busiest CPU."""
SQUEEZED_PER_S = 10
"""Time squeezes."""
SOFTIRQ_BOUND_PERCENT = 90
"""Softirq of its hottest CPU from which a node is counted among those that softirq nearly fills."""
