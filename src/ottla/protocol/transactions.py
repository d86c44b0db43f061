"""Transactions: InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26),
WriteTxnMarkers (27), TxnOffsetCommit (28), and for administrators DescribeProducers (61),
DescribeTransactions (65), ListTransactions (66).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Array, Boolean, Int8, Int16, Int32, Int64, String, Uuid, field

if TYPE_CHECKING:
    from uuid import UUID


class InitProducerIdRequest(Request, api_key=22, flexible="2+"):
    """Ask for a producer id; with a transactional id it is always the same one (KIP-98).

    v2 flexible · v3 the present id and epoch, to have the epoch raised (KIP-360) · v4
    PRODUCER_FENCED possible · v5 TRANSACTION_ABORTABLE possible (KIP-890).
    """

    transactional_id: str | None = field(String, nullable="0+")
    transaction_timeout_ms: int = field(Int32)
    producer_id: int = field(Int64, versions="3+", default=-1)
    producer_epoch: int = field(Int16, versions="3+", default=-1)


class InitProducerIdResponse(Response, api_key=22, flexible="2+"):
    """The id and the epoch to write with. v2 flexible."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    producer_id: int = field(Int64, default=-1)
    producer_epoch: int = field(Int16)


class AddPartitionsToTxnTopic(Struct):
    """The partitions of one topic."""

    name: str = field(String)
    partitions: list[int] = field(Array(Int32))


class AddPartitionsToTxnTransaction(Struct):
    """One transaction of those that a broker asks about (v4+)."""

    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    verify_only: bool = field(Boolean)
    topics: list[AddPartitionsToTxnTopic] = field(Array(AddPartitionsToTxnTopic))


FROM_BROKERS_VERSION: Final = 4
"""The first version of AddPartitionsToTxn that brokers send, which may only verify."""


class AddPartitionsToTxnRequest(Request, api_key=24, flexible="3+"):
    """Name partitions before the first write to them; the first ones begin a transaction.

    v2 PRODUCER_FENCED possible · v3 flexible, the last version for clients · v4 several
    transactions, of brokers that only verify (KIP-890) · v5 TRANSACTION_ABORTABLE possible.
    """

    transactions: list[AddPartitionsToTxnTransaction] = field(
        Array(AddPartitionsToTxnTransaction), versions="4+"
    )
    v3_and_below_transactional_id: str = field(String, versions="0-3")
    v3_and_below_producer_id: int = field(Int64, versions="0-3")
    v3_and_below_producer_epoch: int = field(Int16, versions="0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(
        Array(AddPartitionsToTxnTopic), versions="0-3"
    )


class AddPartitionsToTxnPartitionResult(Struct):
    """Whether one partition belongs to the transaction now."""

    partition_index: int = field(Int32)
    partition_error_code: int = field(Int16)


class AddPartitionsToTxnTopicResult(Struct):
    """The partitions of one topic."""

    name: str = field(String)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        Array(AddPartitionsToTxnPartitionResult)
    )


class AddPartitionsToTxnResult(Struct):
    """The partitions of one transaction (v4+)."""

    transactional_id: str = field(String)
    topic_results: list[AddPartitionsToTxnTopicResult] = field(Array(AddPartitionsToTxnTopicResult))


class AddPartitionsToTxnResponse(Response, api_key=24, flexible="3+"):
    """One result for each partition. v3 flexible · v4 by transaction."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16, versions="4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(
        Array(AddPartitionsToTxnResult), versions="4+"
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        Array(AddPartitionsToTxnTopicResult), versions="0-3"
    )


class AddOffsetsToTxnRequest(Request, api_key=25, flexible="3+"):
    """Name the group whose offsets will be committed with the transaction.

    v2 PRODUCER_FENCED possible · v3 flexible · v4 TRANSACTION_ABORTABLE possible (KIP-890).
    """

    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    group_id: str = field(String)


class AddOffsetsToTxnResponse(Response, api_key=25, flexible="3+"):
    """Whether the group's partition belongs to the transaction now. v3 flexible."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)


class EndTxnRequest(Request, api_key=26, flexible="3+"):
    """Commit the transaction, or abort it.

    v2 PRODUCER_FENCED possible · v3 flexible · v4 TRANSACTION_ABORTABLE possible · v5 raises the
    epoch (KIP-890).
    """

    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    committed: bool = field(Boolean)


