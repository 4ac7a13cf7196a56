"""A database server for what the backend stored, and the previous release."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.backend.conftest import postgres_server
from tests.upgrade.releases import PREVIOUS, MissingHistoryError, Tree, archive, extract

__all__ = ["postgres_server"]


@pytest.fixture(scope="session")
def history() -> None:
    """Skips a test where the history of the checkout lacks the previous release; in CI it fails."""
    try:
        archive(PREVIOUS, "migrations")
    except MissingHistoryError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def previous(history: None) -> Iterator[Tree]:
    """The sources of the previous release."""
    with tempfile.TemporaryDirectory(prefix="coresteer-previous-") as folder:
        yield extract(PREVIOUS, Path(folder))
