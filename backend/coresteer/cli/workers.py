"""`coresteer serve --workers N`: several backends on one port, each a process and a replica of its own."""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from multiprocessing.synchronize import Event
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Protocol

from prometheus_client.multiprocess import mark_process_dead

from coresteer.config import Config
from coresteer.http_server.tls import tls_context
from coresteer.listen import listening_socket
from coresteer.process import die_with_parent

_RESTART_S = 1.0
_GRACE_S = 15.0
_spawn = multiprocessing.get_context("spawn")


class Worker(Protocol):
    """Interface of the function that each worker runs, in a process of its own."""

    def __call__(self, config: Config, number: int, ready: Event) -> int:
        """Serve as one of several workers, and set ready once it does; return the exit code."""


def serve_workers(config: Config, count: int, work: Worker, say: Callable[[str], None]) -> int:
    """Run workers until SIGINT or SIGTERM, and start one that ends again; return the exit code. Raises ListenError."""
    listening_socket(config).close()  # another program on the port would not be noticed once it is shared
    with (
        listening_socket(config, shared=True),  # so that nobody else takes it while a worker starts again
        TemporaryDirectory(prefix="coresteer-metrics-") as metrics,
    ):
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = metrics  # prometheus-client adds up what the workers count there
        tls_context(config)  # makes the private authority once
        if config.nats_url is None:
            say(
                "Without CORESTEER_NATS_URL, each worker shows live samples only of the agents that are connected to "
                "it, and refuses commands to the others."
            )
        before = signal.signal(signal.SIGTERM, _interrupt)
        ready: list[Event] = [_spawn.Event() for _ in range(count)]
        workers: list[SpawnProcess] = []
        try:
            workers += [_started(work, config, number, ready[number]) for number in range(count)]
            while True:
                wait([worker.sentinel for worker in workers])
                for number, worker in enumerate(workers):
                    if worker.exitcode is None:
                        continue
                    if not ready[number].is_set():
                        return 1  # it has said why
                    say(f"Worker {number + 1} ended with exit code {worker.exitcode}; it is started again.")
                    mark_process_dead(worker.pid, metrics)
                    time.sleep(_RESTART_S)
                    workers[number] = _started(work, config, number, ready[number])
        except KeyboardInterrupt:
            return 0
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.join(_GRACE_S)
                worker.kill()
            signal.signal(signal.SIGTERM, before)


def _interrupt(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


def _started(work: Worker, config: Config, number: int, ready: Event) -> SpawnProcess:
    worker = _spawn.Process(target=_run, args=(work, config, number, ready, os.getpid()))
    worker.start()
    return worker


def _run(work: Worker, config: Config, number: int, ready: Event, parent: int) -> None:
    die_with_parent(parent, signal.SIGTERM)
    sys.exit(work(config, number, ready))
