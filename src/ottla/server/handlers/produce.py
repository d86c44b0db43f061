"""Produce (0): append record batches.

Behaviour: one batch of magic 2 for each partition; the broker checks its header, its CRC and all
its records, unpacked if need be, and stamps offset and leader epoch in place. With acks=0 nothing
is answered, and an error closes the connection, for it is the only sign left.

Version notes: v0-2 message sets, each stored as one batch · v3 record batches · v7 zstd (KIP-110)
· v8 record errors (KIP-467) · v9 flexible · v10 current leader where another broker leads
(KIP-951) · v11-12 as v10, but in transactions (KIP-890) · v13 topic ids (KIP-516): nothing is
appended to another topic of the name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from struct import Struct
from typing import Final, cast
from uuid import UUID

from ottla.errors import ErrorCode, KafkaError
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.produce import (
    FIRST_VERSION_WITH_BATCHES,
    FIRST_VERSION_WITH_IDS,
    FIRST_VERSION_WITH_LEADERS,
    FIRST_VERSION_WITH_ZSTD,
    BatchIndexAndErrorMessage,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.record.compression import CompressionType
from ottla.record.record import LOG_OVERHEAD
from ottla.record.record_batch import BATCH_OVERHEAD, MAGIC, MAGIC_POSITION
from ottla.replication.append_results import ACKS_ALL, ACKS_LEADER, ACKS_NONE, PartitionAppendResult
from ottla.replication.delayed_produce import AppendResults
from ottla.replication.replica_manager import ReplicaManager
from ottla.server.api import Handler
from ottla.server.handlers.named_topics import UNRESOLVED, TopicName, name_topics
from ottla.server.handlers.transactional_produce import TransactionalProduce, note_refusals
from ottla.server.metadata_cache import CurrentLeaders
from ottla.structs import NO_EPOCH, NO_UUID, TopicPartition

BATCH_LENGTH = Struct(">8xi")
LENGTH_MAGIC_AND_ATTRIBUTES: Final = Struct(">8xi4xb4xh").unpack_from
CODEC_MASK = 0x07
ZSTD: Final = int(CompressionType.ZSTD)


class ProduceHandler:
    """Appends through the replica manager."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        transactional: TransactionalProduce,
        leaders: CurrentLeaders,
        topic_name: TopicName,
    ) -> None:
        self.replica_manager = replica_manager
        self.transactional = transactional
        self.leaders = leaders
        self.topic_name = topic_name

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.PRODUCE: self.handle_produce}

    def handle_produce(self, context: RequestContext, body: ProduceRequest) -> None:
        refusal = refuse_request(body)
        if body.acks == ACKS_NONE:
            context.expect_no_response()
        entries: dict[TopicPartition, memoryview] = {}
        refused: AppendResults = {}
        version = context.api_version
        by_id = version >= FIRST_VERSION_WITH_IDS
        if by_id:
            name_topics(body.topic_data, self.topic_name)
        for topic in body.topic_data:
            name = topic.name
            for data in topic.partition_data:
                topic_partition = TopicPartition(name, data.index)
                records, data.records = data.records, None  # the wait keeps no frame
                problem = refusal or refuse_records(records, version)
                if by_id:
                    problem = self._refuse_another(topic_partition, topic.topic_id) or problem
                if problem is not None:
                    refused[topic_partition] = problem
                elif records:
                    entries[topic_partition] = records
                else:
                    refused[topic_partition] = self._append_nothing(topic_partition)

        if refused:
            note_refusals(self.replica_manager, refused)

        def respond(appended: AppendResults) -> None:
            answer(context, body, {**refused, **appended} if refused else appended, self.leaders)

        if body.transactional_id is None:
            self.replica_manager.append_records(
                body.timeout_ms, body.acks, entries, respond, wait_for=context.await_acknowledgement
            )
        else:
            refuse = partial(self._refuse_others, body) if by_id else dict
            self.transactional.append(context, body, entries, refuse, respond)

    def _refuse_another(
        self, topic_partition: TopicPartition, topic_id: UUID
    ) -> PartitionAppendResult | None:
        """Why nothing of a topic with this id can be appended, if no such topic is here."""
        partition = self.replica_manager.partitions.get(topic_partition)
        is_another = partition is not None and partition.topic_id not in (topic_id, NO_UUID)
        if is_another or topic_partition.topic == UNRESOLVED:
            return PartitionAppendResult(
                ErrorCode.UNKNOWN_TOPIC_ID, error_message="no topic here has this id"
            )
        return None

    def _refuse_others(self, body: ProduceRequest) -> AppendResults:
        """Those whose topic was deleted, and made again, since they were named."""
        refused: AppendResults = {}
        for topic in body.topic_data:
            for data in topic.partition_data:
                topic_partition = TopicPartition(topic.name, data.index)
                problem = self._refuse_another(topic_partition, topic.topic_id)
                if problem is not None:
                    refused[topic_partition] = problem
        return refused

    def _append_nothing(self, topic_partition: TopicPartition) -> PartitionAppendResult:
        """The answer to a message set without a message, which is no error."""
        try:
            self.replica_manager.partition(topic_partition).check_leader_epoch(NO_EPOCH)
        except KafkaError as error:
            return PartitionAppendResult(error.error, error_message=error.message)
        return PartitionAppendResult(ErrorCode.NONE)


