"""What is known of other processes, which may end at any time."""

import psutil


def command_line(process: psutil.Process) -> str:
    """Return a process's command line, empty once it has ended, as workers of the database do at any time."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
