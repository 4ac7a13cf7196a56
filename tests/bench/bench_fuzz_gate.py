"""Fuzzing of the gate: mutated messages over connections of several accounts, which open and close.

    python -m tests.bench.bench_fuzz_gate [--inputs 100000] [--seed 8]

Prints how many inputs ended how. Exits with 1 when the gate ended, answered anything that is no answer, or kept a slot
of a connection that was closed. tests/agent/test_gate.py has a small version.
"""

import argparse
import logging
import sys
import time

from tests.support.gate_fuzz import fuzz_gate


def main() -> int:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=8)
    asked = parser.parse_args()
    logging.getLogger("coresteer.gate").setLevel(logging.ERROR)
    begin_s = time.monotonic()
    found = fuzz_gate(asked.inputs, asked.seed)
    print(f"{asked.inputs:,} inputs over a live gate in {time.monotonic() - begin_s:.0f} s, seed {asked.seed}")
    for outcome, count in found.outcomes.most_common():
        print(f"  {count:>9,} {outcome}")
    print("\n".join(found.wrong[:20]) or "0 unexpected exceptions, answers or remains.")
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