class EndTxnResponse(Response, api_key=26, flexible="3+"):
    """Whether it is decided; the markers may still be on their way.

    v3 flexible · v5 the id and epoch that the producer uses from now on (KIP-890).
    """

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    producer_id: int = field(Int64, versions="5+", default=-1, ignorable=True)
    producer_epoch: int = field(Int16, versions="5+", default=-1, ignorable=True)


class WritableTxnMarkerTopic(Struct):
    """The partitions of one topic."""

    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


class WritableTxnMarker(Struct):
    """How one transaction has ended, and the partitions that must get its marker."""

    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    transaction_result: bool = field(Boolean)
    topics: list[WritableTxnMarkerTopic] = field(Array(WritableTxnMarkerTopic))
    coordinator_epoch: int = field(Int32)
    transaction_version: int = field(Int8, versions="2+", ignorable=True)


class WriteTxnMarkersRequest(Request, api_key=27, flexible="1+"):
    """A coordinator has the ends of transactions written into the logs.

    v1 flexible · v2 whether the end has raised the producer's epoch (KIP-1228).
    """

    markers: list[WritableTxnMarker] = field(Array(WritableTxnMarker))


class WritableTxnMarkerPartitionResult(Struct):
    """Whether the marker is in the log of one partition."""

    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class WritableTxnMarkerTopicResult(Struct):
    """The partitions of one topic."""

    name: str = field(String)
    partitions: list[WritableTxnMarkerPartitionResult] = field(
        Array(WritableTxnMarkerPartitionResult)
    )


class WritableTxnMarkerResult(Struct):
    """The partitions of one marker."""

    producer_id: int = field(Int64)
    topics: list[WritableTxnMarkerTopicResult] = field(Array(WritableTxnMarkerTopicResult))


class WriteTxnMarkersResponse(Response, api_key=27, flexible="1+"):
    """One result for each partition of each marker. v1 flexible."""

    markers: list[WritableTxnMarkerResult] = field(Array(WritableTxnMarkerResult))


class TxnOffsetCommitRequestPartition(Struct):
    """The offset of the next record to read, with a note of the consumer's own."""

    partition_index: int = field(Int32)
    committed_offset: int = field(Int64)
    committed_leader_epoch: int = field(Int32, versions="2+", default=-1, ignorable=True)
    committed_metadata: str | None = field(String, nullable="0+")


class TxnOffsetCommitRequestTopic(Struct):
    """The partitions of one topic."""

    name: str = field(String, versions="0-5", ignorable=True)
    topic_id: UUID = field(Uuid, versions="6+", ignorable=True)
    partitions: list[TxnOffsetCommitRequestPartition] = field(
        Array(TxnOffsetCommitRequestPartition)
    )


OFFSET_COMMIT_THAT_ADDS_VERSION: Final = 5
"""The first version of TxnOffsetCommit that names the group to the transaction by itself."""
OFFSET_COMMIT_BY_ID_VERSION: Final = 6
"""The first version of TxnOffsetCommit that has the ids of topics, not names."""


class TxnOffsetCommitRequest(Request, api_key=28, flexible="3+"):
    """Commit offsets that count once the transaction is committed.

    v2 leader epoch (KIP-320) · v3 flexible, names the group's member, so that one of an older
    generation is refused (KIP-447) · v4 TRANSACTION_ABORTABLE possible · v5 names the group to the
    transaction by itself (KIP-890) · v6 topics by id (KIP-1319).
    """

    transactional_id: str = field(String)
    group_id: str = field(String)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    generation_id: int = field(Int32, versions="3+", default=-1)
    member_id: str = field(String, versions="3+")
    group_instance_id: str | None = field(String, versions="3+", nullable="3+")
    topics: list[TxnOffsetCommitRequestTopic] = field(Array(TxnOffsetCommitRequestTopic))


class TxnOffsetCommitResponsePartition(Struct):
    """Whether the offset of one partition is in the transaction."""

    partition_index: int = field(Int32)
    error_code: int = field(Int16)


