"""Reports of the papers' templates, from this machine or from the lab's: each is run, exported and timed.

    python -m tests.lab.bench_reports FOLDER [--lab] [--only SLUG …] [--measure-s 2] [--blocks 6]

Without --lab the traffic is between namespaces of this machine. With it two agents run in one guest: the node under
test on an igb, and its peer in the namespace that the traffic comes from.
"""

import argparse
import contextlib
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bench.bench_experiments import start, verdict_of, wait_for_end
from tests.lab.fleet import HOST, Backend, agent_in, backend
from tests.lab.inside import SHARE
from tests.lab.machines import PEER, TWO_SOCKET
from tests.lab.provision import provide
from tests.lab.qemu import BACKEND
from tests.lab.rig import Guest, boot

RELAY_PORT = 8420
LAB_MBIT_PER_S = 20
"""An emulated machine that is given more has no time left for what measures."""
EXPORTS = [("html", "en"), ("html", "ko"), ("pdf", "en"), ("pdf", "ko"), ("csv", "en"), ("json", "en"), ("md", "en")]
RELAY = """
import selectors, socket, sys, threading
def pass_on(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)
with socket.create_server((sys.argv[1], int(sys.argv[2]))) as listener:
    print("ready", flush=True)
    while True:
        near, _ = listener.accept()
        far = socket.create_connection((sys.argv[3], int(sys.argv[4])))
        for ends in ((near, far), (far, near)):
            threading.Thread(target=pass_on, args=ends, daemon=True).start()
"""
"""In the guest: the peer's namespace has no other way to the backend."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lab", action="store_true")
    parser.add_argument("--only", nargs="+", default=[], metavar="SLUG")
    parser.add_argument("--measure-s", type=float, default=2.0)
    parser.add_argument("--blocks", type=int, default=6)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    with backend() as host, contextlib.ExitStack() as stack:
        peer = None
        if args.lab:
            [guest] = stack.enter_context(boot(provide(), TWO_SOCKET, backend_port=host.port))
            stack.enter_context(agent_in(guest, host))
            node = host.await_live(guest.machine.name)["id"]
            peer = stack.enter_context(peer_in(guest, host))
        else:
            node = host.await_live(HOST)["id"]
        spec = {"type": "network-process"}
        host.request("POST", "/api/v1/policies", {"name": "near their interrupts", "mode": "observe", "spec": spec})
        query = "" if peer is None else f"?peer_node_id={peer}"
        for template in host.request("GET", f"/api/v1/nodes/{node}/experiment-templates{query}"):
            if not args.only or template["slug"] in args.only:
                report(host, template, args)


def report(host: Backend, template: dict[str, Any], args: argparse.Namespace) -> None:
    """Run a template's experiment and store its reports."""
    spec, slug = template["spec"], template["slug"]
    if spec is None:
        print(f"{slug}: not here: {template['unavailable_because']}", flush=True)
        return
    if spec["workload"]["type"] != "classes":
        spec |= {"measure_s": args.measure_s}
    elif args.lab:
        spec |= {"measure_s": 120, "workload": {**spec["workload"], "requests": 10}}
    if args.lab and "limit_mbit_per_s" in spec["workload"]:
        spec["workload"]["limit_mbit_per_s"] = LAB_MBIT_PER_S
    spec |= {"blocks": args.blocks, "aa_blocks": args.blocks, "settle_s": min(spec["settle_s"], 6), "seed": 1}
    began = time.monotonic()
    ended = wait_for_end(host, start(host, spec))
    print(f"{slug}: {ended['state']} after {time.monotonic() - began:.0f} s, {ended['runs_done']} runs, "
          f"{ended['runs_discarded']} discarded. {ended['sentence']}", flush=True)  # fmt: skip
    verdict_of(ended)
    for form, language in EXPORTS:
        asked = time.monotonic()
        query = urllib.parse.urlencode({"format": form, "language": language})
        data = host.read(f"/api/v1/experiments/{ended['id']}/report?{query}")
        path = args.folder / f"{'lab' if args.lab else 'here'}-{slug}-{language}.{form}"
        path.write_bytes(data)
        print(f"  {path.name}: {len(data) / 1000:,.0f} kB in {time.monotonic() - asked:.2f} s", flush=True)


@contextlib.contextmanager
def peer_in(guest: Guest, host: Backend) -> Iterator[int]:
    """Run an agent in the namespace that generates the guest's traffic; yield its node's id."""
    near = guest.machine.nics[0].addresses[0].partition("/")[0]
    relay = guest.start("python", "-c", RELAY, near, str(RELAY_PORT), *map(str, BACKEND), output="relay.log")
    name = f"{guest.machine.name}-peer"
    (guest.share / "peer-token").write_text(host.token(name))
    agent = guest.start(
        *("ip", "netns", "exec", PEER, "coresteer-agent", "run", "--backend", f"http://{near}:{RELAY_PORT}"),
        *("--insecure", "--name", name, "--state-dir", "/run/peer", "--token-file", str(SHARE / "peer-token")),
        output="peer.log",
    )
    try:
        yield host.await_live(name, 60)["id"]
    finally:
        guest.run("kill", str(agent), str(relay), check=False)


if __name__ == "__main__":
    main()
