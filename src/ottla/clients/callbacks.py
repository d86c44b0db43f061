"""Calls the callbacks of an application, whose errors stop nobody else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)


def tell(title: str, owner: object, callback: Callable[..., object], *arguments: object) -> None:
    """Call `callback`, and log its error: a client is in the middle of its work.

    `title` describes the callback, with a %r for its `owner`. A SystemExit or KeyboardInterrupt is
    raised again by the running loop, after that work.
    """
    try:
        callback(*arguments)
    except BaseException as error:
        logger.exception(f"{title} raised", owner)
        if isinstance(error, SystemExit | KeyboardInterrupt):
            _raise_later(error)


def _raise_later(error: BaseException) -> None:
    def end() -> None:
        raise error

    try:
        asyncio.get_running_loop().call_soon(end)
    except RuntimeError:
        raise error from None  # it was called by the application itself
