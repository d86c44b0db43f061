"""One API of a broker: its handler, the limits of its requests, and the families of handlers.

A handler is called with the request's context and its decoded body. It returns the answer; one
that answers later (or never) returns None and uses the context; a coroutine is awaited on the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, Protocol

from ottla.errors import ErrorCode, KafkaError
from ottla.network.connection import Connection
from ottla.network.refusal_log import RefusalLog
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.header import RequestHeader
from ottla.protocol.message import Response
from ottla.protocol.types import UNLIMITED
from ottla.runtime import Slices
from ottla.runtime.scheduler import Work
from ottla.server.slicing import (
    LARGE_FRAME_BYTES,
    LARGE_FRAMES,
    LONG_FRAME_BYTES,
    MAX_ELEMENTS,
    MAX_ELEMENTS_OF,
    MAX_FRAME_BYTES,
    SLICED,
    Slicing,
)
from ottla.structs import NamedTuple

logger = logging.getLogger(__name__)

Answer = Response | None | Coroutine[Any, Any, Response | None]
Handler = Callable[[RequestContext, Any], Answer]

MAX_REASON: Final = 500
"""Letters of a refusal in the log: names, also of who is not logged in yet, may be in it."""
BROKERS_ONLY: Final = (
    ApiKey.LEADER_AND_ISR,
    ApiKey.STOP_REPLICA,
    ApiKey.UPDATE_METADATA,
    ApiKey.CONTROLLED_SHUTDOWN,
    ApiKey.ALTER_PARTITION,
    ApiKey.WRITE_TXN_MARKERS,
)
"""The APIs that only brokers use; quotas do not limit those who may use them."""


class Api(NamedTuple):
    """A handler and the versions that it serves: all that the message has, unless narrowed."""

    handler: Handler
    min_version: int
    max_version: int
    slicings: tuple[Slicing, ...] = ()
    whole_bytes: int = UNLIMITED
    """A request of no more bytes is not looked at for whether it needs slices."""
    undivided_bytes: int = LONG_FRAME_BYTES
    """A request of no more bytes is decoded in one go."""
    max_elements: int = MAX_ELEMENTS
    max_bytes: int = MAX_FRAME_BYTES

    @classmethod
    def of(cls, key: int, handler: Handler, min_version: int, max_version: int) -> Api:
        """The row of an API, with the limits of its requests."""
        if key in BROKERS_ONLY:
            handler = partial(_exempt, handler)
        slicings = SLICED.get(key, ())
        max_bytes = LARGE_FRAME_BYTES if key in LARGE_FRAMES else MAX_FRAME_BYTES
        return cls(
            handler,
            min_version,
            max_version,
            slicings,
            min((each.whole_bytes for each in slicings), default=UNLIMITED),
            UNLIMITED if key == ApiKey.PRODUCE else LONG_FRAME_BYTES,
            MAX_ELEMENTS_OF.get(key, MAX_ELEMENTS),
            UNLIMITED if key in BROKERS_ONLY or key == ApiKey.PRODUCE else max_bytes,
        )


class ApiFamily(Protocol):
    """A group of handlers that share their collaborators."""

    def apis(self) -> Mapping[ApiKey, Handler | tuple[Handler, int, int]]:
        """The handlers of the family, each alone or with the versions that it serves."""


class WholeFamily(Protocol):
    """A family that serves all versions that its messages have."""

    def apis(self) -> Mapping[ApiKey, Handler]:
        """The handlers of the family."""


class LateFamily:
    """A family that is imported and made when the first request for it is there.

    `narrowed` has the versions of APIs that serve only some. The object from `make` has the
    handlers of just these APIs.
    """

    def __init__(
        self,
        make: Callable[[], WholeFamily],
        *keys: ApiKey,
        narrowed: Mapping[ApiKey, tuple[int, int]] | None = None,
    ) -> None:
        self.on_made: Callable[[Mapping[ApiKey, Handler]], object] | None = None
        self._make = make
        self._keys = keys
        self._narrowed = narrowed or {}
        self._made: Mapping[ApiKey, Handler] = {}

    def apis(self) -> dict[ApiKey, Handler | tuple[Handler, int, int]]:
        """Handlers that make the family, and then hand on to its own."""
        late: dict[ApiKey, Handler] = {key: partial(self._handle, key) for key in self._keys}
        return {
            key: (handler, *self._narrowed[key]) if key in self._narrowed else handler
            for key, handler in late.items()
        }

    def _handle(self, key: ApiKey, context: RequestContext, body: Any) -> Answer:
        if not self._made:
            self._made = self._make().apis()
            assert self._made.keys() == set(self._keys), "the row names the APIs of the family"
            if self.on_made is not None:
                self.on_made(self._made)
        return self._made[key](context, body)


def _exempt(handler: Handler, context: RequestContext, body: Any) -> Answer:
    """Serve a broker: the checks have let it pass, so that no quota limits it.

    What they refuse is charged to the client that has asked for it.
    """
    context.quota.exempt()
    return handler(context, body)


def begin(slices: Slices, context: RequestContext, work: Work[Response]) -> Answer:
    """Answer a request by work in slices; it ends when the client has gone."""
    return slices.begin(work, lambda: not context.connection.is_closing)


def request_name(header: RequestHeader) -> str:
    """The request as Kafka's log names it: Metadata, ListOffsets."""
    return ApiKey(header.api_key).name.title().replace("_", "")


def error_code(outcome: object) -> int:
    """The error code in a response for the outcome of a request: 0 unless it is an error."""
    return int(outcome.error) if isinstance(outcome, KafkaError) else int(ErrorCode.NONE)


def error_message(outcome: object) -> str | None:
    """The error message in a response; None unless it is an error."""
    return outcome.message if isinstance(outcome, KafkaError) else None


def refuse(connection: Connection, reason: str, log: RefusalLog) -> None:
    """Log and close the connection of a client that breaks the protocol: no answer fits."""
    if log.is_news(connection.client_host, reason[:MAX_REASON]):
        logger.info("closing %s: %s", connection.id, reason[:MAX_REASON])
    connection.finish(reason)
