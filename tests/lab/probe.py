"""Requests of the lab's tests to the agent's modules in a guest: the inventory, and the executor."""

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.registry import Tunable
from coresteer_agent.collect.tasks import parse_task_stat
from coresteer_agent.collect.topology import read_topology
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_core.changes.plan import Action
from coresteer_core.node.tasks import NetTask
from coresteer_core.node.view import View
from coresteer_core.settings import Channels, parse_setting

ROOT = Path("/")


def view(keys: Sequence[str] = ()) -> View:
    """Return the present view of the node; processes with a setting among keys count as seen using the network."""
    tasks = []
    for pid in filter(None, (parse_setting(key).process for key in keys)):
        stat = parse_task_stat(Path(f"/proc/{pid}/stat").read_bytes(), "stat")
        tasks.append(NetTask(pid, stat.started_ticks, stat.name, None, 1, "", "", stat.cpu, 0.0, 0.0, []))
    return View(read_topology(ROOT), InventoryReader(ROOT).read(), tasks=tasks)


def standing(key: str) -> str:
    """Return the present value of a setting; for a missing one any valid value."""
    setting = parse_setting(key)
    try:
        return Tunable(ROOT, setting).read()
    except OSError:
        return "combined 1" if isinstance(setting, Channels) else setting.unowned or "0"


def main() -> None:
    what, *arguments = sys.argv[1:]
    if what == "inventory":
        print(msgspec.json.encode(view().inventory).decode())
        return
    journal = Journal(Path(arguments[0]) / "agent/journal.jsonl", ROOT)
    wanted = [desired_value.partition("=") for desired_value in arguments[1:]]
    executor = Executor(ROOT, journal, lambda: view([key for key, _, _ in wanted]))
    results = []
    for key, _, value in wanted:
        results.append(executor.apply(Action(key, standing(key), value, "lab"), change_id="lab"))
    print(msgspec.json.encode(results).decode())


if __name__ == "__main__":
    main()
