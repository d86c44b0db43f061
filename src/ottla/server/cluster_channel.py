"""The controller's channel to all brokers: its own is called, the others are sent requests."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.controller.broker_request_batch import OnAnswer
from ottla.errors import ErrorCode, KafkaError
from ottla.network.node_connection import NodeConnection
from ottla.network.timing import Backoff, Deadline, pause
from ottla.protocol.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from ottla.protocol.message import Response
from ottla.runtime import Runtime
from ottla.server.broker_connections import BrokerConnections
from ottla.server.controller_messages import (
    leader_and_isr_errors,
    leader_and_isr_request,
    stop_replica_errors,
    stop_replica_request,
    update_metadata_request,
)
from ottla.server.local_channel import LocalBrokerChannel
from ottla.structs import (
    BrokerEndPoints,
    MetadataUpdate,
    Node,
    PartitionState,
    StopReplicaPartition,
)

logger = logging.getLogger(__name__)

FIRST_BACKOFF_MS: Final = 20
MAX_BACKOFF_MS: Final = 500
DRAIN_PAUSE_MS: Final = 5

ControllerRequest = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest
OnResponse = Callable[[Response], object]


class Unanswered(NamedTuple):
    """A request that the broker has to answer before it gets the next one."""

    request: ControllerRequest
    on_response: OnResponse


class BrokerSender:
    """One registration of a broker: a queue, a connection, and a coroutine that empties the one
    through the other.

    A request is sent until it is answered: what the controller has decided must arrive, and in
    order. It ends with the registration, whose epoch all requests carry.
    """

    def __init__(
        self,
        runtime: Runtime,
        broker: BrokerEndPoints,
        connection: NodeConnection,
        timeout_ms: int,
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
        """Send nothing any more; what was not answered is dropped."""
        self._queue.clear()
        self._task.cancel()
        self._connection.close("the broker is not controlled from here any more")

    async def _run(self) -> None:
        failures = 0
        while True:
            if not self._queue:
                self._news.clear()
                await self._news.wait()
            request, on_response = self._queue[0]
            try:
                response = await self._ask(request)
            except (KafkaError, OSError) as error:
                failures += 1
                if failures == 1:
                    logger.info(
                        "%s to %s: %s", type(request).__name__, self._connection.node, error
                    )
                await pause(self._runtime.scheduler, self._backoff.delay_ms(failures))
                continue
            failures = 0
            self._queue.popleft()
            on_response(response)

    async def _ask(self, request: ControllerRequest) -> Response:
        await self._connection.ready()
        version = type(request).max_version
        self._connection.version_of(type(request), low=version)
        return await self._connection.send(request, version, self._timeout_ms)


class ClusterBrokerChannel:
    """Carries the controller's requests to the brokers that it has added."""

    def __init__(
        self,
        runtime: Runtime,
        local: LocalBrokerChannel,
        connections: BrokerConnections,
        timeout_ms: int,
    ) -> None:
        self._runtime = runtime
        self._local = local
        self._connections = connections
        self._timeout_ms = timeout_ms
        self._senders: dict[int, BrokerSender] = {}

    def add_broker(self, broker: BrokerEndPoints) -> None:
        """The broker has registered; what an older registration has not answered is dropped."""
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
        """The broker is sent nothing any more."""
        sender = self._senders.pop(broker_id, None)
        if sender is not None:
            sender.close()

    async def drain(self, timeout_ms: int) -> None:
        """Wait until everything was answered, but not for longer than this for one more answer."""
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
        """Leave all brokers alone."""
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

        self._put(broker_id, controller_epoch, stop_replica_request(partitions), on_response)

    def update_metadata(
        self, controller_epoch: int, broker_id: int, update: MetadataUpdate
    ) -> None:
        if broker_id == self._local.broker_id:
            self._local.update_metadata(controller_epoch, broker_id, update)
            return
        request = update_metadata_request(update)
        self._put(broker_id, controller_epoch, request, lambda response: None)

    def _put(
        self,
        broker_id: int,
        controller_epoch: int,
        request: ControllerRequest,
        on_response: OnResponse,
    ) -> None:
        sender = self._senders.get(broker_id)
        if sender is None:
            return
        request.controller_id = self._local.broker_id
        request.controller_epoch = controller_epoch

        def on_any_response(response: Response) -> None:
            """A broker that refuses knows a newer controller, or has registered anew."""
            error = ErrorCode.of(getattr(response, "error_code", 0))
            if error:
                name = type(request).__name__
                logger.warning("broker %d refuses %s: %s", broker_id, name, error.name)
            else:
                on_response(response)

        sender.put(request, on_any_response)
