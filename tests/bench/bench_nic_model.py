"""The model's figures beside those of Park, Woo, Lee and Kim, for every point that they state.

    python -m tests.bench.bench_nic_model

tests/core/coalescing_sweep.py says what was assumed of their machine and what was not fitted. Exits with 1 where a
figure does not bear out what they say.
"""

import sys

from tests.core.coalescing_sweep import HOST, POINTS, RING, TOLERANCE


def main() -> int:
    """Print the table; whether every point holds, as an exit code."""
    rows = [(point, figure, point.holds(figure)) for point in POINTS for figure in [point.figure()]]
    width = max(len(point.stated) for point in POINTS)
    print(f"{'stated':{width}}  {'authors':>10}  {'model':>12}  holds")
    for point, figure, holds in rows:
        digits = 1 if point.unit != "/s" else 0
        print(
            f"{point.stated:{width}}  {point.theirs:>10}  {f'{figure:,.{digits}f}{point.unit}':>12}"
            f"  {'yes' if holds else 'NO'}"
        )
    print(
        f"\nTolerance of a figure given as about: {TOLERANCE:.0%}. Host: {HOST.entry_us:.0f} µs to enter, "
        f"{HOST.packet_us:.0f} µs a frame, buffer of {RING} frames; an acknowledgement for every second frame."
    )
    return 0 if all(holds for _, _, holds in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
