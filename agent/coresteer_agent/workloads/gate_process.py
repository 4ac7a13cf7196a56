"""Program that serves a gate in its own process, which an experiment can kill.

python -m coresteer_agent.workloads.gate_process PATH POLICY CPUS     (JSON; stdin: ends when it is closed)
"""

import os
import sys
from pathlib import Path

import msgspec

from coresteer_agent.transport.gate_server import GateServer
from coresteer_core.policies.service_class.policy import ServiceClasses


def main() -> None:
    """Serve the gate until stdin is closed; write a byte when it is ready."""
    path, policy, cpus = sys.argv[1:]
    os.sched_setaffinity(0, msgspec.json.decode(cpus, type=list[int]))
    server = GateServer(Path(path))
    server.set_policy(msgspec.json.decode(policy, type=ServiceClasses))
    server.start()
    os.write(1, b" ")
    os.read(0, 1)
    server.stop()


if __name__ == "__main__":
    main()
