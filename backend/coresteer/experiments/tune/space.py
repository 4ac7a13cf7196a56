"""The candidates of a tune as points: settings whose values are near each other have similar results. Pure."""

from collections.abc import Sequence
from functools import cached_property
from itertools import product

import numpy as np
import numpy.typing as npt

from coresteer.experiments.spec import Arm, Factor

Numbers = npt.NDArray[np.float64]

_HALF = 0.5


class Space:
    """All combinations of the levels of some factors. arms: the baseline first, the last factor varying fastest."""

    def __init__(self, factors: Sequence[Factor]) -> None:
        self.arms: list[Arm] = list(product(*(range(len(factor.levels)) for factor in factors)))
        self.shape = [len(factor.levels) for factor in factors]
        self.index = {arm: at for at, arm in enumerate(self.arms)}
        self._parts = [part for factor in factors for part in _parts(factor)]
        self._factor_of = [place for place, factor in enumerate(factors) for _ in _parts(factor)]

    def __len__(self) -> int:
        return len(self.arms)

    @property
    def groups(self) -> int:
        """Return the number of length scales that a distance between two candidates depends on."""
        return len(self._parts)

    @cached_property
    def coordinates(self) -> list[Numbers]:
        """Return for each group the coordinates of all candidates: candidates × columns."""
        arms = np.array(self.arms, dtype=np.intp).reshape(len(self.arms), -1)
        return [part[arms[:, place]] for part, place in zip(self._parts, self._factor_of, strict=True)]

    def squared_distances(self, a: Sequence[int], b: Sequence[int] | None = None) -> Numbers:
        """Return for each group the squared distances between candidates by index: groups × a × b (None: all)."""
        found = np.zeros((self.groups, len(a), len(self) if b is None else len(b)))
        for group, points in enumerate(self.coordinates):
            others = points if b is None else points[list(b)]
            for column in range(points.shape[1]):
                found[group] += (points[list(a), column][:, None] - others[None, :, column]) ** 2
        return found


def _parts(factor: Factor) -> list[Numbers]:
    """Return the coordinates of a factor's levels: of those with a value by rank, and an axis for each special one.

    By rank, because values to try are chosen so that each step matters as much as the next: 0, 10, 20, 50, 100. Levels
    with the same value are the same point. A level without a value is special, and so is 0, which often turns a
    mechanism off instead of being the next smaller amount of it (rx-usecs 0: no time, only the count decides).
    """
    values = [level.value for level in factor.levels]
    known = sorted({value for value in values if value is not None})
    ranked = len(known) > 1
    special = [at for at, value in enumerate(values) if not ranked or value is None]
    special += [at for at, value in enumerate(values) if ranked and value == 0][:1]
    parts = []
    if ranked:
        ranks = {value: at / (len(known) - 1) for at, value in enumerate(known)}
        parts.append(np.array([[_HALF if value is None else ranks[value]] for value in values]))
    if special:
        same = [
            [at == other or (ranked and values[at] == values[other] == 0) for other in special]
            for at in range(len(values))
        ]
        parts.append(_HALF * np.array(same, dtype=float))
    return parts
