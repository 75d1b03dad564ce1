"""Tasks with an owner end with it, whatever they miss."""

import asyncio

from gputui.tasks import Tasks


async def test_a_task_that_missed_its_cancellation_is_cancelled_again() -> None:
    misses = 1

    async def work() -> None:
        nonlocal misses
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                misses -= 1
                if misses < 0:
                    raise

    tasks = Tasks(lambda name, error: None)
    task = tasks.start(work(), "work")
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await tasks.close()
    assert task.cancelled()
