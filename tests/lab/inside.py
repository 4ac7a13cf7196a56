"""The init program of a guest: prepares it, then runs the commands that the host sends. Standard library only.

`python` and `coresteer-agent` are the checkout's. A line of JSON each way over a virtio port. ``{"run": [...],
"timeout_s": 5}`` answers with status and output, ``{"start": [...]}`` with the PID; status 124 is a timeout.
"""

import ctypes
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

SHARE = Path("/run/share")
REPOSITORY = Path(__file__).resolve().parents[2]
TIME_OVER = 124
_PORTS = Path("/sys/class/virtio-ports")


def main() -> None:
    path = f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    os.environ.update(PATH=path, PYTHONPATH=str(REPOSITORY), HOME="/root", TERM="dumb")
    description = json.loads((SHARE / "machine.json").read_text())
    ready(description)
    with open_port("lab") as port:
        answer(port, {"ready": True})
        for line in port:
            asked = json.loads(line)
            try:
                answer(port, start(asked) if "start" in asked else run(asked))
            except (OSError, ValueError) as error:
                answer(port, {"status": 126, "stdout": "", "stderr": str(error)})


def ready(description: dict[str, Any]) -> None:
    """Load drivers, mount file systems, set addresses. Failures are printed to the console, which the host stores."""
    socket.sethostname(description["name"])
    for kind, at in (
        ("cgroup2", "/sys/fs/cgroup"),
        ("tracefs", "/sys/kernel/tracing"),
        ("debugfs", "/sys/kernel/debug"),
        ("devpts", "/dev/pts"),
        ("tmpfs", "/dev/shm"),
        ("tmpfs", "/var/lib/coresteer"),
    ):
        Path(at).mkdir(parents=True, exist_ok=True)
        quiet("mount", "-t", kind, kind, at)
    for bus in ("pci", "virtio"):  # in this order: virtio's devices appear as their PCI functions find a driver
        aliases = [path.read_text().strip() for path in Path(f"/sys/bus/{bus}/devices").glob("*/modalias")]
        subprocess.run(["modprobe", "-qab", *aliases], check=False)  # fails for devices that no module serves
    quiet("ip", "link", "set", "lo", "up")
    quiet("ip", "netns", "add", "peer")
    quiet("ip", "-n", "peer", "link", "set", "lo", "up")
    for name, value in (("arp_ignore", "1"), ("arp_announce", "2")):  # NICs on one wire answer for themselves only
        Path(f"/proc/sys/net/ipv4/conf/all/{name}").write_text(value)
    network(description["nics"])


def network(nics: list[dict[str, Any]]) -> None:
    """Name the NICs by their MAC addresses in the described order, and set their addresses."""
    found = {path.read_text().strip(): path.parent.name for path in Path("/sys/class/net").glob("*/address")}
    for nic in nics:
        if nic["mac"] not in found:
            print(f"lab: there is no NIC {nic['mac']}", flush=True)
        else:
            quiet("ip", "link", "set", found[nic["mac"]], "name", f"new-{nic['name']}")
    for nic in nics:
        inside = []
        quiet("ip", "link", "set", f"new-{nic['name']}", "name", nic["name"])
        if nic["netns"]:
            quiet("ip", "link", "set", nic["name"], "netns", nic["netns"])
            inside = ["-n", nic["netns"]]
        for address in nic["addresses"]:
            quiet("ip", *inside, "address", "add", address, "dev", nic["name"])
        quiet("ip", *inside, "link", "set", nic["name"], "up")


def quiet(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        print(f"lab: {' '.join(command)[:200]}: {done.stdout.decode(errors='replace').strip()}", flush=True)


def open_port(name: str) -> IO[bytes]:
    device = next(path.parent.name for path in _PORTS.glob("*/name") if path.read_text().strip() == name)
    return open(f"/dev/{device}", "r+b", buffering=0)  # noqa: PTH123 - a character device without position


def answer(port: IO[bytes], value: dict[str, Any]) -> None:
    data = memoryview(json.dumps(value).encode() + b"\n")
    while data:
        data = data[port.write(data) :]


def start(asked: dict[str, Any]) -> dict[str, Any]:
    """Start a process in the background with its output in a file of the share."""
    with (SHARE / asked["output"]).open("wb") as output:
        process = subprocess.Popen(
            asked["start"], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment(asked)
        )
    return {"pid": process.pid}


def run(asked: dict[str, Any]) -> dict[str, Any]:
    """Run a process until its end or timeout, then kill its process group."""
    process = subprocess.Popen(
        asked["run"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(asked),
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=asked["timeout_s"])
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        out, err = process.communicate()
        status = TIME_OVER
    return {"status": status, "stdout": out.decode(errors="replace"), "stderr": err.decode(errors="replace")}


def environment(asked: dict[str, Any]) -> dict[str, str]:
    return {**os.environ, **asked.get("env", {})}


if __name__ == "__main__":
    try:
        main()
    finally:  # the first program must not end: power off instead
        sys.stdout.flush()
        ctypes.CDLL(None).reboot(0x4321FEDC)
