"""The bound on the disk traffic of compaction."""

import asyncio

from ottla.log.throttler import RateLimit, Throttler
from ottla.testing import mock_runtime


def test_throttler_makes_up_for_what_was_moved():
    """A thousand bytes at a hundred a second take ten seconds."""
    assert RateLimit(100).delay_ms(1000, now_ms=5000) == 10_000


def test_throttler_counts_all_rounds_together():
    """The second one waits behind the first one."""
    limit = RateLimit(100)
    limit.delay_ms(1000, now_ms=0)

    assert limit.delay_ms(1000, now_ms=0) == 20_000


def test_time_that_passed_is_not_saved_up():
    """After an hour of nothing the bound is what it was."""
    limit = RateLimit(100)
    limit.delay_ms(1000, now_ms=0)

    assert limit.delay_ms(100, now_ms=3_600_000) == 1_000


def test_no_bound_means_no_delay():
    """The default is the largest double."""
    assert RateLimit(1.7976931348623157e308).delay_ms(1 << 40, now_ms=0) == 0


def test_nothing_waits_that_owes_no_time():
    """Not even for a turn of the loop."""
    throttler = Throttler(mock_runtime(), 1e308)
    try:
        throttler.throttle(1000).send(None)
    except StopIteration:
        pass
    else:
        raise AssertionError("it waits")

    assert throttler.byte_count == 1000


def test_woken_wait_leaves_no_timer():
    """A limit that was lifted must not wake anything later."""
    runtime = mock_runtime()
    throttler = Throttler(runtime, 1)
    ended: list[int] = []

    async def work() -> None:
        for step in range(2):
            await throttler.throttle(1000)
            ended.append(step)

    async def main() -> None:
        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        throttler.wake()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert ended == [0]
        throttler.change(1e308)
        await task
        assert runtime.scheduler.loop.next_due_ms() is None

    runtime.scheduler.run(main())
    assert ended == [0, 1]
    assert runtime.clock.monotonic_ms() < 1000
