"""``coresteer-agent restore``: restore the original value of every setting that Coresteer changed."""

import logging
from pathlib import Path

from coresteer_agent.apply.executor import Executor
from coresteer_agent.apply.journal import Journal, JournalError, LostJournalError
from coresteer_agent.apply.journal_copies import Copies
from coresteer_agent.apply.journal_marker import marker_path
from coresteer_core.changes.events import Changes, RecordChange, RestoredExternally
from coresteer_core.changes.machine import advance
from coresteer_core.changes.report import Result
from coresteer_core.node.inventory import Inventory
from coresteer_core.node.topology import Topology
from coresteer_core.node.view import View

log = logging.getLogger("coresteer.restore")


def restore(path: Path, root: Path) -> list[Result] | None:
    """Restore every original value in the journal at path, the latest change first. Raises JournalError.

    Returns one Result for each setting, None without a journal. Works while an agent runs, after kill -9 at any
    instant, on a full or read-only disk, and any number of times. Raises LostJournalError after restoring what can
    still be read of a damaged journal.
    """
    if not any(map(_exists, (path, Copies(path).copy_path, marker_path(path)))):
        return None
    lost: LostJournalError | None = None
    try:
        journal = Journal(path, root)
    except JournalError as error:
        lost = error if isinstance(error, LostJournalError) else None
        journal = Journal(path, root, read_only=True)
    try:
        # undo does not consult the guard, so it needs no View
        executor = Executor(root, journal, lambda: View(Topology([], [], []), Inventory([], [])))
        results = [executor.undo(action) for action in executor.original_actions()]
        changes = {change.change_id: change for change in journal.changes()}
        # settings that are not stuck have their originals, also those restored just before an agent was killed
        stuck = {result.key for result in results if result.stuck}
        restored = frozenset[str]().union(*(change.keys for change in changes.values())) - stuck
        _, instructions = advance(Changes(changes), RestoredExternally(restored), 0.0)
        try:
            for instruction in instructions:
                if isinstance(instruction, RecordChange):
                    journal.record(instruction.change)
        except OSError as error:
            log.warning("The journal %s could not record the state of the changes: %s.", path, error.strerror)
        if lost is not None:
            raise LostJournalError(" ".join([str(lost), *(result.sentence for result in results)]))
        return results
    finally:
        journal.close()


def _exists(path: Path) -> bool:
    """Return whether a file exists. Raises PermissionError."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
