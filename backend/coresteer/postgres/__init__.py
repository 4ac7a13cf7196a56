"""The PostgreSQL server of the one-command start."""

from coresteer.postgres.server import EmbeddedPostgres, PostgresError, running_url

__all__ = ["EmbeddedPostgres", "PostgresError", "running_url"]
