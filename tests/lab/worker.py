"""A server of a service class: listens, and repeatedly enters the gate and works while a policy is in force.

Runs in a guest.
"""

import argparse
import os
import socket
import time

from coresteer_gate import Gate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", help="of its class")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cpu", type=int, required=True)
    parser.add_argument("--work-ms", type=float, required=True, help="of CPU time, for each request")
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.cpu})
    gate = Gate()
    with socket.create_server(("", args.port)):
        print("ready", flush=True)
        while True:
            with gate.enter(args.name) as entered:
                done = time.thread_time() + args.work_ms / 1000
                while entered.name and time.thread_time() < done:
                    pass
            if not entered.name:
                time.sleep(0.2)  # it looks for a policy as a client would that comes now and then


if __name__ == "__main__":
    main()
