"""Requests of the lab's tests to the agent's modules in a guest: the inventory, and the executor."""

import sys
from pathlib import Path

import msgspec

from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.apply.registry import Tunable
from coresteer_agent.collect.topology import read_topology
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_core.changes.plan import Action
from coresteer_core.node.view import View
from coresteer_core.settings import Channels, parse_setting

ROOT = Path("/")


def view() -> View:
    """Return the present view of the node."""
    return View(read_topology(ROOT), InventoryReader(ROOT).read())


def standing(key: str) -> str:
    """Return the present value of a setting; for a missing one any valid value."""
    setting = parse_setting(key)
    try:
        return Tunable(ROOT, setting).read()
    except OSError:
        return "combined 1" if isinstance(setting, Channels) else "0"


def main() -> None:
    what, *arguments = sys.argv[1:]
    if what == "inventory":
        print(msgspec.json.encode(view().inventory).decode())
        return
    journal = Journal(Path(arguments[0]) / "agent/journal.jsonl", ROOT)
    executor = Executor(ROOT, journal, view)
    results = []
    for desired_value in arguments[1:]:
        key, _, value = desired_value.partition("=")
        results.append(executor.apply(Action(key, standing(key), value, "lab"), change_id="lab"))
    print(msgspec.json.encode(results).decode())


if __name__ == "__main__":
    main()
