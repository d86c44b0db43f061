"""Producers with librdkafka's rules: a pipeline for each partition, and an epoch of their own.

    up to five requests of a partition are in flight, in order, and none is the sixth behind one
                                    that is not acknowledged
    a retriable error               nothing more is sent there until all of them are answered; then,
                                    the unacknowledged ones in order
    OUT_OF_ORDER_SEQUENCE_NUMBER    the same in all partitions; then the epoch is raised, and in
                                    every partition the numbers begin with 0 again
    the same for the first of them  fatal: a record that was acknowledged is lost

(rdkafka_request.c, rd_kafka_handle_Produce_error; rdkafka_idempotence.c, drain.) A broker that does
not know the new epoch cannot recognise batches that it appended under the old one: after an epoch
was raised, records are there twice. So a leader change must not look like a lost record.

librdkafka counts requests in flight alone. Where the first of them is refused and the others are
not, five more may follow before it is sent again: a broker, which remembers five as Kafka's does,
may have forgotten it by then.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient
from ottla.config.client_config import ProducerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.log.producer_state_entry import MAX_SEQUENCE
from ottla.network.node_connection import NodeConnection
from ottla.protocol.produce import (
    FIRST_VERSION_WITH_IDS,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.transactions import InitProducerIdRequest
from ottla.record.batch_builder import build_batch
from ottla.replication.append_results import ACKS_ALL
from ottla.runtime.timing import Deadline
from ottla.structs import NO_EPOCH, NO_LEADER, NO_PRODUCER_ID, TopicPartition
from ottla.testing.simulation.cluster import Host, SimulatedCluster
from ottla.testing.simulation.edges import MAX_BEFORE
from ottla.testing.simulation.invariants import History, partitions_of
from ottla.testing.simulation.story import TOPIC, Story
from ottla.testing.simulation.workload import METADATA_TIMEOUT_MS, SimulatedClient

MAX_IN_FLIGHT: Final = 5
REQUEST_TIMEOUT_MS: Final = 5_000
RETRY_MS: Final = 100
SERVE_MS: Final = 50
INTERVAL_MS: Final = 300
BURST: Final = 3
MAX_QUEUED: Final = 40
"""Where more records wait for a partition the program waits as well: the buffer is full."""
REPLACEMENT_WEIGHT: Final = 6
"""How much likelier it is that the leader is replaced than another fault."""


class PipelineStory(Story):
    """Writers whose pipelines a gap would break: no record may be there twice.

    Leaders are killed more often than elsewhere, and replaced at once, with a load under way.
    """

    def _start_writers(self) -> None:
        for number in range(2):
            writer = PipelinedWriter(
                self.cluster, f"writer{number}", self.history, self._first_sequence()
            )
            writer.process.spawn(writer.run(TOPIC), "write")
            self._writers.append(writer)

    def _first_sequence(self) -> int:
        """Where the numbers of a writer begin: where they soon wrap, if the world is at edges."""
        if self.conditions.edges is None:
            return 0
        return MAX_SEQUENCE - self.world.random.randrange(MAX_BEFORE)

    def _more_faults(self) -> list[Callable[[random.Random], str]]:
        return [self._replace_leader] * REPLACEMENT_WEIGHT

    def _replace_leader(self, chance: random.Random) -> str:
        """Kill the broker that leads most partitions, and end its session early.

        Messages are slowed, so that more are in flight when its successor begins to lead.
        """
        host = max(self.cluster.hosts, key=count_led)
        self.nemesis.kill_for_a_while(host, "which leads")
        delay_ms = self.nemesis.end_session(host)
        slowly = self.nemesis.slow_network()
        return f"end the session of {host.name} in {delay_ms} ms; {slowly}"


@dataclass(slots=True)
class SendQueue:
    """The records of a producer for one partition, one record in a batch.

    `queue` is in the order of the numbers; the sequence number of a record is its number minus
    `base_number`, that of the first one in `epoch`.
    """

    topic_partition: TopicPartition
    queue: deque[tuple[int, bytes]] = field(default_factory=deque)
    in_flight: set[int] = field(default_factory=set)
    epoch: int = NO_EPOCH
    base_number: int = 0
    next_acknowledged: int = 0
    leader: int = NO_LEADER
    is_draining: bool = False
    retry_at_ms: int = 0

    @property
    def has_room(self) -> bool:
        """Whether the broker still remembers the oldest one in flight if the next one follows."""
        number = self.queue[0][0]
        return number - min(self.in_flight, default=number) < MAX_IN_FLIGHT

    def put_back(self, number: int, value: bytes) -> None:
        """Queue a record that was not acknowledged again, in the order of the numbers."""
        self.queue = deque(sorted([*self.queue, (number, value)]))


class PipelinedWriter(SimulatedClient):
    """An idempotent producer with acks=all that has five requests of a partition in flight."""

    def __init__(
        self, cluster: SimulatedCluster, name: str, history: History, first_sequence: int
    ) -> None:
        super().__init__(cluster, name, history)
        self._first_sequence = first_sequence
        self.epoch_is_wrong = False
        self._producer_id, self._epoch = NO_PRODUCER_ID, 0
        self._pipelines: list[SendQueue] = []
        config = ProducerConfig.parse(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "request.timeout.ms": REQUEST_TIMEOUT_MS,
                "retry.backoff.ms": RETRY_MS,
            }
        )
        self._client = NetworkClient(self.process.runtime, config)
        self._metadata = Metadata(self._client, on_update=lambda cluster: self._serve())

    async def run(self, topic: str) -> None:
        """Queue a few records at a time for every partition, until the end."""
        info = await self._metadata.topic(topic, Deadline(self.process.clock, METADATA_TIMEOUT_MS))
        self._producer_id = await self._get_producer_id()
        partitions = [TopicPartition(topic, index) for index in info.partitions]
        self._pipelines = [SendQueue(topic_partition) for topic_partition in partitions]
        number = 0
        while not self.is_told_to_stop:
            if all(len(pipeline.queue) <= MAX_QUEUED for pipeline in self._pipelines):
                for pipeline in self._pipelines:
                    self._queue(pipeline, range(number, number + BURST))
                number += BURST
            self._serve()
            await self.pause(self.process.runtime.random.randint(1, 2 * INTERVAL_MS))
        while any(pipeline.queue or pipeline.in_flight for pipeline in self._pipelines):
            self._serve()
            await self.pause(SERVE_MS)
        self._metadata.close()
        self._client.close()
        self.is_done = True

    async def _get_producer_id(self) -> int:
        while True:
            try:
                deadline = Deadline(self.process.clock, REQUEST_TIMEOUT_MS)
                connection = await self._client.any_ready(deadline)
                version = connection.version_of(InitProducerIdRequest)
                request = InitProducerIdRequest(transaction_timeout_ms=REQUEST_TIMEOUT_MS)
                response = await self._client.send_on(connection, request, version)
                if response.error_code == ErrorCode.NONE:
                    return cast(int, response.producer_id)
            except KafkaError:
                pass  # asked again, until a broker can give one
            await self.pause(RETRY_MS)

    def _queue(self, pipeline: SendQueue, numbers: range) -> None:
        topic_partition = pipeline.topic_partition
        for number in numbers:
            value = b"%s-%d-%d" % (self.name.encode(), topic_partition.partition, number)
            pipeline.queue.append((number, value))
            self.history.sent.setdefault(topic_partition, []).append(value)

    def _serve(self) -> None:
        """Send the requests that may be sent; raise the epoch once everything was answered."""
        if self.epoch_is_wrong:
            if any(pipeline.in_flight for pipeline in self._pipelines):
                return
            self.epoch_is_wrong = False
            self._epoch += 1
        for pipeline in self._pipelines:
            if pipeline.queue:
                self._serve_pipeline(pipeline)

    def _serve_pipeline(self, pipeline: SendQueue) -> None:
        leader = self._metadata.cluster.leader(pipeline.topic_partition)
        if leader != pipeline.leader:  # the former leader has to answer first
            pipeline.leader, pipeline.is_draining = leader, True
        if pipeline.in_flight and pipeline.is_draining:
            return
        pipeline.is_draining = False
        connection = self._connection(leader)
        if connection is None or self.process.clock.monotonic_ms() < pipeline.retry_at_ms:
            return
        if pipeline.epoch != self._epoch:
            pipeline.epoch, pipeline.next_acknowledged = self._epoch, 0
            pipeline.base_number = pipeline.queue[0][0]
        # A broker takes any number as the first one of a producer, so that one comes alone.
        is_first = self._first_sequence and not pipeline.next_acknowledged
        most = 1 if is_first else MAX_IN_FLIGHT
        while pipeline.queue and len(pipeline.in_flight) < most and pipeline.has_room:
            self._send(pipeline, connection, *pipeline.queue.popleft())

    def _connection(self, leader: int) -> NodeConnection | None:
        """The open connection to a leader; None while there is none."""
        if leader not in self._metadata.cluster.nodes:
            self._metadata.request_update()
            return None
        connection = self._client.ready_now(leader, self._serve)
        if connection is None and self._client.connection(leader).is_backing_off:
            self._metadata.request_update()
        return connection

    def _send(
        self, pipeline: SendQueue, connection: NodeConnection, number: int, value: bytes
    ) -> None:
        sequence = number - pipeline.base_number
        records = build_batch(
            [(self.process.clock.now_ms(), None, value, ())],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._on_wire(sequence),
        )
        topic, index = pipeline.topic_partition
        data = [PartitionProduceData(index=index, records=records)]
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=REQUEST_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        pipeline.in_flight.add(number)
        version = connection.version_of(ProduceRequest, high=FIRST_VERSION_WITH_IDS - 1)
        future = self._client.send_on(connection, request, version)
        future.add_done_callback(partial(self._on_answer, pipeline, number, value, sequence))

    def _on_wire(self, sequence: int) -> int:
        """The sequence number as brokers see it; each later epoch begins with 0."""
        return (sequence + (0 if self._epoch else self._first_sequence)) & MAX_SEQUENCE

    def _on_answer(
        self,
        pipeline: SendQueue,
        number: int,
        value: bytes,
        sequence: int,
        future: asyncio.Future[Any],
    ) -> None:
        if future.cancelled():
            return  # the world is over
        pipeline.in_flight.remove(number)
        error = future.exception()
        if error is None:
            answer = future.result().responses[0].partition_responses[0]
            code, offset = ErrorCode.of(answer.error_code), answer.base_offset
        else:
            code, offset = cast(KafkaError, error).error, -1
        if code is ErrorCode.NONE:
            pipeline.next_acknowledged = sequence + 1
            self.history.note_acknowledged(pipeline.topic_partition, offset, value)
        else:
            pipeline.put_back(number, value)
            self._on_error(pipeline, sequence, code)
        self._serve()

    def _on_error(self, pipeline: SendQueue, sequence: int, code: ErrorCode) -> None:
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and sequence > pipeline.next_acknowledged:
            self.epoch_is_wrong = True
        elif code.retriable:
            pipeline.is_draining = True
            pipeline.retry_at_ms = self.process.clock.monotonic_ms() + RETRY_MS
            self._metadata.request_update()
        else:
            self.history.violations.append(
                f"{pipeline.topic_partition}: sequence {sequence} of {self.name} was refused for "
                f"good with {code.name}; {pipeline.next_acknowledged} came next"
            )


def count_led(host: Host) -> int:
    """How many partitions the broker of a host leads."""
    return sum(partition.is_leader for partition in partitions_of(host) if host.is_running)
