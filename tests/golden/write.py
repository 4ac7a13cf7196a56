"""Stores all golden outputs anew: ``python -m tests.golden.write``. The difference is then for git to show."""

import os
import sys
from pathlib import Path

import pytest
from tests.golden.store import WRITE

if __name__ == "__main__":
    os.environ[WRITE] = "1"
    sys.exit(pytest.main([str(Path(__file__).parent), *sys.argv[1:]]))
