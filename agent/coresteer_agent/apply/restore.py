"""``coresteer-agent restore``: put everything back as it was before Coresteer first touched it."""

from pathlib import Path

from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal
from coresteer_core.change import advance
from coresteer_core.change_events import Changes, Note, PutBack
from coresteer_core.model import Inventory, Topology, View
from coresteer_core.plan import Action
from coresteer_core.protocol import Result


def restore(path: Path, root: Path) -> list[Result]:
    """Put every original of the journal at path back, latest change first; one Result a setting.

    Works beside a running agent, after kill -9 at any instant, and any number of times.
    Raises JournalError.
    """
    if not path.exists():
        return []
    journal = Journal(path, root)
    try:
        # undo asks no guard, so it needs no view of the node
        executor = Executor(root, journal, lambda: View(Topology([], [], []), Inventory([], [])))
        wanted = reversed(journal.originals().items())
        results = [executor.undo(Action(key, "", original, "Restore")) for key, original in wanted]
        back = frozenset(result.key for result in results if result.outcome not in ("refused", "failed"))
        state = Changes({change.change_id: change for change in journal.changes()})
        _, instructions = advance(state, PutBack(back), 0.0)
        for instruction in instructions:
            if isinstance(instruction, Note):
                journal.note(instruction.change)
        return results
    finally:
        journal.close()
