"""Boot machines and run commands in them."""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.lab import qemu
from tests.lab.bridge import attach, bridge
from tests.lab.machines import Machine
from tests.lab.provision import Kit, print_progress

REPOSITORY = Path(__file__).resolve().parents[2]
BOOT_S = 45
"""A boot that takes longer is repeated; each further attempt may take that much longer, as a busy machine emulates
slowly."""
BOOTS = 3
MANAGEMENT = "management"
"""The netdev of a guest that leads to the backend and nowhere else."""
_FORWARD = REPOSITORY / "tests/lab/forward.py"
_INSIDE = REPOSITORY / "tests/lab/inside.py"


class GuestError(Exception):
    """A guest failed; the message has its output."""


@dataclass(frozen=True)
class Done:
    """A completed command. status 124: timeout."""

    status: int
    stdout: str
    stderr: str


class Guest:
    """A running machine. run() executes one command at a time; start() runs one in the background."""

    def __init__(self, machine: Machine, folder: Path, processes: list[subprocess.Popen[bytes]], attempts: int) -> None:
        self.machine = machine
        self.share = folder / "share"
        self.attempts = attempts
        self.boot_s = 0.0
        self._folder = folder
        self._processes = processes
        self._port: socket.socket | None = None
        self._rest = b""

    @property
    def console(self) -> str:
        """Return the output of QEMU, the kernel and the init program."""
        return (self._folder / "console").read_text(errors="replace")

    def connect(self, timeout_s: float) -> None:
        """Wait until the guest accepts commands. Raises GuestError."""
        end = time.monotonic() + timeout_s
        port = socket.socket(socket.AF_UNIX)
        while port.connect_ex(str(self._folder / "control")):
            if self._processes[0].poll() is not None or time.monotonic() > end:
                raise GuestError(f"QEMU ended or does not listen:\n{self.console}")
            time.sleep(0.02)  # QEMU tells nobody when it begins to listen
        self._port = port
        self._receive(end - time.monotonic())

    def run(self, *command: str, timeout_s: float = 300, check: bool = True, env: dict[str, str] | None = None) -> Done:
        """Run a command to its end. Raises GuestError if it fails and check is set, or if the guest does not answer."""
        self._send({"run": command, "timeout_s": timeout_s, "env": env or {}})
        done = Done(**self._receive(timeout_s + 30))
        if check and done.status:
            raise GuestError(f"“{' '.join(command)}” ended with {done.status}: {done.stderr or done.stdout}")
        return done

    def start(self, *command: str, output: str, env: dict[str, str] | None = None) -> int:
        """Start a command in the background with its output in the file share / output; return its PID."""
        self._send({"start": command, "output": output, "env": env or {}})
        pid: int = self._receive(30)["pid"]
        return pid

    def python(self, module: str, *arguments: str, timeout_s: float = 300, check: bool = True) -> Done:
        """Run a module of the checkout."""
        return self.run("python", "-m", module, *arguments, timeout_s=timeout_s, check=check)

    def read(self, path: str) -> str:
        """Return the text of a file, stripped."""
        return self.run("cat", path).stdout.strip()

    def close(self) -> None:
        """End the machine."""
        if self._port is not None:
            self._port.close()
        for process in self._processes:
            process.kill()
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _send(self, value: dict[str, Any]) -> None:
        if self._port is None:
            raise GuestError("The guest is not connected.")
        self._port.settimeout(30)
        self._port.sendall(json.dumps(value).encode() + b"\n")

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        if self._port is None:
            raise GuestError("The guest is not connected.")
        end = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            self._port.settimeout(max(end - time.monotonic(), 0.001))
            try:
                data = self._port.recv(65536)
            except (TimeoutError, ConnectionResetError):
                data = b""
            if not data:
                raise GuestError(f"{self.machine.name} did not answer. Its console ends with:\n{self.console[-2000:]}")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        value: dict[str, Any] = json.loads(line)
        return value


@dataclass(frozen=True)
class _Start:
    """Parameters for starting a machine."""

    kit: Kit
    machine: Machine
    taps: list[int]
    backend_port: int | None
    boot_s: float

    def begin(self, attempt: int) -> Guest:
        folder = Path(tempfile.mkdtemp(prefix="coresteer-lab-"))
        (folder / "share").mkdir()
        (folder / "share/machine.json").write_text(json.dumps(self._description()))
        port = self.backend_port
        attach(self.taps)
        command = qemu.command(
            self.kit,
            self.machine,
            control=folder / "control",
            share=folder / "share",
            python=sys.executable,
            inside=_INSIDE,
            forward=None if port is None else f"{sys.executable} {_FORWARD} {port}",
            taps=self.taps,
        )
        with (folder / "console").open("ab") as console:
            # cat, because QEMU opens the file of its console anew, which a pipe of its own survives
            tee = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=console)
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command],
                stdin=subprocess.DEVNULL,
                stdout=tee.stdin,
                stderr=console,
                env=self.kit.env,
                pass_fds=self.taps,
            )
        if tee.stdin is not None:
            tee.stdin.close()
        return Guest(self.machine, folder, [process, tee], attempt)

    def await_boot(self, guest: Guest) -> Guest:
        """Return a guest that accepts commands in time; boots up to BOOTS times. Raises GuestError."""
        while True:
            began = time.monotonic()
            try:
                guest.connect(self.boot_s * guest.attempts)
            except GuestError as error:
                guest.close()
                if guest.attempts == BOOTS:
                    raise GuestError(f"{self.machine.name} did not boot in {BOOTS} attempts. {error}") from error
                print_progress(f"{self.machine.name} did not boot; trying again.")
                guest = self.begin(guest.attempts + 1)
            else:
                guest.boot_s = time.monotonic() - began
                return guest

    def _description(self) -> dict[str, Any]:
        nics = [
            {**asdict(nic), "mac": qemu.mac(nic), "name": f"eth{number}"}
            for number, nic in enumerate(self.machine.nics)
        ]
        if self.backend_port is not None:
            nics.append({"mac": qemu.MANAGEMENT_MAC, "name": MANAGEMENT, "netns": None, "addresses": ["10.0.2.15/24"]})
        return {"name": self.machine.name, "nics": nics}


@contextlib.contextmanager
def boot(
    kit: Kit, *machines: Machine, backend_port: int | None = None, boot_s: float = BOOT_S
) -> Iterator[list[Guest]]:
    """Yield running machines; several are connected by a bridge. Ends all of them.

    backend_port: of a backend on this host for the guests. boot_s: how long a boot may take. Raises GuestError.
    """
    with contextlib.ExitStack() as stack:
        queues = [sum(nic.queues for nic in machine.nics) for machine in machines]
        taps = stack.enter_context(bridge(kit, queues)) if len(machines) > 1 else [[] for _ in machines]
        starts = [_Start(kit, machine, own, backend_port, boot_s) for machine, own in zip(machines, taps, strict=True)]
        begun = [(start, start.begin(1)) for start in starts]
        guests: list[Guest] = []
        try:
            guests.extend(start.await_boot(guest) for start, guest in begun)
            yield guests
        finally:
            for guest in {id(guest): guest for guest in [*guests, *(guest for _, guest in begun)]}.values():
                guest.close()
