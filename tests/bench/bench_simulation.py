"""Events per second of the coscheduling simulation: the compiled engine against the readable model, on one CPU.

    python -m tests.bench.bench_simulation [--jobs 40]

Both simulate the same jobs, and so the same events; the first run of the engine, which compiles it, is not counted.
"""

import argparse
import time

from tests.support.coscheduling_reference import Reference

from coresteer.simulation.jobs import generated, prepare
from coresteer.simulation.parameters import JobType, Parameters, Pattern
from coresteer.simulation.run import run
from coresteer.simulation.schemes import SCHEMES

CASES = ("SB", "SB+RO", "PB", "PB+RO")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=40)
    parameters = Parameters(nodes=8, mean_run_s=1.0, jobs=parser.parse_args().jobs)
    print("scheme   events      engine, events/s  reference, events/s   ratio", flush=True)
    for name in CASES:
        jobs = prepare(
            generated(parameters, 1), parameters,
            pattern=Pattern.ALL_TO_ALL, job_type=JobType.SWL3, imbalance=0.5, seed=1,
        )  # fmt: skip
        run(parameters, SCHEMES[name], jobs)
        begin = time.process_time()
        events = run(parameters, SCHEMES[name], jobs).events
        engine_s = time.process_time() - begin
        begin = time.process_time()
        Reference(parameters, SCHEMES[name], jobs).run()
        reference_s = time.process_time() - begin
        print(
            f"{name:8} {events:>9,}  {events / engine_s:>16,.0f}  {events / reference_s:>19,.0f}  "
            f"{reference_s / engine_s:>5.0f} ×",
            flush=True,
        )


if __name__ == "__main__":
    main()
