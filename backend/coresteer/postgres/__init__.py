"""The built-in PostgreSQL server of `coresteer up`."""

from coresteer.postgres.server import EmbeddedPostgres, PostgresError, running_url

__all__ = ["EmbeddedPostgres", "PostgresError", "running_url"]
