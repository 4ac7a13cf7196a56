"""Traffic mixes of the bench of policies, and their programs in the guest."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.lab.fleet import await_said
from tests.lab.machines import PEER
from tests.lab.rig import Guest

_SOURCE_PORT = 20_000
_UDP_BYTES = 1_400
_REQUEST_PAUSE_MS = 20
_REQUESTS, _SERVER = "requests.log", "serve.log"


@dataclass(frozen=True)
class Consumer:
    """A receiving process: its port, the address to which its flows are sent, their number and KiB/s together."""

    port: int
    address: str
    flows: int
    kib_per_s: int

    @property
    def log(self) -> str:
        return f"consumer-{self.port}"


@dataclass(frozen=True)
class Mix:
    """Consumers and their traffic. chunk: bytes per write of a sender. life_s: of processes and flows; 0: no end.

    connecting_s: within which all connections exist in an emulated machine.
    """

    name: str
    consumers: tuple[Consumer, ...]
    udp: bool = False
    chunk: int = 64 << 10
    life_s: int = 0
    connecting_s: int = 0


_HEAVY = (
    Consumer(9101, "10.1.0.1", 6, 3000),
    Consumer(9102, "10.1.0.1", 3, 1500),
    Consumer(9103, "10.2.0.1", 6, 3000),
    Consumer(9104, "10.2.0.1", 2, 800),
)
MIXES = {
    mix.name: mix
    for mix in (
        Mix("few heavy streams", _HEAVY),
        Mix(
            "2,000 small connections",
            tuple(Consumer(9101 + n, f"10.{1 + n // 2}.0.1", 500, 300) for n in range(4)),
            chunk=512,
            connecting_s=45,
        ),
        Mix(
            "UDP, one elephant",
            (
                Consumer(9101, "10.1.0.1", 1, 1500),
                Consumer(9102, "10.1.0.1", 8, 200),
                Consumer(9103, "10.2.0.1", 8, 200),
                Consumer(9104, "10.2.0.1", 4, 100),
            ),
            udp=True,
        ),
        Mix("churn every 10 s", _HEAVY, life_s=10),
    )
}


@contextmanager
def traffic(guest: Guest, mix: Mix, seconds: float) -> Iterator[None]:
    """Run a mix's consumers and senders for at most some seconds; their lines go to the consumers' logs."""
    arguments = [_arguments(mix, each, _SOURCE_PORT + 100 * n, seconds) for n, each in enumerate(mix.consumers)]
    logs = [each.log for each in mix.consumers]
    receivers = [("tests.lab.consumer", log, receive) for log, (receive, _) in zip(logs, arguments, strict=True)]
    receivers.append(("tests.lab.traffic", _SERVER, ["serve", "--seconds", str(seconds)]))
    senders = [("tests.lab.traffic", f"{log}-sender", send) for log, (_, send) in zip(logs, arguments, strict=True)]
    launch = ("python", "-m", "tests.lab.steering.launch")
    try:
        for log in (*logs, _SERVER):
            (guest.share / log).write_text("")
        guest.start(*launch, json.dumps(receivers), output="receivers.log")
        for log in (*logs, _SERVER):
            await_said(guest, log, "ready")
        guest.start("ip", "netns", "exec", PEER, *launch, json.dumps(senders), output="senders.log")
        yield
    finally:
        guest.run("pkill", "-f", "tests.lab.(steering|traffic|consumer)", check=False)


def ask(guest: Guest, settle_s: float, seconds: float) -> None:
    """Begin to send requests beside the mix, whose times count after settle_s: a flow that begins later is no steady
    load, and irq-spread moves its interrupt.
    """
    bounds = ["--count", "100000", "--seconds", str(settle_s + seconds), "--after", str(settle_s)]
    bounds += ["--pause-ms", str(_REQUEST_PAUSE_MS)]
    program = ("python", "-m", "tests.lab.traffic", "request", "--to", "10.1.0.1", *bounds)
    guest.start("ip", "netns", "exec", PEER, *program, output=_REQUESTS)


def answered_p99_us(guest: Guest) -> float | None:
    """Return the 99th percentile of the requests' round-trip time, µs; None if they had no answer."""
    await_said(guest, _REQUESTS, "}")
    said = (guest.share / _REQUESTS).read_text()
    found: float = json.loads(said)["p99_us"] if said.startswith("{") else 0.0  # else it could not connect
    return found or None


def _arguments(mix: Mix, each: Consumer, source_port: int, seconds: float) -> tuple[list[str], list[str]]:
    """Return the arguments of a consumer and of its sender."""
    peer = ".".join([*each.address.split(".")[:3], "9"])
    receive = ["--port", str(each.port), "--seconds", str(seconds), "--life", str(mix.life_s)]
    send = ["--to", each.address, "--port", str(each.port), "--flows", str(each.flows)]
    send += ["--count", "100000000", "--seconds", str(seconds)]
    if mix.udp:
        receive += ["--udp-from", peer, "--flows", str(each.flows), "--source-port", str(source_port)]
        rate = max(each.kib_per_s * 1024 // _UDP_BYTES, 1)
        send += ["--source-port", str(source_port), "--size", str(_UDP_BYTES), "--rate", str(rate)]
        return receive, ["flood", *send]
    send += ["--kib-per-s", str(each.kib_per_s), "--chunk", str(mix.chunk), "--life", str(mix.life_s)]
    return receive, ["stream", *send]
