"""Fixtures of a node with policies (policy_node.py); tests of other nodes define their own."""

from pathlib import Path

import pytest
from tests.agent.policy_node import Start, make_root, starter


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_root(tmp_path)


@pytest.fixture
def start(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    return starter(root, tmp_path / "state", monkeypatch)
