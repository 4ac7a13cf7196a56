"""A backend and an agent of this machine's own for the time of one command: `coresteer up` in a temporary folder."""

import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue

from coresteer.cli.api_client import ApiClient, ApiError, sign_up
from coresteer.process import die_with_parent

_START_S = 60.0
_END_S = 20.0


class LocalBackendError(Exception):
    """The backend or the agent did not start, or left something; the message says what they printed."""


@contextmanager
def local_backend() -> Iterator[ApiClient]:
    """Run PostgreSQL, backend and agent, and restore every setting at the end, also after an exception.

    Yields a client with the rights of an administrator. Raises LocalBackendError.
    """
    folder = Path(tempfile.mkdtemp(prefix="coresteer-papers-"))
    environment = environment_of(folder, free_port(), platform.node())
    try:
        with running_up(environment) as (address, token):
            yield sign_up(address, token)
    except ApiError as error:
        raise LocalBackendError(str(error)) from None
    finally:
        left = _restored(folder, environment)
        shutil.rmtree(folder, ignore_errors=True)
        if left:
            raise LocalBackendError(f"Not all settings could be restored: {left}")


def environment_of(state_dir: Path, port: int, node_name: str) -> dict[str, str]:
    """Return this process's environment for a `coresteer up` that is independent of the user's."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("CORESTEER_", "DATABASE_URL"))}
    return ours | {
        "CORESTEER_STATE_DIR": str(state_dir),
        "CORESTEER_PORT": str(port),
        "CORESTEER_NODE_NAME": node_name,
    }


def free_port() -> int:
    """Return a TCP port of loopback on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def running_up(environment: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Run `coresteer up`; yield its address and set-up token. It ends with this process. Raises LocalBackendError."""
    parent = os.getpid()
    process = subprocess.Popen(
        [sys.executable, "-m", "coresteer", "up"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,  # Ctrl-C is for the caller alone, who first ends what uses the backend
        preexec_fn=lambda: die_with_parent(parent, signal.SIGTERM),  # noqa: PLW1509 - it calls prctl and getppid only
    )
    try:
        yield _announced(process)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _announced(process: "subprocess.Popen[str]") -> tuple[str, str]:
    """Return the address and the set-up token that `coresteer up` prints; read its later output, so that it runs on."""
    lines: SimpleQueue[str | None] = SimpleQueue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    printed = ""
    try:
        while (line := lines.get(timeout=_START_S)) is not None:
            printed += line
            address, found, token = line.rpartition("/setup?token=")
            if found:
                return address[address.index("http") :], token.strip()
    except Empty:
        pass
    raise LocalBackendError(f"The backend did not start. It printed:\n{printed.rstrip()}")


def _restored(folder: Path, environment: dict[str, str]) -> str:
    """Restore what the agent left, if anything; return the reason where that was not possible, empty otherwise."""
    command = [sys.executable, "-m", "coresteer_agent", "restore", "--state-dir", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).strip()
