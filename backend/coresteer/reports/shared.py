"""Reports by link, which anyone with the link can request."""

import asyncio
from datetime import UTC, datetime

from coresteer.auth.secrets import token_hash
from coresteer.db import Database
from coresteer.errors import NotFound
from coresteer.localization.language import Language
from coresteer.reports import repository
from coresteer.reports.service import ReportFile, ReportFormat, experiment_file


class SharedReports:
    """Makes one report at a time, from its analysis on, so that signed-in users still get theirs.

    Requests for a report that is being made wait for the same one.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turn = asyncio.Semaphore(1)
        self._in_work: dict[tuple[int, ReportFormat, Language], asyncio.Task[ReportFile]] = {}

    async def file(self, token: str, kind: ReportFormat, language: Language) -> ReportFile:
        """Return the report that a link leads to as a file. Raises NotFound and Conflict."""
        async with self._database.session() as session:
            experiment_id = await repository.shared_experiment(session, token_hash(token), datetime.now(UTC))
        if experiment_id is None:
            raise NotFound("This link is not valid: it has expired, was revoked, or is incomplete.")
        wanted = (experiment_id, kind, language)
        if (task := self._in_work.get(wanted)) is None:
            self._in_work[wanted] = task = asyncio.create_task(self._make(*wanted))
            task.add_done_callback(lambda _: self._in_work.pop(wanted))
        return await asyncio.shield(task)

    async def _make(self, experiment_id: int, kind: ReportFormat, language: Language) -> ReportFile:
        async with self._turn:
            return await experiment_file(self._database, experiment_id, kind, language)
