"""Fuzzing of the agent's parsers of kernel files and messages: mutated captured texts, and trees with mutated files.

    python -m tests.bench.bench_fuzz_parsers [--inputs 1000000] [--trees 5000] [--seed 19]

Prints per parser how many inputs it got and how many it refused (ParseError: of the whole file, where nothing of it can
be parsed). Exits with 1 when one raised anything else. tests/agent/collect/test_fuzz_parsers.py is a small version.
"""

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.fixtures.large_tree import LargeTree
from tests.support.parser_fuzz import Fuzzed, fuzz_texts, fuzz_tree, lines


def main() -> int:
    """Run both and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--trees", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=19)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)  # each dropped row is logged once, but here files are whole again at once
    with tempfile.TemporaryDirectory() as folder:
        machine = LargeTree(Path(folder) / "machine", cpus=4, irqs=48, processes=2)
        texts = report("texts", asked.seed, lambda: fuzz_texts(asked.inputs, asked.seed, machine.root))
        trees = report("trees", asked.seed, lambda: fuzz_tree(asked.trees, asked.seed, machine))
    return 1 if texts + trees else 0


def report(name: str, seed: int, run: Callable[[], Fuzzed]) -> int:
    """Run one part, print its figures and return the number of unexpected exceptions."""
    begin_s = time.monotonic()
    found = run()
    print("\n".join(lines(found)))
    slowest_s, slowest = found.slowest
    print(
        f"{name}: {found.inputs.total():,} inputs in {time.monotonic() - begin_s:.0f} s (seed {seed}), "
        f"{len(found.unexpected)} unexpected exceptions, slowest {1000 * slowest_s:.1f} ms ({slowest})\n",
        flush=True,
    )
    return len(found.unexpected)


if __name__ == "__main__":
    sys.exit(main())
