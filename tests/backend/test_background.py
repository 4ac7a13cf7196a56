import asyncio

from tests.support.polling import PATIENCE_S

from coresteer.background import cancel


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
