"""Run code in a forked process that is killed at a chosen file operation, to test what is left behind."""

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.sharedctypes import RawValue

Operation = Callable[[Callable[[], None]], object]
"""Code to run. It calls its argument when its file operations begin to count."""

_FORK = multiprocessing.get_context("fork")  # a new interpreter would take half a second for each kill


def count_operations(operation: Operation) -> int:
    """Run the operation to its end in another process and return the number of its file operations."""
    exit_code, count = _run(operation, 0, 0)
    assert exit_code == 0
    return count


def kill_at(instant: int, operation: Operation, *, torn: int = 0) -> None:
    """Run the operation in another process and kill it before its n-th file operation (instant).

    torn: tenths of the data that are still written if that operation is a write.
    """
    exit_code, _ = _run(operation, instant, torn)
    assert exit_code == -signal.SIGKILL


def _run(operation: Operation, instant: int, torn: int) -> tuple[int | None, int]:
    count = RawValue("i", 0)

    def counted(name: str) -> None:
        real = getattr(os, name)

        def call(*args: object, **kwargs: object) -> object:
            count.value += 1
            if count.value == instant:
                if name == "write" and torn:
                    fd, data = args
                    real(fd, data[: len(data) * torn // 10])  # type: ignore[index,arg-type]  # as for os.write
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        setattr(os, name, call)

    def begin() -> None:
        for name in ("open", "write", "fsync", "pread", "read"):
            counted(name)

    process = _FORK.Process(target=operation, args=(begin,))
    process.start()
    process.join(60)
    return process.exitcode, count.value
