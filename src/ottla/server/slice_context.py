"""A large request that is answered slice by slice: how a handler sees one slice of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ottla.network.request_context import RequestContext
from ottla.protocol.message import Request, Response
from ottla.runtime import DelayedOperation, Slices


class SliceContext(RequestContext):
    """The context of one slice of a request: its answer becomes a part of the whole one."""

    __slots__ = ("answer", "whole")

    def __init__(self, whole: RequestContext) -> None:
        super().__init__(whole.connection, whole.header, whole.received_ms)
        self.whole = whole
        self.quota = whole.quota
        self.answer: asyncio.Future[Response | None] = asyncio.get_running_loop().create_future()

    def respond(self, response: Response) -> None:
        self._check_not_ended()
        self._end(response)

    def no_response(self) -> None:
        self._check_not_ended()
        if self.close_reason:
            self.whole.close_reason = self.close_reason
        self._end(None)

    def close_connection(self, reason: str) -> None:
        self._end(None)
        self.whole.close_reason = reason

    def wait_for(self, operation: DelayedOperation | None) -> None:
        """The slice ends by itself, though its client may be gone."""

    def await_acknowledgement(self, operation: DelayedOperation) -> None:
        """Likewise: the next slice, and behind the last one the next request, waits for it."""

    async def answer_of(
        self,
        handler: Callable[
            [RequestContext, Any], Response | Coroutine[Any, Any, Response | None] | None
        ],
        body: Request,
        slices: Slices,
    ) -> Response | None:
        """The handler's answer to the slice, now or later; None for no answer.

        What changes it may be much more than a slice: the rights to all topics of a group.
        """
        answer = handler(self, body)
        response = answer if answer is None or isinstance(answer, Response) else await answer
        if response is not None:
            self.respond(response)
        found = await self.answer
        for _ in self.amend(found) if found is not None and self.amend is not None else ():
            await slices.pause()
        return found

    def _end(self, response: Response | None) -> None:
        self._is_ended = True
        if not self.answer.done():
            self.answer.set_result(response)
