"""The agent, which also prints its reorderings: a line of JSON each, with all inputs, in a file of the guest's share.

python -m tests.lab.recording_agent run …          (arguments of coresteer-agent)
"""

import sys

import msgspec
from tests.lab.inside import SHARE

from coresteer_agent.__main__ import main
from coresteer_agent.runtime import coscheduling
from coresteer_core.policies.coscheduling.boost import Reordering, choose

REORDERINGS = "reorderings.jsonl"


def record(reordering: Reordering) -> Reordering:
    """Return a reordering with the processes to boost, and write it down."""
    chosen = choose(reordering)
    if chosen.messages:
        with (SHARE / REORDERINGS).open("ab") as output:
            output.write(msgspec.json.encode(chosen) + b"\n")
    return chosen


if __name__ == "__main__":
    vars(coscheduling)["choose"] = record
    sys.exit(main())
