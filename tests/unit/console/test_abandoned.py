"""Work that ends with the browser that waits for it."""

from __future__ import annotations

import asyncio

import pytest

from ottla.console.abandoned import BrowserGone, unless_gone


def test_work_ends_when_the_browser_goes():
    """It is cancelled, and has ended when the exception comes."""
    ended = asyncio.Event()
    messages = [{"type": "http.disconnect"}, {"type": "http.request"}]

    async def receive():
        return messages.pop()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def run() -> None:
        with pytest.raises(BrowserGone):
            await unless_gone(receive, work())
        assert ended.is_set()

    asyncio.run(run())


@pytest.mark.parametrize("error", [None, ValueError])
def test_work_that_ends_in_time_is_answered(error):
    """With its result, or its exception; nothing is left that waits."""

    async def receive():
        await asyncio.Event().wait()

    async def work() -> int:
        if error is not None:
            raise error
        return 5

    async def run() -> None:
        if error is None:
            assert await unless_gone(receive, work()) == 5
        else:
            with pytest.raises(error):
                await unless_gone(receive, work())
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())
