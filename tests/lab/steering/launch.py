"""Starts several programs of the lab in one process each, by fork: a start of Python takes long in a busy guest.

    python -m tests.lab.steering.launch '[["tests.lab.consumer", "LOG", ["--port", "9101"]], …]'

Runs in a guest. The output of each goes to a file of the share.
"""

import json
import os
import sys

from tests.lab import consumer, traffic
from tests.lab.inside import SHARE

_PROGRAMS = {"tests.lab.consumer": consumer.main, "tests.lab.traffic": traffic.main}


def main() -> None:
    for program, log, arguments in json.loads(sys.argv[1]):
        if os.fork() == 0:
            file = os.open(SHARE / log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for descriptor in (1, 2):
                os.dup2(file, descriptor)
            sys.argv = [program, *arguments]
            _PROGRAMS[program]()
            return
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


if __name__ == "__main__":
    main()
