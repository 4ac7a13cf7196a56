"""A Citus cluster of a coordinator and two workers, each a PostgreSQL of its own behind a Unix socket."""

import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.support.postgres import running_postgres

SHARDS = 8
_SETTINGS = {"shared_preload_libraries": "citus", "citus.shard_count": str(SHARDS), "max_connections": "100"}


@dataclass(frozen=True)
class CitusDatabase:
    """A database of the cluster: libpq's addresses for the owner and the backend's role, and those of its workers."""

    owner_url: str
    backend_url: str
    worker_urls: list[str]

    async def join(self) -> None:
        """Make the databases of the same name on all nodes a cluster, as docs/SCALE.md says."""
        for url in (self.owner_url, *self.worker_urls):
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
                await connection.execute("CREATE EXTENSION citus")
                for known in map(conninfo_to_dict, (self.owner_url, self.backend_url)):
                    await connection.execute(
                        "INSERT INTO pg_dist_authinfo VALUES (0, %s, %s)",
                        (known["user"], make_conninfo(password=str(known["password"]))),
                    )
        async with await psycopg.AsyncConnection.connect(self.owner_url, autocommit=True) as connection:
            host = conninfo_to_dict(self.owner_url)["host"]
            await connection.execute("SELECT citus_set_coordinator_host(%s, 5432)", (host,))
            database = sql.Identifier(connection.info.dbname)
            await connection.execute(
                sql.SQL("ALTER DATABASE {} SET citus.max_adaptive_executor_pool_size = 1").format(database)
            )
            for url in self.worker_urls:
                await connection.execute("SELECT citus_add_node(%s, 5432)", (conninfo_to_dict(url)["host"],))


@dataclass(frozen=True)
class Cluster:
    """Running servers. first: the database that each has from the start."""

    first: CitusDatabase

    async def new_database(self) -> CitusDatabase:
        """Create an empty database on every server; they do not know of each other yet."""
        name = f"citus_{uuid.uuid4().hex}"
        for url in (self.first.owner_url, *self.first.worker_urls):
            async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
                await connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        owner_url, backend_url = (
            url.replace("/coresteer?", f"/{name}?") for url in (self.first.owner_url, self.first.backend_url)
        )
        return CitusDatabase(
            owner_url, backend_url, [make_conninfo(url, dbname=name) for url in self.first.worker_urls]
        )


@contextlib.asynccontextmanager
async def citus_cluster(pg_bin: Path) -> AsyncIterator[Cluster]:
    """Start a coordinator and two workers with the programs in pg_bin."""
    async with contextlib.AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(running_postgres("coresteer-citus-", pg_bin=pg_bin, settings=_SETTINGS))
            for _ in range(3)
        ]
        coordinator, *workers = servers
        same = [conninfo_to_dict(url) for url in (coordinator.url, coordinator.backend_url)]
        for worker in workers:  # nodes of a cluster know a role by the same password
            async with await psycopg.AsyncConnection.connect(worker.url, autocommit=True) as connection:
                for role in same:
                    await connection.execute(
                        sql.SQL("ALTER ROLE {} PASSWORD {}").format(
                            sql.Identifier(str(role["user"])), sql.Literal(str(role["password"]))
                        )
                    )
        urls = [make_conninfo(worker.url, password=same[0]["password"]) for worker in workers]
        yield Cluster(CitusDatabase(coordinator.url, coordinator.backend_url, urls))
