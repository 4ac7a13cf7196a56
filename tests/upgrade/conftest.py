"""A database server for what the backend stored."""

from tests.backend.conftest import postgres_server

__all__ = ["postgres_server"]
