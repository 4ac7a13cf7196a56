"""A downgrade to the schema of commit 602788d and another upgrade change nothing that is stored."""

import alembic.command
import alembic.config
import psycopg
from psycopg import sql
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool
from tests.backend.conftest import MIGRATIONS
from tests.upgrade.database import loaded
from tests.upgrade.expected import AUDIT_ENTRIES

from coresteer.audit.chain import Verified
from coresteer.audit.service import verify
from coresteer.db import Database
from coresteer.postgres import EmbeddedPostgres

REVISION = "0007_experiments"
"""Of commit 602788d."""


def downgrade(url: str) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(url), poolclass=NullPool)
    with engine.begin() as connection:
        config = alembic.config.Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(MIGRATIONS))
        alembic.command.downgrade(config, REVISION)


def content(url: str) -> dict[str, str]:
    """Return a digest of the rows of each table, with the names of their columns.

    Left out is when the keys of nodes were created: for those of before, it is the time of the upgrade.
    """
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT relname FROM pg_stat_user_tables WHERE schemaname = 'public'").fetchall()
        row = "(to_jsonb(t) - 'key_created_at')::text"
        digest = f"SELECT coalesce(md5(string_agg(md5({row}), '' ORDER BY {row})), '') FROM {{}} t"  # noqa: S608
        found = {name: connection.execute(sql.SQL(digest).format(sql.Identifier(name))) for (name,) in tables}
        return {name: str(cursor.fetchone()) for name, cursor in found.items()}


async def test_a_downgrade_restores_every_stored_name_and_can_be_upgraded_again(
    postgres_server: EmbeddedPostgres,
) -> None:
    async with loaded(postgres_server) as url:
        before = content(url)
        await Database(url, MIGRATIONS).migrate()
        upgraded = content(url)
        assert {name for name in before if upgraded[name] != before[name]} >= {"decision", "experiment", "rollout"}
        downgrade(url)
        after = content(url)
        assert {name for name in before if after[name] != before[name]} == set()
        await Database(url, MIGRATIONS).migrate()
        again = content(url)
        salted = {"audit_chain", "audit_head"}  # at random
        timed = {"telemetry_hour_due", "alert_rule"}  # the hours before the upgrade, and its time
        assert {name for name in upgraded if again[name] != upgraded[name]} - timed == salted
        database = Database(url, MIGRATIONS)
        assert [found async for found in verify(database)] == [Verified(AUDIT_ENTRIES, 0)]
        await database.close()
