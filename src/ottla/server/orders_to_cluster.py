"""The controller's orders to all brokers: its own by calls, the others by requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode
from ottla.protocol.leader_and_isr import LeaderAndIsrResponse, StopReplicaResponse
from ottla.protocol.message import Response
from ottla.runtime.scheduler import pause
from ottla.runtime.timing import Deadline
from ottla.server.broker_connections import BrokerConnections
from ottla.server.broker_sender import DRAIN_PAUSE_MS, BrokerSender, ControllerRequest, OnResponse
from ottla.server.order_messages import (
    EncodedUpdateMetadata,
    encoded_update,
    leader_and_isr_errors,
    leader_and_isr_request,
    stop_replica_errors,
    stop_replica_request,
)
from ottla.structs import (
    BrokerEndPoints,
    MetadataUpdate,
    Node,
    PartitionState,
    StopReplicaPartition,
)

if TYPE_CHECKING:
    from ottla.controller.orders_to_brokers import OnAnswer
    from ottla.runtime import Runtime
    from ottla.server.controller_orders import OrdersToOwnBroker

logger = logging.getLogger(__name__)


class OrdersToCluster:
    """Carries the controller's requests to the brokers that it has added."""

    def __init__(
        self,
        runtime: Runtime,
        local: OrdersToOwnBroker,
        connections: BrokerConnections,
        timeout_ms: int,
    ) -> None:
        self._runtime = runtime
        self._local = local
        self._connections = connections
        self._timeout_ms = timeout_ms
        self._senders: dict[int, BrokerSender] = {}

    def add_broker(self, broker: BrokerEndPoints) -> None:
        """The broker has registered; unanswered requests of an older registration are dropped."""
        if broker.id == self._local.broker_id:
            return
        self.remove_broker(broker.id)
        node = broker.node(self._connections.listener_name)
        if node is None:
            logger.error(
                "broker %d has no listener %s: it cannot be controlled",
                broker.id,
                self._connections.listener_name,
            )
            return
        connection = self._connections.connect(node)
        self._senders[broker.id] = BrokerSender(self._runtime, broker, connection, self._timeout_ms)

    def remove_broker(self, broker_id: int) -> None:
        """Send the broker nothing more."""
        sender = self._senders.pop(broker_id, None)
        if sender is not None:
            sender.close()

    async def settle(self) -> None:
        """Wait until the controller's own broker has carried out its orders."""
        await self._local.settle()

    async def drain(self, timeout_ms: int) -> None:
        """Wait until everything is answered, but no longer than this for each next answer."""
        deadline = Deadline(self._runtime.clock, timeout_ms)
        left = self._unanswered
        while left and not deadline.has_passed:
            await pause(self._runtime.scheduler, DRAIN_PAUSE_MS)
            before, left = left, self._unanswered
            if left < before:
                deadline = Deadline(self._runtime.clock, timeout_ms)

    @property
    def _unanswered(self) -> int:
        return sum(map(len, self._senders.values()))

    def close(self) -> None:
        """Send no broker anything more."""
        for broker_id in list(self._senders):
            self.remove_broker(broker_id)

    def leader_and_isr(
        self,
        controller_epoch: int,
        broker_id: int,
        states: Sequence[PartitionState],
        brokers: Sequence[Node],
        on_answer: OnAnswer,
    ) -> None:
        if broker_id == self._local.broker_id:
            self._local.leader_and_isr(controller_epoch, broker_id, states, brokers, on_answer)
            return
        names = {state.topic_id: state.topic_partition.topic for state in states}

        def on_response(response: Response) -> None:
            assert isinstance(response, LeaderAndIsrResponse)
            on_answer(leader_and_isr_errors(response, names))

        request = leader_and_isr_request(states, brokers)
        self._put(broker_id, controller_epoch, request, on_response)

    def stop_replica(
        self,
        controller_epoch: int,
        broker_id: int,
        partitions: Sequence[StopReplicaPartition],
        on_answer: OnAnswer,
    ) -> None:
        if broker_id == self._local.broker_id:
            self._local.stop_replica(controller_epoch, broker_id, partitions, on_answer)
            return

        def on_response(response: Response) -> None:
            assert isinstance(response, StopReplicaResponse)
            on_answer(stop_replica_errors(response))

        asked = [stopped.topic_partition for stopped in partitions]

        def on_refusal(error: ErrorCode) -> None:
            """Nothing was deleted: to wait for another answer would have no end."""
            on_answer(dict.fromkeys(asked, error))

        request = stop_replica_request(partitions)
        self._put(broker_id, controller_epoch, request, on_response, on_refusal)

    def update_metadata(
        self, controller_epoch: int, broker_ids: Sequence[int], update: MetadataUpdate
    ) -> None:
        own_id, runtime = self._local.broker_id, self._runtime
        if own_id in broker_ids:
            self._local.update_metadata(controller_epoch, broker_ids, update)
        if self._senders.keys().isdisjoint(broker_ids):
            return
        making = runtime.slices.do(encoded_update(own_id, controller_epoch, update))
        made = runtime.scheduler.spawn(making, "encode metadata")
        for each in broker_ids:
            request = EncodedUpdateMetadata(made=made)
            self._put(each, controller_epoch, request, lambda response: None)

    def _put(
        self,
        broker_id: int,
        controller_epoch: int,
        request: ControllerRequest,
        on_response: OnResponse,
        on_refusal: Callable[[ErrorCode], object] = lambda error: None,
    ) -> None:
        sender = self._senders.get(broker_id)
        if sender is None:
            return
        request.controller_id = self._local.broker_id
        request.controller_epoch = controller_epoch

        def on_any_response(response: Response) -> None:
            """A broker that refuses all knows a newer controller, has registered again or fails."""
            error = ErrorCode.of(getattr(response, "error_code", 0))
            if error:
                name = type(request).__name__
                logger.warning("broker %d refuses %s: %s", broker_id, name, error.name)
                on_refusal(error)
            else:
                on_response(response)

        sender.put(request, on_any_response)
