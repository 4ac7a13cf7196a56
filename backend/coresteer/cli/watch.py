"""`--watch`: follow a change, a rollout or a simulation until it ends."""

import argparse
import json
import sys
import time
from typing import Any  # Any: answers are JSON of any shape

from coresteer.cli.api_client import ApiClient, UnreachableError
from coresteer.cli.api_request import send
from coresteer.cli.operations import Operation

POLL_S = 1.0
MAX_OUTAGE_S = 600.0
"""How long to wait for a backend that does not answer: it may be started again."""
GOOD_ENDS = ("confirmed", "done")


def watched(client: ApiClient, operation: Operation, answer: Any) -> Any:  # noqa: ANN401 - JSON
    """Print each new state on stderr until the end; return the last answer. operation: returns the present state.

    Raises ApiError and UnreachableError.
    """
    (argument,) = operation.arguments
    arguments = argparse.Namespace(**{argument.name: answer["id"]})
    said, answered = "", time.monotonic()
    while True:
        line = _progress(answer)
        if line != said:
            print(line, file=sys.stderr, flush=True)
        said = line
        if answer["ended_at"] is not None or answer["state"] in GOOD_ENDS:
            return answer
        time.sleep(POLL_S)
        try:
            answer = json.loads(send(client, operation, arguments, None))
            answered = time.monotonic()
        except UnreachableError as error:
            if time.monotonic() - answered > MAX_OUTAGE_S:
                raise
            print(f"coresteer: {error} Retrying.", file=sys.stderr, flush=True)


def _progress(answer: Any) -> str:  # noqa: ANN401 - JSON
    runs = f" {answer['runs_done']}/{answer['runs_planned']}" if "runs_done" in answer else ""
    return f"{answer['state']}{runs}: {answer['sentence']}"