def refuse_request(body: ProduceRequest) -> PartitionAppendResult | None:
    """Why nothing of the request can be appended, if so."""
    if body.acks not in (ACKS_ALL, ACKS_LEADER, ACKS_NONE):
        return PartitionAppendResult(ErrorCode.INVALID_REQUIRED_ACKS)
    return None


def is_batch(records: memoryview) -> bool:
    """Whether an old request carries the format of newer ones, which brokers take as well."""
    return len(records) > MAGIC_POSITION and records[MAGIC_POSITION] == MAGIC


def refuse_records(records: memoryview | None, api_version: int) -> PartitionAppendResult | None:
    """Why these bytes are not one batch that a producer of this version may send, if so.

    Message sets of old versions are left to the log, which makes a batch of them.
    """
    if records is not None and len(records) >= BATCH_OVERHEAD:
        length, magic, attributes = LENGTH_MAGIC_AND_ATTRIBUTES(records)
        if magic == MAGIC and length + LOG_OVERHEAD == len(records):
            if api_version < FIRST_VERSION_WITH_ZSTD and attributes & CODEC_MASK == ZSTD:
                return PartitionAppendResult(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            return None
    return _refuse_all_but_message_sets(records, api_version)


def _refuse_all_but_message_sets(
    records: memoryview | None, api_version: int
) -> PartitionAppendResult | None:
    if records is not None and not is_batch(records):
        if api_version < FIRST_VERSION_WITH_BATCHES:
            return None
        if len(records) >= BATCH_OVERHEAD:
            return PartitionAppendResult(
                ErrorCode.INVALID_RECORD,
                error_message=f"magic {records[MAGIC_POSITION]} is not {MAGIC}, the only one that "
                f"Produce v{api_version} has",
            )
    if records is None or len(records) < BATCH_OVERHEAD:
        return PartitionAppendResult(
            ErrorCode.CORRUPT_MESSAGE,
            error_message=f"{len(records or b'')} bytes are too few for a record batch",
        )
    (length,) = BATCH_LENGTH.unpack_from(records)
    return PartitionAppendResult(
        ErrorCode.INVALID_RECORD,
        error_message=f"a partition takes one record batch a request: its length is "
        f"{length + LOG_OVERHEAD} and {len(records)} bytes were sent",
    )


def answer(
    context: RequestContext, body: ProduceRequest, results: AppendResults, leaders: CurrentLeaders
) -> None:
    """Answer in the order of the request; acks=0 has no answer."""
    if body.acks == ACKS_NONE:
        failed = [tp for tp, result in results.items() if result.error is not ErrorCode.NONE]
        if failed:
            tp = failed[0]
            context.close_connection(f"acks=0 produce to {tp} failed: {results[tp].error.name}")
        else:
            context.no_response()
        return
    names_leaders = context.api_version >= FIRST_VERSION_WITH_LEADERS
    endpoints: dict[int, NodeEndpoint] = {}
    response = ProduceResponse()
    # A TopicPartition is a pair; to make one for each look-up costs more than all else here.
    by_pair = cast("dict[tuple[str, int], PartitionAppendResult]", results)
    for topic in body.topic_data:
        name, lines = topic.name, []
        for data in topic.partition_data:
            index = data.index
            result = by_pair[name, index]
            line = partition_response(index, result)
            if names_leaders and result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                listener, topic_partition = context.listener_name, TopicPartition(name, index)
                line.current_leader = leaders.find(topic_partition, listener, endpoints)
            lines.append(line)
        response.responses.append(
            TopicProduceResponse(name=name, topic_id=topic.topic_id, partition_responses=lines)
        )
    response.node_endpoints.extend(endpoints.values())
    context.respond(response)


def partition_response(index: int, result: PartitionAppendResult) -> PartitionProduceResponse:
    """One partition's line of the answer, with the records at fault (KIP-467)."""
    response = PartitionProduceResponse(
        index=index,
        error_code=int(result.error),
        base_offset=result.base_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
        error_message=result.error_message,
    )
    if result.record_errors:
        response.record_errors = [
            BatchIndexAndErrorMessage(batch_index=each, batch_index_error_message=why)
            for each, why in result.record_errors.items()
        ]
    return response
