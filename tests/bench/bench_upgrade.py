"""Upgrade drill: backend and agents of the previous release are replaced by today's, while a rollout is in progress.

    python -m tests.bench.bench_upgrade [--nodes 200] [--groups 10] [--pause 15]

PostgreSQL keeps what it acknowledges (fsync on). The simulated agents are from the previous release's own sources; each
group of them is a process. The schema is migrated while the previous backend serves them; then that backend is
replaced, then one group of agents after another. All nodes are in the rollout's first stage until the end. Exits with
1 if a rollout or change was rolled back, a sample was lost or stored twice, or a node did not return. A simulated agent
has no journal: a change that a policy has just made when its agent is replaced ends as failed, as it is not known.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.types.json import Jsonb
from tests.bench.drill import run_drill
from tests.support.polling import poll_async
from tests.upgrade.installation import BackendProcess, Installation, Operator, command
from tests.upgrade.releases import PREVIOUS, TODAY, Tree, extract

from coresteer.telemetry.chunks import cumulative, read_scalars
from coresteer_core.protocol import FEATURES

IRQS = 16
PATIENCE_S = 300.0
WAIT_S = 86_400
"""Of the rollout's stage: longer than the drill."""


@dataclass
class Group:
    """Nodes simulated by one process at a time. cpus: of each; it distinguishes the names of the groups."""

    nodes: int
    cpus: int
    folder: Path

    async def run(self, tree: Tree, backend: BackendProcess, seconds: float, *more: str) -> Counter[str]:
        """Simulate the nodes with a version's agents until their samples are acknowledged; return the figures."""
        size = ("--nodes", str(self.nodes), "--cpus", str(self.cpus), "--irqs", str(IRQS), "--duration", f"{seconds:g}")
        folder = ("--state-dir", str(self.folder), "-o", "json")
        output = await command(tree, "coresteer_agent", "simulate", "--backend", backend.url, *size, *folder, *more)
        figures = json.loads(output.splitlines()[-1])
        counted = ("refused", "sent", "acked", "unacknowledged", "overflowed", "reconnects")
        return Counter({name: int(figures[name]) for name in counted})


async def stored(owner_url: str) -> Counter[tuple[int, int, int]]:
    """Return how often each sample is stored, by node, sequence number and time: a new agent numbers from 1 again."""
    found: Counter[tuple[int, int, int]] = Counter()
    async with await psycopg.AsyncConnection.connect(owner_url) as connection:
        cursor = await connection.execute("SELECT node_id, scalars FROM telemetry_chunk")
        async for node_id, packed in cursor:
            scalars = read_scalars(packed)
            seqs, times = cumulative(scalars.seqs).tolist(), cumulative(scalars.times_ms).tolist()
            found.update((node_id, seq, time_ms) for seq, time_ms in zip(seqs, times, strict=True))
    return found


async def connected(operator: Operator) -> int:
    """Return how many nodes are connected and send samples."""
    return sum(node["health"] == "live" for node in await operator.get("/nodes"))


async def begin_rollout(operator: Operator, nodes: int) -> int:
    """Bring version 2 of a policy to all nodes; return the rollout's id."""
    body = {"name": "drill", "spec": {"type": "irq-spread"}, "mode": "enforce"}
    policy = await operator.post("/policies", body)
    path = f"/policies/{policy['id']}"
    await operator.post(f"{path}/enable")
    await operator.post(f"{path}/versions", {"body": body | {"rank": 50}})
    rollout = await operator.post(f"{path}/rollouts", {"version": 2, "canary": nodes, "batch": 1, "wait_s": WAIT_S})
    return int(rollout["id"])


async def ended(owner_url: str, state: str) -> Counter[str]:
    """Return why changes ended in a state, and how many for each reason."""
    query = """
    SELECT change.ended_by, step.sentence FROM change
    JOIN change_step step ON step.change_id = change.id AND step.state = change.state WHERE change.state = %s
    """
    async with await psycopg.AsyncConnection.connect(owner_url) as connection:
        cursor = await connection.execute(query, (state,))
        return Counter([f"{ended_by}: {sentence}" async for ended_by, sentence in cursor])


async def with_features(owner_url: str) -> int:
    """Return how many nodes' agents have the features of today's."""
    query = "SELECT count(*) FROM node WHERE hello -> 'features' @> %s"
    async with await psycopg.AsyncConnection.connect(owner_url) as connection:
        cursor = await connection.execute(query, (Jsonb([*FEATURES]),))
        return int((await cursor.fetchone() or (0,))[0])


