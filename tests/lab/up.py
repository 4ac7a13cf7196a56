"""`make lab-up MACHINE=…`: a virtual machine with the agent inside, a backend on this host, a console."""

import argparse
import contextlib
import os
import readline  # noqa: F401 - lets input() edit a line and remember the last ones
import signal
import sys
from collections.abc import Iterator

from tests.lab.fleet import BackendError, await_joined, await_said, backend, start_agent
from tests.lab.machines import MACHINES, PEER
from tests.lab.provision import LabUnavailableError, print_progress, provide
from tests.lab.rig import Guest, GuestError, boot

from coresteer.cli.local_backend import LocalBackendError

COMMAND_S = 60
TRAFFIC_S = 600
TRAFFIC = {
    "udp": ("flood", "--flows", "64", "--rate", "1000", "--count", str(TRAFFIC_S * 1000)),
    "tcp": ("stream", "--flows", "8", "--count", str(16 * 1024)),
    "request": ("request", "--flows", "8", "--count", str(1_000_000)),
}
"""What tests.lab.traffic is asked for, for each interface that traffic goes to."""


def main() -> int:
    """Run until Ctrl-C or the end of input; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.up", description=__doc__)
    parser.add_argument("machine", choices=MACHINES)
    parser.add_argument("--traffic", choices=TRAFFIC, help=f"between the lab's own, {TRAFFIC_S // 60} minutes at most")
    parser.add_argument("--port", type=int, default=os.environ.get("CORESTEER_PORT"), help="of the backend")
    args = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with running(args) as guests:
            console(guests)
    except (LabUnavailableError, GuestError, BackendError, LocalBackendError, OSError) as error:
        print(f"lab-up: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


@contextlib.contextmanager
def running(args: argparse.Namespace) -> Iterator[list[Guest]]:
    """Yield the machine's guests, connected to a backend, and print its address."""
    machines = MACHINES[args.machine]
    kit = provide()
    with backend(args.port) as joined:
        print_progress(f"Booting {', '.join(machine.name for machine in machines)}; it takes half a minute.")
        with boot(kit, *machines, backend_port=joined.port) as guests:
            for guest in guests:
                start_agent(guest, joined)
            for guest in guests:
                await_joined(guest)
            if args.traffic:
                start_traffic(guests, TRAFFIC[args.traffic])
            print(f"Coresteer is at {joined.address}")
            print(f"Create the first administrator with this link, which works once: {joined.set_up_link}", flush=True)
            try:
                yield guests
            finally:
                print_progress("Stopping.")


def start_traffic(guests: list[Guest], what: tuple[str, ...]) -> None:
    """Start traffic to the first guest, from the others or else from its own peer."""
    first, *others = guests
    python = ("python", "-m", "tests.lab.traffic")
    first.start(*python, "serve", "--seconds", str(TRAFFIC_S), output="serve.log")
    await_said(first, "serve.log", "ready")
    addresses = [nic.addresses[0].partition("/")[0] for nic in first.machine.nics if nic.netns is None]
    for address in addresses:
        for sender in others or [first]:
            enter = () if others else ("ip", "netns", "exec", PEER)
            options = (*what, "--to", address, "--seconds", str(TRAFFIC_S))
            sender.start(*enter, *python, *options, output=f"traffic-{address}.log")


def console(guests: list[Guest]) -> None:
    """Run the lines of input; without a terminal, wait for a signal after the last line."""
    names = [guest.machine.name for guest in guests]
    others = "".join(f", or in {name} after “{number}:”" for number, name in enumerate(names[1:], start=2))
    print(f"A line that you type is run in {names[0]} by its shell{others}. Ctrl-C ends everything.", flush=True)
    prompt = f"{names[0]} # " if sys.stdin.isatty() else ""
    while True:
        try:
            line = input(prompt)
        except EOFError:
            if sys.stdin.isatty():
                return
            signal.pause()
        number, colon, rest = line.partition(":")
        chosen, command = (int(number), rest) if colon and number.strip().isdecimal() else (1, line)
        if not 1 <= chosen <= len(guests):
            print(f"There is no guest {chosen}; there are {len(guests)}.", flush=True)
        elif command.strip():
            done = guests[chosen - 1].run("sh", "-c", command, timeout_s=COMMAND_S, check=False)
            print(f"{done.stdout}{done.stderr}[{done.status}]", flush=True)


if __name__ == "__main__":
    sys.exit(main())
