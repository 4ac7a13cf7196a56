"""The exit codes of the commands that use the API; each group's help says which of them it has."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes. One number has two names where what it means depends on the command."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    DIFFERENT = USAGE  # of `plan`, where wrong usage is FAILED
    WAITING = 3
    ENDED_EARLY = WAITING  # of an experiment, which nobody needs to approve
    WORSE = 4