async def drill(made: Installation, previous: Tree, groups: list[Group], pause_s: float) -> list[str]:
    """Upgrade; print the figures and return what went wrong."""
    nodes = sum(group.nodes for group in groups)
    await made.migrate(previous)
    backend = await made.backend(previous)
    operator = Operator(await made.administrator(backend), 0)
    tokens = [await made.command(previous, "enrolment-token", "--simulated") for _ in groups]
    # a group ends so long after all its nodes are connected; the backend is replaced before the first one does
    old = [
        asyncio.create_task(group.run(previous, backend, pause_s * (4 + number), "--token", token.strip()))
        for number, (group, token) in enumerate(zip(groups, tokens, strict=True))
    ]

    async def all_connected() -> bool:
        return await connected(operator) == nodes

    await poll_async(all_connected, timeout_s=PATIENCE_S, interval_s=0.5)
    rollout_id = await begin_rollout(operator, nodes)
    await asyncio.sleep(pause_s)
    print(f"{nodes} agents of {PREVIOUS.version} are connected, the rollout is in progress", flush=True)

    await made.migrate(TODAY)
    await asyncio.sleep(pause_s)
    print("the schema is today's, the backend that of the previous release", flush=True)
    if any(task.done() for task in old):
        return ["The agents ended before the backend was replaced: give a longer --pause."]
    began = time.monotonic()
    await backend.end()
    backend = await made.backend(TODAY, in_place_of=backend)
    away_s = time.monotonic() - began
    await poll_async(all_connected, timeout_s=PATIENCE_S, interval_s=0.5)
    returned_s = time.monotonic() - began
    print(f"the backend is today's, away for {away_s:.1f} s; all agents were back after {returned_s:.1f} s", flush=True)

    new, before = [], Counter[str]()
    for number, (group, task) in enumerate(zip(groups, old, strict=True)):
        before += await task
        seconds = pause_s * (len(groups) - number)
        new.append(asyncio.create_task(group.run(TODAY, backend, seconds)))
        print(f"group {number + 1} of {len(groups)}: its agents are replaced", flush=True)
    after = sum(await asyncio.gather(*new), Counter[str]())

    rollout = await operator.get(f"/rollouts/{rollout_id}")
    upgraded = await with_features(made.owner_url)
    await backend.end()
    samples = await stored(made.owner_url)
    rolled_back, failed = await ended(made.owner_url, "rolled_back"), await ended(made.owner_url, "failed")
    errors = [error for process in made.processes for error in process.errors()]
    sent, twice = before["sent"] + after["sent"], samples.total() - len(samples)
    left = {name: before[name] + after[name] for name in ("refused", "unacknowledged", "overflowed")}
    lines = {
        "nodes": f"{nodes} in {len(groups)} groups",
        "samples sent by the previous / today's agents": f"{before['sent']} / {after['sent']}",
        "samples stored": f"{len(samples)}",
        "lost / stored twice": f"{sent - len(samples)} / {twice}",
        "refused, unacknowledged, overflowed": ", ".join(map(str, left.values())),
        "reconnects of the previous / today's agents": f"{before['reconnects']} / {after['reconnects']}",
        "backend away, all agents back": f"{away_s:.1f} s, {returned_s:.1f} s",
        "rollout": f"{rollout['state']}: {rollout['sentence']}",
        "changes rolled back / failed": f"{rolled_back.total()} / {failed.total()}",
        "nodes whose agents have today's features": str(upgraded),
        "errors in the logs of backends": str(len(errors)),
    }
    for what, value in lines.items():
        print(f"  {what:<48}{value}", flush=True)
    wrong = {
        f"{sent - len(samples)} samples were lost.": sent != len(samples),
        f"{twice} samples were stored twice.": twice,
        f"Nodes were refused, or samples were not acknowledged: {left}.": any(left.values()),
        f"The rollout is {rollout['state']}: {rollout['sentence']}": rollout["state"] not in ("canary", "batches"),
        f"Changes were rolled back: {dict(rolled_back)}.": rolled_back,
        f"{nodes - upgraded} nodes did not return with an agent of today.": upgraded != nodes,
        "\n".join(errors): errors,
    }
    for reason, count in failed.items():
        print(f"  failed {count} times: {reason}", flush=True)
    return [sentence for sentence, holds in wrong.items() if holds]


async def upgrade(made: Installation, arguments: argparse.Namespace) -> list[str]:
    """Run the drill with the previous release's sources; return what went wrong."""
    tree = extract(PREVIOUS, made.folder / "previous")
    groups = []
    for number in range(arguments.groups):
        of_group = arguments.nodes // arguments.groups + (number < arguments.nodes % arguments.groups)
        groups.append(Group(of_group, 8 + 2 * number, made.folder / f"group-{number}"))
    return await drill(made, tree, groups, arguments.pause)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--groups", type=int, default=10, help="processes that simulate them, replaced one by one")
    parser.add_argument("--pause", type=float, default=15, metavar="S", help="seconds between two steps")
    arguments = parser.parse_args()
    sys.exit(run_drill("upgrade", lambda made, _: upgrade(made, arguments)))
