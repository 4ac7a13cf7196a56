"""An agent with its gate, and a gate alone, as victims of bench_attacks; honest servers beside ask the gate."""

import multiprocessing
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
from msgspec import Struct
from tests.support.polling import poll

from coresteer.cli.local_backend import free_port
from coresteer_agent.runtime.policies_file import PoliciesFile
from coresteer_agent.runtime.policy_state import PolicyState
from coresteer_agent.transport.enrol import NodeKey
from coresteer_agent.transport.gate_server import GateServer
from coresteer_core.policies.base import Mode
from coresteer_core.policies.engine_state import PolicyInForce
from coresteer_core.policies.service_class.policy import ServiceClass, ServiceClasses
from coresteer_gate import Gate

CLASSES = ServiceClasses([ServiceClass("gold", 90.0), ServiceClass("tin", 50.0)], slots=2)
_PROCESSES = multiprocessing.get_context("spawn")
_TREE = {
    "proc/stat": "cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 1 0 1 9 0 0 0 0 0 0\ncpu1 1 0 1 9 0 0 0 0 0 0\n",
    "proc/interrupts": "     CPU0   CPU1   \n 41:    1      0   PCI-MSI 524288-edge      eth0\n",
    "proc/irq/41/smp_affinity_list": "0-1\n",
    **{f"sys/devices/system/cpu/{name}": "0-1\n" for name in ("online", "present", "possible")},
}


class AgentAccess(Struct):
    """What a hostile backend knows: the port at which the agent expects it."""

    port: int


class GateAccess(Struct):
    """What a local user knows: where the gate is."""

    path: str


class AttackedGate:
    """A gate in a process. Its honest client is a server of the first class."""

    def __init__(self, path: Path, pid: int, access: AgentAccess | GateAccess) -> None:
        self.pid = pid
        self._gate = Gate(str(path))
        self._access = access

    def access(self) -> AgentAccess | GateAccess:
        """Return what the attackers know."""
        return self._access

    def request(self) -> None:
        """Enter and leave. Raises OSError when the request has to start without a slot."""
        with self._gate.enter("gold") as admission:
            if not admission.name:
                raise OSError("The gate gave no slot.")

    def dropped(self) -> int:
        """Return 0: there are no honest nodes."""
        return 0

    def stored_mib(self) -> None:
        """Return None: what an agent stores is not compared."""
        return


@contextmanager
def attacked_agent() -> Iterator[AttackedGate]:
    """Run an agent on a small captured tree, with a policy with service classes from an earlier run."""
    folder, port = Path(tempfile.mkdtemp(prefix="coresteer-attacks-")), free_port()
    address = f"http://127.0.0.1:{port}"
    root, state_dir = folder / "root", folder / "state"
    for name, text in _TREE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (state_dir / "agent").mkdir(parents=True)
    (state_dir / "agent/key.json").write_bytes(msgspec.json.encode(NodeKey(address, 7, "victim", "key")))
    in_force = PolicyInForce("1", 1, "classes", 1, Mode.ENFORCE, CLASSES)
    PoliciesFile(state_dir / "agent/policies.json", root).write(PolicyState([in_force]))
    command = [sys.executable, "-m", "coresteer_agent", "run", "--backend", address, "--root", str(root)]
    agent = subprocess.Popen([*command, "--state-dir", str(state_dir)], stderr=subprocess.DEVNULL)
    path = state_dir / "agent/gate.sock"
    try:
        poll(path.exists)
        yield AttackedGate(path, agent.pid, AgentAccess(port))
    finally:
        agent.terminate()
        agent.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def serve_gate(path: str, ours: Connection) -> None:
    """Run a gate until told to stop."""
    server = GateServer(Path(path))
    server.start()
    server.set_policy(CLASSES)
    ours.send(None)
    ours.recv()
    server.stop()


@contextmanager
def attacked_gate() -> Iterator[AttackedGate]:
    """Run a gate that every account can reach."""
    with tempfile.TemporaryDirectory(prefix="coresteer-attacks-") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "gate.sock"
        pipe, theirs = _PROCESSES.Pipe()
        process = _PROCESSES.Process(target=serve_gate, args=(str(path), theirs), daemon=True)
        process.start()
        theirs.close()
        pipe.recv()
        try:
            yield AttackedGate(path, process.pid or 0, GateAccess(str(path)))
        finally:
            pipe.send(None)
            process.join(10)
            process.kill()
