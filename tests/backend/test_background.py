import asyncio

import pytest
from tests.support.polling import PATIENCE_S

from coresteer import background
from coresteer.background import Pace, cancel


async def wait_twice(first: asyncio.Event) -> None:
    await asyncio.wait_for(first.wait(), PATIENCE_S)  # as a pool of connections does
    await asyncio.Event().wait()


async def test_a_task_ends_although_wait_for_lost_its_cancellation() -> None:
    first = asyncio.Event()
    task = asyncio.create_task(wait_twice(first))
    await asyncio.sleep(0)
    first.set()
    for _ in range(2):  # the inner task of wait_for has ended, and the outer one has not gone on
        await asyncio.sleep(0)
    await cancel([task])
    assert task.cancelled()


class Step:
    """A step that is told whether it has work, and counts how often it is taken."""

    def __init__(self, *, has_work: bool) -> None:
        self.has_work, self.taken = has_work, 0

    async def __call__(self) -> bool:
        self.taken += 1
        return self.has_work


async def test_a_step_without_work_is_taken_again_only_after_a_wake() -> None:
    pace, step = Pace(), Step(has_work=False)
    await pace.take(step)
    await pace.take(step)
    assert step.taken == 1
    pace.wake()
    await pace.take(step)
    assert step.taken == 2


async def test_a_step_without_work_is_taken_again_once_the_idle_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_IDLE_S", 0.0)
    pace, step = Pace(), Step(has_work=False)
    await pace.take(step)
    await pace.take(step)
    assert step.taken == 2


async def test_a_step_with_work_is_taken_each_time() -> None:
    pace, step = Pace(), Step(has_work=True)
    await pace.take(step)
    await pace.take(step)
    assert step.taken == 2


async def test_a_step_that_failed_is_taken_each_time() -> None:
    async def fail() -> bool:
        raise LookupError

    pace, step = Pace(), Step(has_work=False)
    with pytest.raises(LookupError):
        await pace.take(fail)
    await pace.take(step)
    assert step.taken == 1


async def test_a_wake_while_the_step_runs_is_not_lost() -> None:
    async def find_nothing_before_the_wake() -> bool:
        pace.wake()
        return False

    pace, step = Pace(), Step(has_work=False)
    await pace.take(find_nothing_before_the_wake)
    await pace.take(step)
    assert step.taken == 1
