from pathlib import Path

import pytest

from coresteer_agent.collect.vectors import PATH, parse_free_vectors
from coresteer_agent.observe.inventory import InventoryReader
from coresteer_core.node.inventory import FreeVectors

TABLE = """\
name:   VECTOR
 size:   0
 mapped: 45
 flags:  0x00000103
Online bitmaps:        2
Global available:    374
Global reserved:       6
Total allocated:      31
System: 36: 0-19,21,50,128,236,240-242,244,246-255
 | CPU | avl | man | mac | act | vectors
     0   180     1     1   22  32-49,51-54
     1     0     1     1  202  33-127,129-235
"""


FREE = [FreeVectors(0, 180), FreeVectors(1, 0)]


@pytest.mark.parametrize(
    ("text", "free"),
    [
        pytest.param(TABLE, FREE, id="whole"),
        pytest.param(TABLE.partition(" | CPU")[0], [], id="without the table of CPUs"),
        pytest.param(TABLE + "     x   1\n", FREE, id="an invalid row"),
        pytest.param("", [], id="empty"),
    ],
)
def test_free_vectors_are_in_the_table_of_cpus(text: str, free: list[FreeVectors]) -> None:
    assert parse_free_vectors(text.encode()) == free


def test_the_inventory_has_the_free_vectors_where_the_kernel_shows_them(tmp_path: Path) -> None:
    assert InventoryReader(tmp_path).read().free_vectors == []
    (tmp_path / PATH).parent.mkdir(parents=True)
    (tmp_path / PATH).write_text(TABLE)
    assert InventoryReader(tmp_path).read().free_vectors == FREE
