"""A NATS server of this machine's own, which a test may kill and start again."""

import json
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.polling import poll

USER, PASSWORD = "coresteer", "a-password-for-tests"


@dataclass
class NatsServer:
    """nats-server on a port of its own of loopback, which stays the same; it requires a user and a password."""

    folder: Path
    port: int = -1
    _process: "subprocess.Popen[bytes] | None" = field(default=None)

    @property
    def url(self) -> str:
        return f"nats://{USER}:{PASSWORD}@127.0.0.1:{self.port}"

    def start(self) -> None:
        binary = Path(sys.executable).with_name("nats-server")
        arguments = ["--addr", "127.0.0.1", "--port", str(self.port), "--ports_file_dir", str(self.folder)]
        self._process = subprocess.Popen(
            [binary, *arguments, "--user", USER, "--pass", PASSWORD], stderr=subprocess.DEVNULL
        )
        path = self.folder / f"nats-server_{self._process.pid}.ports"
        self.port = int(json.loads(poll(lambda: path.read_text() if path.exists() else ""))["nats"][0].split(":")[-1])

    def pause(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def signal(self, number: int) -> None:
        """Send the server a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
