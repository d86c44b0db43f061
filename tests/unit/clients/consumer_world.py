"""A consumer's core in a virtual world, with logs to fetch from and a group that has one member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mock_kafka import Later, MockCluster

from ottla.clients.consumer.consumer_core import ConsumerCore
from ottla.clients.consumer.subscription_state import RebalanceEvent, RebalanceListener
from ottla.config.client_config import ConsumerConfig
from ottla.errors import ErrorCode
from ottla.protocol.consumer_protocol import encode_assignment
from ottla.protocol.fetch import (
    DivergingEpoch,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ottla.protocol.leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.record.batch_builder import build_batch
from ottla.record.record_batch import RecordBatch, assign_offset
from ottla.runtime.timing import Deadline
from ottla.structs import NO_EPOCH, NO_UUID, TopicPartition

if TYPE_CHECKING:
    from ottla.record.consumer_record import ConsumerRecord


class ConsumerWorld:
    """`logs` holds batches by partition of `pages`; `committed` what the group has committed."""

    def __init__(self, runtime, cluster: MockCluster, **settings: Any) -> None:
        self.runtime = runtime
        self.cluster = cluster
        self.logs: dict[int, list[bytes]] = {0: [], 1: []}
        self.aborted: list = []
        self.committed: dict[TopicPartition, int] = {}
        self.generation = 0
        for broker in cluster.brokers.values():
            broker.on(FetchRequest, self.fetch)
            broker.on(ListOffsetsRequest, self.list_offsets)
            broker.on(JoinGroupRequest, self.join)
            broker.on(SyncGroupRequest, self.sync)
            broker.on(HeartbeatRequest, HeartbeatResponse())
            broker.on(LeaveGroupRequest, LeaveGroupResponse())
            broker.on(OffsetCommitRequest, self.commit)
            broker.on(OffsetFetchRequest, self.fetch_offsets)
        defaults = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        config = ConsumerConfig.parse(defaults, **settings)
        self.core = runtime.scheduler.run(self._build(config))

    async def _build(self, config) -> ConsumerCore:
        return ConsumerCore(self.runtime, config)

    # What the test does

    def write(self, *values: str, partition: int = 0, epoch: int = NO_EPOCH, **header: Any) -> None:
        """Append one batch to a log, as a leader of an epoch stores it."""
        records = [(1000, None, value.encode(), ()) for value in values]
        batch = bytearray(build_batch(records, **header))
        assign_offset(batch, 0, self.end(partition), epoch)
        self.logs[partition].append(bytes(batch))

    def end(self, partition: int) -> int:
        log = self.logs[partition]
        return RecordBatch(log[-1]).next_offset if log else 0

    def diverging(self, epoch: int, end_offset: int):
        """The answer to a fetch of a leader whose log parts from the reader's."""

        def answer(request: FetchRequest, version: int) -> FetchResponse:
            response = self.fetched(request, {})
            data = response.responses[0].partitions[0]
            data.records = b""
            data.diverging_epoch = DivergingEpoch(epoch=epoch, end_offset=end_offset)
            return response

        return answer

    def assign(self, *partitions: int) -> None:
        self.call(self.core.assign, [TopicPartition("pages", p) for p in partitions])

    def subscribe(self, listener: object = None) -> None:
        self.call(self.core.subscribe, ["pages"], listener)

    def call(self, function, *arguments) -> Any:
        """Call a plain function of the core as its loop would."""

        async def call() -> Any:
            return function(*arguments)

        return self.runtime.scheduler.run(call())

    def run(self, call) -> Any:
        return self.runtime.scheduler.run(call)

    def deadline(self, ms: int = 1000) -> Deadline:
        return Deadline(self.runtime.clock, ms)

    def poll(self, ms: int = 1000) -> list[ConsumerRecord]:
        """Poll as the consumer does; events are acknowledged, and told to the listener."""
        deadline = self.deadline(ms)
        while True:
            outcome = self.run(self.core.poll(deadline))
            if not isinstance(outcome, RebalanceEvent):
                return outcome
            outcome.tell(self.core.subscriptions.listener)
            self.call(self.core.acknowledge)

    def values(self, ms: int = 1000) -> list[str]:
        return [record.value.decode() for record in self.poll(ms)]

    def advance(self, ms: int) -> None:
        self.runtime.advance(ms)

    # What brokers do

    def fetch(self, request: FetchRequest, version: int) -> FetchResponse | Later:
        """With nothing new, the answer waits as long as the consumer permits."""
        response = self.fetched(request, {})
        entries = [data for topic in response.responses for data in topic.partitions]
        if any(data.records or data.error_code for data in entries):
            return response
        return Later(request.max_wait_ms, response)

    def fetched(self, request: FetchRequest, errors: dict[int, int]) -> FetchResponse:
        """What the logs have from the wanted offsets on, or errors by partition."""
        response = FetchResponse()
        topic_id = self.cluster.topic_ids.get("pages", NO_UUID)
        for topic in request.topics:
            entry = FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id)
            response.responses.append(entry)
            stranger = 0 if topic.topic_id == topic_id else ErrorCode.UNKNOWN_TOPIC_ID
            for wanted in topic.partitions:
                data = PartitionData(
                    partition_index=wanted.partition,
                    error_code=errors.get(wanted.partition, stranger),
                    high_watermark=self.end(wanted.partition),
                )
                if wanted.fetch_offset > self.end(wanted.partition):
                    data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                elif not data.error_code:
                    log = self.logs[wanted.partition]
                    new = [b for b in log if RecordBatch(b).last_offset >= wanted.fetch_offset]
                    data.records = b"".join(new)
                    data.aborted_transactions = self.aborted
                entry.partitions.append(data)
        return response

    def refuse_fetch(self, code: int, partition: int = 0):
        return lambda request, version: self.fetched(request, {partition: code})

    def list_offsets(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        response = ListOffsetsResponse()
        for topic in request.topics:
            response.topics.append(
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=p.partition_index,
                            offset=0 if p.timestamp == -2 else self.end(p.partition_index),
                        )
                        for p in topic.partitions
                    ],
                )
            )
        return response

    def join(self, request: JoinGroupRequest, version: int) -> JoinGroupResponse:
        if not request.member_id:
            code = ErrorCode.MEMBER_ID_REQUIRED
            return JoinGroupResponse(error_code=code, member_id=f"member-{self.generation}")
        self.generation += 1
        member = JoinGroupResponseMember(
            member_id=request.member_id, metadata=request.protocols[0].metadata
        )
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_name=request.protocols[0].name,
            leader=request.member_id,
            member_id=request.member_id,
            members=[member],
        )

    def sync(self, request: SyncGroupRequest, version: int) -> SyncGroupResponse:
        return SyncGroupResponse(assignment=request.assignments[0].assignment)

    def give(self, *partitions: int):
        """An answer to SyncGroup that gives these partitions, whatever the leader says."""
        share = [TopicPartition("pages", p) for p in partitions]
        return SyncGroupResponse(assignment=encode_assignment(share))

    def commit(self, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        return self.commit_answer(request, 0)

    def refuse_commit(self, code: int):
        return lambda request, version: self.commit_answer(request, code)

    def commit_answer(self, request: OffsetCommitRequest, code: int) -> OffsetCommitResponse:
        response = OffsetCommitResponse()
        for topic in request.topics:
            entry = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
            response.topics.append(entry)
            name = self.name_of(topic)
            error = code or (0 if name else ErrorCode.UNKNOWN_TOPIC_ID)
            for p in topic.partitions:
                if not error:
                    self.committed[TopicPartition(name, p.partition_index)] = p.committed_offset
                entry.partitions.append(
                    OffsetCommitResponsePartition(
                        partition_index=p.partition_index, error_code=error
                    )
                )
        return response

    def name_of(self, topic) -> str:
        """The name in a request, or that of the topic with its id; "" if there is none."""
        ids = {id: name for name, id in self.cluster.topic_ids.items()}
        return topic.name or ids.get(topic.topic_id, "")

    def fetch_offsets(self, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        groups = []
        for group in request.groups:
            topics = [
                OffsetFetchResponseTopics(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        self.committed_line(TopicPartition(self.name_of(topic), p))
                        for p in topic.partition_indexes
                    ],
                )
                for topic in group.topics or ()
            ]
            groups.append(OffsetFetchResponseGroup(group_id=group.group_id, topics=topics))
        return OffsetFetchResponse(groups=groups)

    def committed_line(self, partition: TopicPartition) -> OffsetFetchResponsePartitions:
        line = OffsetFetchResponsePartitions(partition_index=partition.partition)
        line.committed_offset = self.committed.get(partition, -1)
        line.error_code = 0 if partition.topic else ErrorCode.UNKNOWN_TOPIC_ID
        return line


__all__ = ["ConsumerWorld"]


def epoch_ends(epoch: int, end_offset: int, error: int = 0) -> OffsetForLeaderEpochResponse:
    """A leader that says of partition 0 that `epoch` ends there, whatever it is asked."""
    end = EpochEndOffset(partition=0, leader_epoch=epoch, end_offset=end_offset, error_code=error)
    topic = OffsetForLeaderTopicResult(topic="pages", partitions=[end])
    return OffsetForLeaderEpochResponse(topics=[topic])


class Journal(RebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, partitions):
        self.events.append(("assigned", [p.partition for p in partitions]))

    def on_partitions_revoked(self, partitions):
        self.events.append(("revoked", [p.partition for p in partitions]))

    def on_partitions_lost(self, partitions):
        self.events.append(("lost", [p.partition for p in partitions]))
