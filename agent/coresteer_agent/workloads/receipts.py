"""Receipts: by which a client knows that a program of the experiment receives what it sends to another node.

No load is sent before the receiving program has answered a nonce at the server's address, and the load ends when that
program's reports have stopped for a second. So neither a node that states another's address nor the backend can direct
a load at a machine that does not take part.

Datagrams, since a connection could stall under the load. The client sends NONCE + HMAC(key, "client" NONCE) until the
first report arrives. From then on the server sends SEQ + HMAC(key, "server" NONCE SEQ) every 50 ms to this one client,
with a growing SEQ. A program without the key, which the backend makes for each run, can neither answer nor make the
server send. Both ends are processes of their own beside the program that sends or receives, and end with it.
"""

import hmac
import os
import select
import signal
import socket
import time
import traceback
from collections.abc import Callable
from contextlib import suppress

from coresteer_agent.workloads.traffic_protocol import (
    FAILED,
    Give,
    ReceiptsPart,
    Require,
    exit_with_error,
    print_line,
)

ANSWER_S = 2.0
SILENCE_S = 1.0
_ASK_EVERY_S = 0.1
_REPORT_EVERY_S = 0.05
_NONCE_BYTES = 16
_SEQ_BYTES = 8
_MAC_BYTES = 32


def begin_receipts(part: ReceiptsPart | None) -> None:
    """Begin to give or require receipts; return once the load may begin. Exits with the reason if it may not."""
    match part:
        case Give(descriptor, key):
            with socket.socket(fileno=descriptor) as server:
                _beside(lambda program: _give(server, key.encode(), program))
        case Require(host, port, key):
            _require((host, port), key.encode())


def _require(server: tuple[str, int], key: bytes) -> None:
    nonce = os.urandom(_NONCE_BYTES)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(server)
            seq = _first_report(client, key, nonce)
            _beside(lambda program: _watch(client, key, nonce, seq, program))
    except OSError as error:
        exit_with_error(
            f"No load is sent to {server[0]}: no program of the experiment answers there at UDP port {server[1]} "
            f"({error.strerror or error})."
        )


def _first_report(client: socket.socket, key: bytes, nonce: bytes) -> int:
    """Return the sequence number of the first valid report. Raises TimeoutError after 2 s."""
    question = nonce + _mac(key, b"client", nonce)
    until_s = time.monotonic() + ANSWER_S
    while time.monotonic() < until_s:
        try:
            client.settimeout(_ASK_EVERY_S)
            client.send(question)
            if (seq := _valid(client.recv(_SEQ_BYTES + _MAC_BYTES + 1), key, nonce)) is not None:
                return seq
        except ConnectionRefusedError:
            time.sleep(_ASK_EVERY_S)  # the receiving program has not begun
        except TimeoutError:
            pass
    raise TimeoutError(f"nothing within {ANSWER_S:g} s")


def _watch(client: socket.socket, key: bytes, nonce: bytes, seq: int, program: int) -> None:
    """End the sending program once no new report has arrived for a second; return when it ends itself."""
    client.setblocking(False)
    watch = select.poll()
    for descriptor in (client.fileno(), program):
        watch.register(descriptor, select.POLLIN)
    until_s = time.monotonic() + SILENCE_S
    while (left_s := until_s - time.monotonic()) > 0:
        ready = [descriptor for descriptor, _ in watch.poll(left_s * 1000)]
        if program in ready:
            return
        if not ready:
            continue
        try:
            found = _valid(client.recv(_SEQ_BYTES + _MAC_BYTES + 1), key, nonce)
        except OSError:  # its port is closed: time goes on
            time.sleep(_REPORT_EVERY_S)
            continue
        if found is not None and found > seq:
            seq, until_s = found, time.monotonic() + SILENCE_S
    print_line(f"{FAILED}The load ended: no report of the program that receives it arrived for {SILENCE_S:g} s.")
    _end_program(program)


def _end_program(program: int) -> None:
    """Make the sending program end, and its processes with it. program: its pidfd."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(program, signal.SIGTERM)


def _valid(report: bytes, key: bytes, nonce: bytes) -> int | None:
    """Return the sequence number of a report, None if the receiving program did not make it."""
    seq, mac = report[:_SEQ_BYTES], report[_SEQ_BYTES:]
    return int.from_bytes(seq) if hmac.compare_digest(mac, _mac(key, b"server", nonce + seq)) else None


def _give(server: socket.socket, key: bytes, program: int) -> None:
    """Answer the first client that knows the key, and report to it until the receiving program ends."""
    server.setblocking(False)
    watch = select.poll()
    for descriptor in (server.fileno(), program):
        watch.register(descriptor, select.POLLIN)
    client: tuple[str, int] | None = None
    nonce, seq = b"", 0
    while not any(descriptor == program for descriptor, _ in watch.poll(None if client is None else 0)):
        if client is None:
            try:
                question, sender = server.recvfrom(_NONCE_BYTES + _MAC_BYTES + 1)
            except OSError:
                continue
            if hmac.compare_digest(question[_NONCE_BYTES:], _mac(key, b"client", question[:_NONCE_BYTES])):
                nonce, client = question[:_NONCE_BYTES], sender
                watch.unregister(server.fileno())
            continue
        seq += 1
        report = seq.to_bytes(_SEQ_BYTES)
        with suppress(OSError):  # a queue is full, or the client has ended
            server.sendto(report + _mac(key, b"server", nonce + report), client)
        time.sleep(_REPORT_EVERY_S)


def _mac(key: bytes, who: bytes, text: bytes) -> bytes:
    return hmac.digest(key, who + text, "sha256")


def _beside(work: Callable[[int], None]) -> None:
    """Run work in a process beside this program, which is not its child. work gets a pidfd of this program.

    Programs wait for all of their children.
    """
    program = os.pidfd_open(os.getpid())
    between = os.fork()
    if between == 0:
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            try:
                work(program)
            except BaseException:
                traceback.print_exc()
                _end_program(program)  # no load without receipts
            finally:
                os._exit(0)
        os._exit(0)
    os.waitpid(between, 0)
    os.close(program)
