"""A database for the answers of history."""

from tests.backend.conftest import database, database_url, postgres_server

__all__ = ["database", "database_url", "postgres_server"]
