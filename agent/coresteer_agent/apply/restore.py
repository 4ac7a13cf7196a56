"""``coresteer-agent restore``: put everything back as it was before Coresteer first touched it."""

import logging
from pathlib import Path

from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal, JournalError
from coresteer_core.changes.events import Changes, RecordChange, RestoredExternally
from coresteer_core.changes.machine import advance
from coresteer_core.changes.plan import Action
from coresteer_core.changes.report import Result
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View

log = logging.getLogger("coresteer.restore")


def restore(path: Path, root: Path) -> list[Result] | None:
    """Put every original of the journal at path back, latest change first; one Result a setting, None without journal.

    Works beside a running agent, after kill -9 at any instant, on a disk that takes no writes, and any number
    of times. Raises JournalError.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        journal = Journal(path, root)
    except JournalError:
        journal = Journal(path, root, read_only=True)
    try:
        # undo asks no guard, so it needs no view of the node
        executor = Executor(root, journal, lambda: View(Topology([], [], []), Inventory([], [])))
        wanted = reversed(journal.originals().items())
        results = [executor.undo(Action(key, "", original, "Restore")) for key, original in wanted]
        changes = {change.change_id: change for change in journal.changes()}
        # what is not stuck stands as before, also what an agent was killed over after it had put it back
        stuck = {result.key for result in results if result.stuck}
        back = frozenset[str]().union(*(change.keys for change in changes.values())) - stuck
        _, instructions = advance(Changes(changes), RestoredExternally(back), 0.0)
        try:
            for instruction in instructions:
                if isinstance(instruction, RecordChange):
                    journal.record(instruction.change)
        except OSError as error:
            log.warning("The journal %s could not record the state of the changes: %s.", path, error.strerror)
        return results
    finally:
        journal.close()
