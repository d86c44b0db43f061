"""Requests from any broker to the controller, on whichever broker it is."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ottla.controller.broker_registration import broker_end_points
from ottla.errors import ErrorCode, KafkaError, UnusableConnectionError
from ottla.protocol.controller_requests import AlterPartitionResponse
from ottla.protocol.message import Request, Response
from ottla.registry import paths
from ottla.registry.tree import NoNodeError, Registry, Watch
from ottla.registry.znodes import decode_controller
from ottla.runtime.scheduler import pause, within
from ottla.runtime.timing import Backoff, Deadline
from ottla.server.broker_connections import (
    FIRST_BACKOFF_MS,
    MAX_BACKOFF_MS,
    BrokerConnections,
    Purpose,
)
from ottla.structs import Node

if TYPE_CHECKING:
    from ottla.runtime import Runtime


logger = logging.getLogger(__name__)

OwnAnswer = Callable[[Any], Awaitable[Response]]


def error_code_of(response: Response) -> int:
    """The error for the whole of a response, where it has a place for one."""
    return int(getattr(response, "error_code", ErrorCode.NONE))


class AskController:
    """Asks the controller, and asks again while there is none or it has moved.

    If a controller hangs, the request waits until its session expires: then another one is elected.
    `own` has the answers that this broker gives itself when it is the controller, by request.
    """

    def __init__(
        self, runtime: Runtime, registry: Registry, connections: BrokerConnections
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self._connections = connections
        self.own: dict[type[Request], OwnAnswer] = {}
        self._node: Node | None = None
        self._watch: Watch | None = None

    async def __call__(
        self,
        request: Request,
        timeout_ms: int,
        *,
        low: int = 0,
        error_of: Callable[[Response], int] = error_code_of,
    ) -> Response:
        """The controller's answer; KafkaError where there is none in time."""
        if self._watch is None:
            self._watch = self._registry.watch_data(paths.CONTROLLER, self._on_election)
        scheduler = self._runtime.scheduler
        deadline = Deadline(self._runtime.clock, timeout_ms)
        backoff = Backoff(FIRST_BACKOFF_MS, MAX_BACKOFF_MS, self._runtime.random.random)
        failures, name = 0, type(request).__name__
        reason: Exception | None = None
        while True:
            try:
                answer = self._ask(request, low)
                response = await within(scheduler, deadline.left_ms, answer, f"no answer to {name}")
                error = ErrorCode.of(error_of(response))
                if error is not ErrorCode.NOT_CONTROLLER:
                    if error:  # maybe a former controller: look it up again next time
                        self._node = None
                    return response
                reason = KafkaError(error, f"{name} was refused")
            except (KafkaError, OSError) as failure:
                if isinstance(failure, KafkaError) and not _may_pass(failure):
                    raise
                if reason is None or not deadline.has_passed:  # the last one ends with the time
                    reason = failure
            self._node = None
            failures += 1
            logger.debug("%s: %s", name, reason)
            if deadline.has_passed:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{name}: the controller did not answer within {timeout_ms} ms ({reason})",
                )
            await pause(scheduler, min(backoff.delay_ms(failures), deadline.left_ms))

    def close(self) -> None:
        """Stop watching the elections."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _on_election(self) -> None:
        self._node = None
        self._connections.drop(Purpose.CONTROLLER, "another broker may be the controller now")

    async def _ask(self, request: Request, low: int) -> Response:
        if self._node is None:
            self._node = await self._find()
        if self._node.id == self._connections.broker_id:
            return await self.own[type(request)](request)
        return await self._connections.ask(self._node, Purpose.CONTROLLER, request, low=low)

    async def _find(self) -> Node:
        """The controller, as the registry has it at this moment."""
        try:
            data, _ = await self._registry.get(paths.CONTROLLER)
            broker_id = decode_controller(data)
            if broker_id == self._connections.broker_id:
                return Node(broker_id, "", -1)
            data, stat = await self._registry.get(paths.broker(broker_id))
        except NoNodeError:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "there is no controller") from None
        broker = broker_end_points(broker_id, data, stat.created_id)
        name = self._connections.listener_name
        if (node := broker.node(name)) is None:
            why = f"the controller {broker_id} has no listener {name}"
            raise KafkaError(ErrorCode.LISTENER_NOT_FOUND, why)
        return node


def _may_pass(error: KafkaError) -> bool:
    """Whether a retry may help: the controller may answer later, move, or have other keys."""
    is_passing = error.retriable or isinstance(error, UnusableConnectionError)
    return is_passing or error.error is ErrorCode.UNKNOWN_SERVER_ERROR


def error_of(response: Response) -> int:
    """NOT_CONTROLLER also where only some partitions are newer here than at the controller.

    Then the controller that was asked has a successor. The old one's finished work is there for the
    successor.
    """
    assert isinstance(response, AlterPartitionResponse)
    for topic in response.topics:
        for result in topic.partitions:
            if result.error_code == ErrorCode.NOT_CONTROLLER:
                return result.error_code
    return response.error_code
