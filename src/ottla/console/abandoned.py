"""Work for a page that ends when the browser goes away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from starlette.types import Receive

T = TypeVar("T")


class BrowserGone(Exception):
    """Nobody waits for the answer."""


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of some work; it is cancelled, and BrowserGone raised, where its browser goes."""
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_gone(receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise BrowserGone
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.wait((task, gone))


async def _gone(receive: Receive) -> None:
    """Until the connection of a request is closed; the rest of its body is passed over."""
    while (await receive())["type"] != "http.disconnect":
        pass
