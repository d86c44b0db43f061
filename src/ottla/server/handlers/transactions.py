"""Transactions: AddPartitionsToTxn (24) v0-5, AddOffsetsToTxn (25) v0-4, EndTxn (26) v0-5,
WriteTxnMarkers (27) v0-1 and TxnOffsetCommit (28) v0-6.

Version notes: AddPartitionsToTxn v4 is for brokers, which verify or add for several transactions
(KIP-890). v2 of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn have PRODUCER_FENCED in the place of
INVALID_PRODUCER_EPOCH (KIP-588). TxnOffsetCommit v3 names the member that commits (KIP-447).
With EndTxn v5 and TxnOffsetCommit v5 a client follows transaction.version 2: the first raises the
epoch, the second takes the group's partition into the transaction (KIP-890). TxnOffsetCommit v6
has the ids of topics, and the errors of OffsetCommit for groups and epochs (KIP-1319).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any, Final
from uuid import UUID

from ottla.coordinator.group.group import Committer
from ottla.coordinator.group.group_coordinator import GroupCoordinator
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.coordinator.transaction.marker_sender import TxnMarker
from ottla.coordinator.transaction.marker_writer import MarkerWriter
from ottla.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from ottla.coordinator.transaction.transaction_verifier import TransactionVerifier
from ottla.errors import ErrorCode
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.transactions import (
    FROM_BROKERS_VERSION,
    OFFSET_COMMIT_THAT_ADDS_VERSION,
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.runtime import Clock
from ottla.server.api import Handler
from ottla.server.handlers.added_topics import check_topics
from ottla.server.handlers.named_topics import (
    UNRESOLVED,
    TopicName,
    has_ids,
    name_topics,
    unknown_error,
)
from ottla.server.handlers.producer_ids import session_of
from ottla.structs import (
    BROKER_CLIENT_ID,
    INTERNAL_TOPICS,
    NO_SESSION,
    OFFSETS_TOPIC,
    TopicPartition,
    TxnProducer,
)

ABORTABLE_VERSION: Final = 5
PRODUCER_FENCED_VERSION: Final = 2
END_WITH_BUMP_VERSION: Final = 5

Errors = Mapping[TopicPartition, ErrorCode]

# The transaction coordinator's errors, as the group coordinator's.
OFFSET_COMMIT_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}


class TransactionHandlers:
    """Brings requests to the transaction coordinator, and offsets to the group coordinator."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        groups: GroupCoordinator,
        verifier: TransactionVerifier,
        markers: MarkerWriter,
        clock: Clock,
        topic_id: Callable[[TopicPartition], UUID | None],
        topic_name: TopicName,
    ) -> None:
        """`topic_id` gives the id of a partition's topic, None if there is no such partition.

        `topic_name` gives the name of the topic with an id, None if there is no such topic.
        """
        self.coordinator = coordinator
        self.groups = groups
        self.verifier = verifier
        self.markers = markers
        self.clock = clock
        self.topic_id = topic_id
        self.topic_name = topic_name
        # Name of a broker -> its newest connection for markers.
        self._marker_sessions: dict[str, int] = {}

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.ADD_PARTITIONS_TO_TXN: self.handle_add_partitions_to_txn,
            ApiKey.ADD_OFFSETS_TO_TXN: self.handle_add_offsets_to_txn,
            ApiKey.END_TXN: self.handle_end_txn,
            ApiKey.WRITE_TXN_MARKERS: self.handle_write_txn_markers,
            ApiKey.TXN_OFFSET_COMMIT: self.handle_txn_offset_commit,
        }

    def handle_add_partitions_to_txn(
        self, context: RequestContext, body: AddPartitionsToTxnRequest
    ) -> None:
        if context.api_version >= FROM_BROKERS_VERSION:
            self._add_for_brokers(context, body)
            return
        check_topics(body)
        producer = TxnProducer(
            body.v3_and_below_transactional_id,
            body.v3_and_below_producer_id,
            body.v3_and_below_producer_epoch,
            session_of(context),
        )

        def respond(errors: Errors) -> None:
            told = {tp: old_error(error, context) for tp, error in errors.items()}
            topics = partition_results(body.v3_and_below_topics, told)
            context.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics))

        partitions = partitions_of(body.v3_and_below_topics)
        internal = [tp for tp in partitions if tp.topic in INTERNAL_TOPICS]
        if internal:
            # Whatever the client's rights: only brokers take these into transactions.
            respond(_none_of(partitions, internal, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        else:
            self._add(producer, partitions, respond)

    def _add_for_brokers(self, context: RequestContext, body: AddPartitionsToTxnRequest) -> None:
        results: dict[str, AddPartitionsToTxnResult] = {}

        def on_result(asked: AddPartitionsToTxnTransaction, errors: Errors) -> None:
            if asked.verify_only and context.api_version >= ABORTABLE_VERSION:
                errors = {tp: abortable(error) for tp, error in errors.items()}
            results[asked.transactional_id] = AddPartitionsToTxnResult(
                transactional_id=asked.transactional_id,
                topic_results=partition_results(asked.topics, errors),
            )
            if len(results) == len(asked_for):
                context.respond(
                    AddPartitionsToTxnResponse(results_by_transaction=list(results.values()))
                )

        asked_for = {asked.transactional_id: asked for asked in body.transactions}
        if not asked_for:
            context.respond(AddPartitionsToTxnResponse())
        for asked in asked_for.values():
            self._add_or_verify(asked, on_result)

    def _add_or_verify(
        self,
        asked: AddPartitionsToTxnTransaction,
        on_result: Callable[[AddPartitionsToTxnTransaction, Errors], object],
    ) -> None:
        producer = TxnProducer(asked.transactional_id, asked.producer_id, asked.producer_epoch)
        partitions = partitions_of(asked.topics)
        if asked.verify_only:
            on_result(asked, self.coordinator.verify_partitions(producer, partitions))
        else:
            self._add(producer, partitions, lambda errors: on_result(asked, errors))

    def _add(
        self,
        producer: TxnProducer,
        partitions: list[TopicPartition],
        respond: Callable[[Errors], object],
    ) -> None:
        """All of the partitions, or none if one does not exist."""
        unknown = [tp for tp in partitions if self.topic_id(tp) is None]
        if unknown:
            respond(_none_of(partitions, unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return
        self.coordinator.add_partitions(
            producer, partitions, lambda error: respond(dict.fromkeys(partitions, error))
        )

    def handle_add_offsets_to_txn(
        self, context: RequestContext, body: AddOffsetsToTxnRequest
    ) -> None:
        producer = TxnProducer(
            body.transactional_id, body.producer_id, body.producer_epoch, session_of(context)
        )
        partition = TopicPartition(OFFSETS_TOPIC, self.groups.partition_for(body.group_id))
        self.coordinator.add_partitions(
            producer,
            [partition],
            lambda error: context.respond(
                AddOffsetsToTxnResponse(error_code=old_error(error, context))
            ),
        )

    def handle_end_txn(
        self, context: RequestContext, body: EndTxnRequest
    ) -> Coroutine[Any, Any, None] | None:
        producer = TxnProducer(
            body.transactional_id, body.producer_id, body.producer_epoch, session_of(context)
        )
        if context.api_version >= END_WITH_BUMP_VERSION:
            return self.coordinator.end_with_bump(
                producer,
                body.committed,
                lambda error, producer_id, epoch: context.respond(
                    EndTxnResponse(error_code=error, producer_id=producer_id, producer_epoch=epoch)
                ),
            )
        self.coordinator.end_transaction(
            producer,
            body.committed,
            lambda error: context.respond(EndTxnResponse(error_code=old_error(error, context))),
        )
        return None

    def handle_write_txn_markers(
        self, context: RequestContext, body: WriteTxnMarkersRequest
    ) -> None:
        results: dict[int, WritableTxnMarkerResult] = {}

        def on_written(number: int, marker: WritableTxnMarker, errors: Errors) -> None:
            results[number] = marker_result(marker, errors)
            if len(results) == len(body.markers):
                markers = [results[number] for number in range(len(results))]
                context.respond(WriteTxnMarkersResponse(markers=markers))

        if not body.markers:
            context.respond(WriteTxnMarkersResponse())
        is_late = self._has_been_replaced(context)
        for number, marker in enumerate(body.markers):
            if is_late:
                on_written(number, marker, defaultdict(lambda: ErrorCode.NETWORK_EXCEPTION))
            else:
                self._write_marker(marker, partial(on_written, number, marker))

    def _has_been_replaced(self, context: RequestContext) -> bool:
        """Whether a newer connection of the sending broker has brought markers already.

        A coordinator has one connection for markers to a broker. It has sent again the markers of
        the one before; a marker that comes from there would end the next transaction, which has the
        same epoch where each has none of its own (`transaction.version` below 2).
        """
        sender = context.client_id
        if not sender.startswith(BROKER_CLIENT_ID):
            return False
        session = session_of(context)
        newest = max(session, self._marker_sessions.get(sender, session))
        self._marker_sessions[sender] = newest
        return session < newest

    def _write_marker(
        self, marker: WritableTxnMarker, on_written: Callable[[Errors], object]
    ) -> None:
        partitions = [
            TopicPartition(topic.name, index)
            for topic in marker.topics
            for index in topic.partition_indexes
        ]
        self.markers.write(
            TxnMarker(
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                marker.coordinator_epoch,
                marker.transaction_version,
            ),
            partitions,
            on_written,
        )

    def handle_txn_offset_commit(
        self, context: RequestContext, body: TxnOffsetCommitRequest
    ) -> None:
        offsets: dict[TopicPartition, CommittedOffset] = {}
        unknown: dict[TopicPartition, ErrorCode] = {}
        by_id = has_ids(context, ApiKey.TXN_OFFSET_COMMIT)
        if by_id:
            name_topics(body.topics, self.topic_name)
        for topic in body.topics:
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                topic_id = self.topic_id(topic_partition)
                if topic_id is None:
                    unknown[topic_partition] = unknown_error(topic.name, has_ids=by_id)
                    continue
                offsets[topic_partition] = CommittedOffset(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    self.clock.now_ms(),
                    topic_id=topic_id,
                )

        def respond(errors: Errors) -> None:
            context.respond(offset_commit_response(body, {**errors, **unknown}))

        if offsets:
            self._commit_offsets(context, body, offsets, respond)
        else:
            respond({})

    def _commit_offsets(
        self,
        context: RequestContext,
        body: TxnOffsetCommitRequest,
        offsets: Mapping[TopicPartition, CommittedOffset],
        respond: Callable[[Errors], object],
    ) -> None:
        error = self.groups.availability(body.group_id)
        if error:
            respond(dict.fromkeys(offsets, error))
            return
        producer = TxnProducer(
            body.transactional_id, body.producer_id, body.producer_epoch, session_of(context)
        )
        partition = TopicPartition(OFFSETS_TOPIC, self.groups.partition_for(body.group_id))
        by_id = has_ids(context, ApiKey.TXN_OFFSET_COMMIT)

        def on_verified(errors: Errors) -> None:
            for refusal in errors.values():
                respond(dict.fromkeys(offsets, OFFSET_COMMIT_ERRORS.get(refusal, refusal)))
                return
            # A topic may have been deleted meanwhile, and another one made under its name.
            left = {
                each: value
                for each, value in offsets.items()
                if self.topic_id(each) == value.topic_id
            }
            error = unknown_error(UNRESOLVED, has_ids=by_id)
            gone = dict.fromkeys(offsets.keys() - left, error)
            committer = Committer(
                body.member_id, body.generation_id, body.group_instance_id, knows_epochs=by_id
            )
            self.groups.commit_offsets_in_transaction(
                body.group_id, committer, producer, left, lambda errors: respond({**errors, **gone})
            )

        # The coordinator knows the producer by another connection: it is not asked about this one.
        asking = producer._replace(session=NO_SESSION)
        adds = context.api_version >= OFFSET_COMMIT_THAT_ADDS_VERSION
        self.verifier.verify(asking, {partition: 0}, on_verified, adds=adds)


def _none_of(
    partitions: Iterable[TopicPartition], bad: Iterable[TopicPartition], error: ErrorCode
) -> Errors:
    """The answer where some partitions cannot be added: then none is."""
    errors = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
    return errors | dict.fromkeys(bad, error)


def old_error(error: ErrorCode, context: RequestContext) -> ErrorCode:
    """The error for the client's version: before KIP-588 there was one error for fencing."""
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < PRODUCER_FENCED_VERSION:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def abortable(error: ErrorCode) -> ErrorCode:
    """Newer clients may abort the transaction and continue; older ones have to give up."""
    return ErrorCode.TRANSACTION_ABORTABLE if error is ErrorCode.INVALID_TXN_STATE else error


def partitions_of(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def partition_results(
    topics: Iterable[AddPartitionsToTxnTopic], errors: Errors
) -> list[AddPartitionsToTxnTopicResult]:
    """One result for each partition of the request, in its order."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=errors[TopicPartition(topic.name, index)],
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def marker_result(marker: WritableTxnMarker, errors: Errors) -> WritableTxnMarkerResult:
    """One result for each partition that the marker was for."""
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=index, error_code=errors[TopicPartition(topic.name, index)]
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


def offset_commit_response(body: TxnOffsetCommitRequest, errors: Errors) -> TxnOffsetCommitResponse:
    """One result for each partition of the request, in its order."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=errors[TopicPartition(topic.name, partition.partition_index)],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )
