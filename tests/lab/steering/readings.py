"""What the bench of policies reads in the guest: counters and settings at one moment, and what the consumers say."""

import json
import re
from dataclasses import dataclass

from tests.lab.machines import PEER
from tests.lab.rig import Guest
from tests.lab.steering.mixes import Mix

_COUNTERS = f"""
cat /proc/uptime /proc/stat
echo == interrupts; cat /proc/interrupts
echo == softnet; cat /proc/net/softnet_stat
echo == netstat; cat /proc/net/netstat
echo == peer; ip netns exec {PEER} cat /proc/net/snmp
"""
_SETTINGS = """
cd /proc/irq; for i in [0-9]*; do
  read -r a < $i/smp_affinity_list; echo irq/$i $a; read -r e < $i/effective_affinity_list; echo effective/$i $e
done 2>/dev/null
for p in $(pgrep -f tests.lab.consumer); do
  while read -r k v; do [ $k = Cpus_allowed_list: ] && echo task/$p $v; done < /proc/$p/status
done 2>/dev/null
cd /sys/class/net; for d in eth0 eth1; do
  for f in $d/queues/rx-*/rps_cpus $d/queues/rx-*/rps_flow_cnt $d/queues/tx-*/xps_cpus; do
    read -r v < $f && echo netdev/$f $v
  done 2>/dev/null
  echo netdev/$d/rss $(ethtool -x $d | sed -n '/indirection/,/hash key/p' | md5sum | cut -c1-12)
  echo netdev/$d/features $(ethtool -k $d | grep ntuple | tr -d ' \\t')
done
for f in rps_sock_flow_entries netdev_budget busy_poll; do read -r v < /proc/sys/net/core/$f && echo kernel/$f $v; done
read -r t _ < /proc/uptime; echo uptime $t
"""


@dataclass(frozen=True)
class Counters:
    """Counters since boot. busy: non-idle ticks by CPU.

    call_ipis, reschedule_ipis: rows CAL and RES of /proc/interrupts. received_rps: of softnet_stat, wake-ups of
    CPUs to which RPS or RFS handed packets. out_of_order, retransmitted: TCP segments, the second by the senders.
    """

    at_s: float
    busy: list[int]
    call_ipis: int
    reschedule_ipis: int
    received_rps: int
    out_of_order: int
    retransmitted: int


def counters(guest: Guest) -> Counters:
    return parse_counters(guest.run("sh", "-c", _COUNTERS, timeout_s=60).stdout)


def parse_counters(text: str) -> Counters:
    """Parse the output of _COUNTERS."""
    stat, interrupts, softnet, netstat, peer = re.split(r"^== \w+\n", text, flags=re.MULTILINE)
    ticks = [row.split() for row in re.findall(r"^cpu\d+ (.*)$", stat, re.MULTILINE)]

    def ipis(name: str) -> int:
        return sum(map(int, re.findall(rf"^ *{name}:((?: +\d+)+)", interrupts, re.MULTILINE)[0].split()))

    return Counters(
        at_s=float(stat.split()[0]),
        busy=[sum(int(cell) for at, cell in enumerate(row[:8]) if at not in (3, 4)) for row in ticks],
        call_ipis=ipis("CAL"),
        reschedule_ipis=ipis("RES"),
        received_rps=sum(int(row.split()[9], 16) for row in softnet.splitlines()),
        out_of_order=_named(netstat, "TcpExt", "TCPOFOQueue"),
        retransmitted=_named(peer, "Tcp", "RetransSegs"),
    )


def _named(text: str, table: str, name: str) -> int:
    """Return a value of a file whose lines alternate between names and values."""
    names, values = (row.split() for row in re.findall(rf"^{table}: .*$", text, re.MULTILINE)[:2])
    return int(values[names.index(name)])


@dataclass(frozen=True)
class Settings:
    """Settings by key. effective: the CPU of each interrupt."""

    at_s: float
    values: dict[str, str]
    effective: dict[int, int]


def settings(guest: Guest) -> Settings:
    return parse_settings(guest.run("sh", "-c", _SETTINGS, timeout_s=60).stdout)


def parse_settings(text: str) -> Settings:
    """Parse the output of _SETTINGS."""
    found = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    effective = {
        int(key.partition("/")[2]): int(re.split("[-,]", value)[0])
        for key, value in found.items()
        if key.startswith("effective/") and value
    }
    values = {key: value for key, value in found.items() if not key.startswith(("effective/", "uptime"))}
    return Settings(float(found["uptime"]), values, effective)


def changed(before: Settings, after: Settings) -> int:
    """Return how many settings differ; those that appeared or vanished do not count."""
    return sum(value != before.values.get(key, value) for key, value in after.values.items())


@dataclass(frozen=True)
class Cell:
    """Bytes that a consumer read in one second. napi: id of the NAPI that was polled for them."""

    port: int
    at_s: float
    protocol_cpu: int
    task_cpu: int
    napi: int
    bytes: int


def cells(guest: Guest, mix: Mix) -> list[Cell]:
    """Return what the consumers have said so far."""
    found = []
    for each in mix.consumers:
        for line in (guest.share / each.log).read_text().splitlines():
            if line.startswith("{") and line.endswith("}"):
                said = json.loads(line)
                found += [Cell(each.port, said["time_s"], *cell) for cell in said["received"]]
    return found


def napi_irqs(guest: Guest) -> dict[int, int]:
    """Return the interrupt of each NAPI of the receiving NICs by its id."""
    queues: dict[str, list[int]] = json.loads(guest.python("tests.lab.steering.napis").stdout)
    irqs = {
        name: int(irq)
        for irq, name in re.findall(r"^ *(\d+):.* (eth[01]-TxRx-\d+)$", guest.read("/proc/interrupts"), re.MULTILINE)
    }
    return {
        napi: irqs[f"{netdev}-TxRx-{queue}"] for netdev, napis in queues.items() for queue, napi in enumerate(napis)
    }
