"""The part of a broker that measures requests, as far as the table of APIs knows it."""

from __future__ import annotations

from collections.abc import Callable

from ottla.network.request_context import RequestContext
from ottla.network.request_watch import RequestWatch
from ottla.protocol.message import Request


class RequestMeter:
    """Chooses what watches each request; those that are only counted share one of their API."""

    def __init__(self, measure: Callable[[RequestContext, Request, int], RequestWatch]) -> None:
        self.measure = measure
        """Counts a decoded request, of a frame of so many bytes, and chooses whether to time it."""
        self.until_timed = 1
        """The request that makes it 0 is timed."""
        self.watches: dict[int, RequestWatch] = {}
        """The watches of requests that are counted only, by API; else `measure` chooses one."""
