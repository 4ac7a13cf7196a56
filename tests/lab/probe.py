"""What the lab's tests ask in a guest of the agent's own modules: the inventory, and the door to the kernel."""

import sys
from pathlib import Path

import msgspec

from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_agent.collect.inventory import InventoryReader
from coresteer_agent.collect.topology import read_topology
from coresteer_core.model import View
from coresteer_core.plan import Action

ROOT = Path("/")


def main() -> None:
    what, *arguments = sys.argv[1:]
    inventory = InventoryReader(ROOT).read()
    if what == "inventory":
        print(msgspec.json.encode(inventory).decode())
        return
    view = View(read_topology(ROOT), inventory)
    journal = Journal(Path(arguments[0]) / "agent/journal.jsonl", ROOT)
    executor = Executor(ROOT, journal, lambda: view)
    results = []
    for wish in arguments[1:]:
        key, _, value = wish.partition("=")
        irq = inventory.irq(int(key.split("/")[1]))
        was = irq.requested if irq is not None and irq.requested else "0"
        results.append(executor.apply(Action(key, was, value, "lab"), change_id="lab"))
    print(msgspec.json.encode(results).decode())


if __name__ == "__main__":
    main()
