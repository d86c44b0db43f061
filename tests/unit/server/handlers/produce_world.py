"""Produce requests as bytes to the handler of one broker, in virtual time on a disk in memory."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from apis_world import Context

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.errors import ErrorCode
from ottla.log.log_manager import LogManager
from ottla.protocol.message import decode, encode
from ottla.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.record.memory_records import batches
from ottla.record.record_batch import Record
from ottla.replication.delayed_produce import DelayedProduce
from ottla.replication.replica_manager import ReplicaManager
from ottla.server.handlers.produce import ProduceHandler
from ottla.server.handlers.transactional_produce import TransactionalProduce
from ottla.structs import LeaderAndIsr, PartitionState, TopicPartition
from ottla.testing import mock_runtime

BROKER = 3
NOW_MS = 1_700_000_000_000
PARTITION = TopicPartition("t", 0)
TOPIC_ID = UUID(int=5)


class ProduceContext(Context):
    """The context of a produce to one partition: its answers are those of that partition."""

    def __init__(self, world: ProduceWorld, api_version: int) -> None:
        super().__init__(api_version)
        self._world = world
        self.closed = self.answers

    def respond(self, response: ProduceResponse) -> None:
        self.answers.append(response.responses[0].partition_responses[0])

    def expect_no_response(self) -> None:
        self._world.unanswered += 1

    def await_acknowledgement(self, operation: DelayedProduce) -> None:
        self._world.wait_for(operation)


class ProduceWorld:
    """A broker that leads partition 0 of the topic t, whose settings the test may choose."""

    topic_id = TOPIC_ID
    """The topic that requests give, where they give an id."""

    def __init__(self, **settings: object) -> None:
        self.runtime = mock_runtime()
        self.runtime.clock.advance(NOW_MS - self.runtime.clock.now_ms())
        config = BrokerConfig.parse({"log.dirs": "/logs"})
        topic = {name.replace("_", "."): str(value) for name, value in settings.items()}
        logs = LogManager(self.runtime, config, lambda _: TopicConfig.of(config, topic))
        logs.acquire()
        logs.claim(BROKER, "cluster")
        self.manager = ReplicaManager(self.runtime, logs, BROKER, lambda _: False)
        self.lead()
        self.unanswered = 0
        """How many requests want no answer."""
        self.wait_for: Callable[[DelayedProduce], object] = lambda operation: None
        self.names = {TOPIC_ID: PARTITION.topic}
        """The topics of the broker's metadata."""
        # No version is asked for in which leaders are named.
        transactional = TransactionalProduce(self.manager, None)
        self.handler = ProduceHandler(self.manager, transactional, None, self.names.get)

    def lead(
        self,
        leader: int = BROKER,
        epoch: int = 1,
        topic_id: UUID = TOPIC_ID,
        isr: tuple[int, ...] = (BROKER,),
    ) -> None:
        """Have a broker lead the partition."""
        state = LeaderAndIsr(leader, epoch, isr)
        partition = PartitionState(PARTITION, topic_id, epoch, state, isr)
        self.manager.become_leader_or_follower([partition], {})

    def begin(self, records: bytes, version: int = 9, acks: int = 1) -> list:
        """Send a batch; the list gets the answer, or why the connection was closed."""
        part = PartitionProduceData(index=0, records=records)
        topic = TopicProduceData(
            name=PARTITION.topic, topic_id=self.topic_id, partition_data=[part]
        )
        body = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])
        frame = bytearray(encode(body, version))
        context = ProduceContext(self, version)
        self.handler.handle_produce(context, decode(ProduceRequest, version, memoryview(frame)))
        self.manager.complete_delayed()
        frame.clear()  # the network's buffer is used again: an error where something keeps it
        return context.answers

    def send(self, records: bytes, version: int = 9) -> PartitionProduceResponse:
        """Send a batch, and wait for the answer."""
        answers = self.begin(records, version)
        self.runtime.scheduler.run_ready()
        (answer,) = answers
        return answer

    def error(self, records: bytes, version: int = 9) -> ErrorCode:
        return ErrorCode.of(self.send(records, version).error_code)

    @property
    def end_offset(self) -> int:
        return self.manager.partition(PARTITION).log.log_end_offset

    def stored(self, offset: int = 0) -> list[Record]:
        """Every record from an offset on, as it lies in the log."""
        log = self.manager.partition(PARTITION).log
        found: list[Record] = []
        while offset < log.log_end_offset:
            data = log.read(offset, 1 << 20, max_offset=log.log_end_offset, min_one_message=True)
            for batch in batches(data.records.read()):
                batch.verify()
                found += batch.records()
                offset = batch.next_offset
        return found
