"""The orders of the controller to one broker: sent in their order, and again until it answers."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError, LocalProtocolError
from ottla.protocol.leader_and_isr import LeaderAndIsrRequest, StopReplicaRequest
from ottla.protocol.message import Response
from ottla.protocol.update_metadata import UpdateMetadataRequest
from ottla.runtime.scheduler import pause
from ottla.runtime.timing import Backoff
from ottla.server.broker_connections import FIRST_BACKOFF_MS, MAX_BACKOFF_MS
from ottla.server.order_messages import EncodedUpdateMetadata
from ottla.structs import BrokerEndPoints, NamedTuple

if TYPE_CHECKING:
    from ottla.network.node_connection import NodeConnection
    from ottla.runtime import Runtime


logger = logging.getLogger(__name__)

DRAIN_PAUSE_MS: Final = 5

ControllerRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
OnResponse = Callable[[Response], object]


class Unanswered(NamedTuple):
    """A request that the broker must answer before it gets the next one."""

    request: ControllerRequest
    on_response: OnResponse


class BrokerSender:
    """One registration of a broker: a queue, a connection, and a coroutine that sends the queue.

    A request is sent until it is answered: the controller's decisions must arrive, and in order. It
    ends with the registration, whose epoch all requests carry. Only a request that can never be
    sent is left out: it counts as refused, and does not hold up those behind it.
    """

    def __init__(
        self, runtime: Runtime, broker: BrokerEndPoints, connection: NodeConnection, timeout_ms: int
    ) -> None:
        self.broker = broker
        self._runtime = runtime
        self._connection = connection
        self._timeout_ms = timeout_ms
        self._queue: deque[Unanswered] = deque()
        self._news = asyncio.Event()
        self._backoff = Backoff(FIRST_BACKOFF_MS, MAX_BACKOFF_MS, runtime.random.random)
        self._task = runtime.scheduler.spawn(self._run(), f"control broker {broker.id}")

    def __len__(self) -> int:
        """How many requests are not answered yet."""
        return len(self._queue)

    def put(self, request: ControllerRequest, on_response: OnResponse) -> None:
        """Send the request when all before it have been answered."""
        request.broker_epoch = self.broker.epoch
        self._queue.append(Unanswered(request, on_response))
        self._news.set()

    def close(self) -> None:
        """Send nothing more; requests without an answer are dropped."""
        self._task.cancel()
        self._connection.close("the broker is no longer controlled from here")

    async def _run(self) -> None:
        failures = 0
        while True:
            if not self._queue:
                self._news.clear()
                await self._news.wait()
            request, on_response = self._queue[0]
            try:
                response = await self._ask(request)
            except Exception as error:
                name, node = type(request).__name__, self._connection.node
                is_ours = isinstance(error, LocalProtocolError)
                if isinstance(error, KafkaError | OSError) and not is_ours:
                    failures += 1
                    if failures == 1:
                        logger.info("%s to %s: %s", name, node, error)
                    await pause(self._runtime.scheduler, self._backoff.delay_ms(failures))
                    continue
                logger.exception("%s to %s is left out: it cannot be sent", name, node)
                error_code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
                response = type(request).response_class(error_code=error_code)
            failures = 0
            self._queue.popleft()
            try:
                on_response(response)
            except Exception:
                logger.exception("the answer of %s cannot be used", self._connection.node)

    async def _ask(self, request: ControllerRequest) -> Response:
        if isinstance(request, EncodedUpdateMetadata):
            await asyncio.shield(request.made)
        await self._connection.ready()
        version = type(request).max_version
        self._connection.version_of(type(request), low=version)
        return await self._connection.send(request, version, self._timeout_ms)
