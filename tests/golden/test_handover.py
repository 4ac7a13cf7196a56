"""Files that hand settings over to other tools."""

import pytest
from tests.core.test_handover import MIXED
from tests.golden.store import check

from coresteer_core.changes.handover import export
from coresteer_core.changes.handover_formats import FORMATS, FormatName


@pytest.mark.parametrize("name", FORMATS)
def test_files_stay_as_they_are(name: FormatName) -> None:
    files = export(name, MIXED, "coresteer-3f0d4f5e", ["Change 3f0d4f5e of web-1 by kim: fewer interrupts."])
    check(f"handover/{name}", {file.path: file.text.splitlines() for file in files}, ordered=True)
