"""`--watch`: follow a change, a rollout or a simulation until it ends."""

import argparse
import json
import sys
import time
from typing import Any  # Any: answers are JSON of any shape

from coresteer.cli import api_client
from coresteer.cli.api_client import ApiClient
from coresteer.cli.api_request import send
from coresteer.cli.operations import Operation

GOOD_ENDS = ("confirmed", "done")


def watched(client: ApiClient, operation: Operation, answer: Any) -> Any:  # noqa: ANN401 - JSON
    """Print each new state on stderr until the end; return the last answer. operation: returns the present state.

    Raises ApiError and UnreachableError.
    """
    (argument,) = operation.arguments
    arguments = argparse.Namespace(**{argument.name: answer["id"]})
    said = ""
    while True:
        line = _progress(answer)
        if line != said:
            print(line, file=sys.stderr, flush=True)
        said = line
        if answer["ended_at"] is not None or answer["state"] in GOOD_ENDS:
            return answer
        time.sleep(api_client.POLL_S)
        answer = json.loads(api_client.through_outages(lambda: send(client, operation, arguments, None)))


def _progress(answer: Any) -> str:  # noqa: ANN401 - JSON
    runs = f" {answer['runs_done']}/{answer['runs_planned']}" if "runs_done" in answer else ""
    return f"{answer['state']}{runs}: {answer['sentence']}"