class TxnOffsetCommitResponseTopic(Struct):
    """The partitions of one topic."""

    name: str = field(String, versions="0-5", ignorable=True)
    topic_id: UUID = field(Uuid, versions="6+", ignorable=True)
    partitions: list[TxnOffsetCommitResponsePartition] = field(
        Array(TxnOffsetCommitResponsePartition)
    )


class TxnOffsetCommitResponse(Response, api_key=28, flexible="3+"):
    """One result for each partition. v3 flexible · v6 topics by id (KIP-1319)."""

    throttle_time_ms: int = field(Int32)
    topics: list[TxnOffsetCommitResponseTopic] = field(Array(TxnOffsetCommitResponseTopic))


class TopicRequest(Struct):
    """Partitions of one topic whose producers are wanted."""

    name: str = field(String)
    partition_indexes: list[int] = field(Array(Int32))


class DescribeProducersRequest(Request, api_key=61, flexible="0+"):
    """Ask leaders which producers write to their partitions (KIP-664)."""

    topics: list[TopicRequest] = field(Array(TopicRequest))


class ProducerState(Struct):
    """The state of one producer in a partition; -1 where it has no open transaction."""

    producer_id: int = field(Int64)
    producer_epoch: int = field(Int32)
    last_sequence: int = field(Int32, default=-1)
    last_timestamp: int = field(Int64, default=-1)
    coordinator_epoch: int = field(Int32)
    current_txn_start_offset: int = field(Int64, default=-1)


class PartitionResponse(Struct):
    """The producers of one partition."""

    partition_index: int = field(Int32)
    error_code: int = field(Int16)
    error_message: str | None = field(String, nullable="0+")
    active_producers: list[ProducerState] = field(Array(ProducerState))


class TopicResponse(Struct):
    """The partitions of one topic."""

    name: str = field(String)
    partitions: list[PartitionResponse] = field(Array(PartitionResponse))


class DescribeProducersResponse(Response, api_key=61, flexible="0+"):
    """The producers by partition."""

    throttle_time_ms: int = field(Int32)
    topics: list[TopicResponse] = field(Array(TopicResponse))


class DescribeTransactionsRequest(Request, api_key=65, flexible="0+"):
    """Ask the coordinator about transactional ids (KIP-664)."""

    transactional_ids: list[str] = field(Array(String))


class TopicData(Struct):
    """Partitions of one topic that belong to a transaction."""

    topic: str = field(String)
    partitions: list[int] = field(Array(Int32))


class DescribeTransactionsTransactionState(Struct):
    """All that the coordinator knows of one transactional id."""

    error_code: int = field(Int16)
    transactional_id: str = field(String)
    transaction_state: str = field(String)
    transaction_timeout_ms: int = field(Int32)
    transaction_start_time_ms: int = field(Int64)
    producer_id: int = field(Int64)
    producer_epoch: int = field(Int16)
    topics: list[TopicData] = field(Array(TopicData))


class DescribeTransactionsResponse(Response, api_key=65, flexible="0+"):
    """One entry for each id that was asked about."""

    throttle_time_ms: int = field(Int32)
    transaction_states: list[DescribeTransactionsTransactionState] = field(
        Array(DescribeTransactionsTransactionState)
    )


class ListTransactionsRequest(Request, api_key=66, flexible="0+"):
    """Ask for the transactional ids of a coordinator; empty filters let all pass (KIP-664).

    v1 only those that have been open for longer than a time (KIP-994) · v2 only those that a
    regular expression matches (KIP-1152).
    """

    state_filters: list[str] = field(Array(String))
    producer_id_filters: list[int] = field(Array(Int64))
    duration_filter: int = field(Int64, versions="1+", default=-1)
    transactional_id_pattern: str | None = field(String, versions="2+", nullable="2+")


class ListTransactionsTransactionState(Struct):
    """One transactional id."""

    transactional_id: str = field(String)
    producer_id: int = field(Int64)
    transaction_state: str = field(String)


class ListTransactionsResponse(Response, api_key=66, flexible="0+"):
    """The ids that pass the filters, and the filters that name no state."""

    throttle_time_ms: int = field(Int32)
    error_code: int = field(Int16)
    unknown_state_filters: list[str] = field(Array(String))
    transaction_states: list[ListTransactionsTransactionState] = field(
        Array(ListTransactionsTransactionState)
    )
