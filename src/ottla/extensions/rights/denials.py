"""Answers to a client that lacks a right: the error where each response has a place for it.

A denied entry of a request has a result of its own, beside those of the allowed ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.errors import ErrorCode
from ottla.protocol.acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.protocol.configs import AlterClientQuotasRequest, AlterClientQuotasResponse, AlteredQuota
from ottla.protocol.consumer_group import DescribedConsumerGroup
from ottla.protocol.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.protocol.group import Coordinator, DeletableGroupResult, DescribedGroup
from ottla.protocol.leader_epoch import EpochEndOffset, OffsetForLeaderTopicResult
from ottla.protocol.list_offsets import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from ottla.protocol.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.protocol.metadata import (
    DescribeTopicPartitionsResponseTopic,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from ottla.protocol.offsets import (
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.protocol.produce import PartitionProduceResponse, TopicProduceResponse
from ottla.protocol.reassignments import (
    ElectLeadersPartitionResult,
    ElectLeadersReplicaElectionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from ottla.protocol.scram_users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.protocol.topics import (
    CreatableTopicResult,
    CreatePartitionsTopicResult,
    DeletableTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsTopicResult,
)
from ottla.protocol.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    DescribeTransactionsTransactionState,
    PartitionResponse,
    TopicResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.structs import NO_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable

TOPIC_DENIED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
GROUP_DENIED: Final = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
CLUSTER_DENIED: Final = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
TRANSACTION_DENIED: Final = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
MESSAGE: Final = "Authorization failed."
UNKNOWN: Final = -1


def not_produced(topic: Any, error: int = TOPIC_DENIED) -> TopicProduceResponse:
    return TopicProduceResponse(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_responses=[
            PartitionProduceResponse(
                index=data.index, error_code=error, base_offset=UNKNOWN, log_append_time_ms=UNKNOWN
            )
            for data in topic.partition_data
        ],
    )


def nothing_fetched(body: FetchRequest) -> FetchResponse:
    """The answer to a client that asks as a follower and has no right to."""
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=each.partition, error_code=TOPIC_DENIED, records=b""
                    )
                    for each in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def offsets_not_listed(topic: Any) -> ListOffsetsTopicResponse:
    return ListOffsetsTopicResponse(
        name=topic.name,
        partitions=[
            ListOffsetsPartitionResponse(
                partition_index=each.partition_index, error_code=TOPIC_DENIED
            )
            for each in topic.partitions
        ],
    )


def epochs_not_told(topic: Any) -> OffsetForLeaderTopicResult:
    return OffsetForLeaderTopicResult(
        topic=topic.topic,
        partitions=[
            EpochEndOffset(
                partition=each.partition,
                error_code=TOPIC_DENIED,
                leader_epoch=UNKNOWN,
                end_offset=UNKNOWN,
            )
            for each in topic.partitions
        ],
    )


def records_not_deleted(topic: Any) -> DeleteRecordsTopicResult:
    return DeleteRecordsTopicResult(
        name=topic.name,
        partitions=[
            DeleteRecordsPartitionResult(
                partition_index=each.partition_index,
                low_watermark=UNKNOWN,
                error_code=TOPIC_DENIED,
            )
            for each in topic.partitions
        ],
    )


def producers_not_told(topic: Any) -> TopicResponse:
    return TopicResponse(
        name=topic.name,
        partitions=[
            PartitionResponse(partition_index=index, error_code=TOPIC_DENIED)
            for index in topic.partition_indexes
        ],
    )


def not_committed(topic: Any, error: int = TOPIC_DENIED) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ],
    )


def not_fetched(topic: Any, error: int = TOPIC_DENIED) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index, committed_offset=UNKNOWN, metadata="", error_code=error
            )
            for index in topic.partition_indexes
        ],
    )


def not_fetched_of_group(topic: Any) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=UNKNOWN,
                metadata="",
                error_code=TOPIC_DENIED,
            )
            for index in topic.partition_indexes
        ],
    )


def group_not_fetched(group: Any) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=GROUP_DENIED)


def offsets_not_deleted(topic: Any) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(
                partition_index=each.partition_index, error_code=TOPIC_DENIED
            )
            for each in topic.partitions
        ],
    )


def no_coordinator(key: str, error: ErrorCode) -> Coordinator:
    return Coordinator(key=key, node_id=UNKNOWN, host="", port=UNKNOWN, error_code=int(error))


def group_not_described(name: str) -> DescribedGroup:
    return DescribedGroup(error_code=GROUP_DENIED, group_id=name)


def consumer_group_not_described(name: str) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(error_code=GROUP_DENIED, error_message=MESSAGE, group_id=name)


def topics_of_group_not_described(name: str) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(error_code=TOPIC_DENIED, error_message=MESSAGE, group_id=name)


def group_not_deleted(name: str) -> DeletableGroupResult:
    return DeletableGroupResult(group_id=name, error_code=GROUP_DENIED)


def not_added(errors: Iterable[tuple[Any, int]]) -> AddPartitionsToTxnResponse:
    """Topics, each with its error: one that is denied keeps all others out."""
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=error
                    )
                    for index in topic.partitions
                ],
            )
            for topic, error in errors
        ]
    )


def markers_not_written(body: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=CLUSTER_DENIED
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in body.markers
        ]
    )


def not_committed_in_txn(topic: Any, error: int = TOPIC_DENIED) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error)
            for each in topic.partitions
        ],
    )


def transaction_not_described(name: str) -> DescribeTransactionsTransactionState:
    return DescribeTransactionsTransactionState(
        error_code=TRANSACTION_DENIED, transactional_id=name
    )


def topic_not_told(topic: MetadataRequestTopic) -> MetadataResponseTopic:
    """A topic that was asked for by its name has no id in the answer, one by its id no name."""
    return MetadataResponseTopic(
        error_code=TOPIC_DENIED,
        name=topic.name if topic.topic_id == NO_UUID else None,
        topic_id=topic.topic_id,
    )


def topic_not_described(topic: Any) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=TOPIC_DENIED, name=topic.name)


def topic_not_created(topic: Any) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name, error_code=TOPIC_DENIED, error_message=MESSAGE, configs=[]
    )


def topic_not_deleted(name: str) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, error_code=TOPIC_DENIED, error_message=MESSAGE)


def partitions_not_created(topic: Any) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(
        name=topic.name, error_code=TOPIC_DENIED, error_message=MESSAGE
    )


def log_dirs_not_altered(body: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=CLUSTER_DENIED
                    )
                    for index in topic.partitions
                ],
            )
            for each in body.dirs
            for topic in each.topics
        ]
    )


def leaders_not_elected(body: ElectLeadersRequest, api_version: int) -> ElectLeadersResponse:
    """The error stands at the top and at each partition; in v0 only there."""
    return ElectLeadersResponse(
        error_code=CLUSTER_DENIED if api_version else 0,
        replica_election_results=[
            ElectLeadersReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    ElectLeadersPartitionResult(
                        partition_id=index, error_code=CLUSTER_DENIED, error_message=MESSAGE
                    )
                    for index in topic.partitions
                ],
            )
            for topic in body.topic_partitions or ()
        ],
    )


def quotas_not_altered(body: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            AlteredQuota(error_code=CLUSTER_DENIED, error_message=MESSAGE, entity=each.entity)
            for each in body.entries
        ]
    )


def scram_users_not_altered(
    body: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse:
    deleted = [each.name for each in body.deletions]
    names = dict.fromkeys(deleted + [each.name for each in body.upsertions])
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=name, error_code=CLUSTER_DENIED, error_message=MESSAGE
            )
            for name in names
        ]
    )


def acls_not_created(body: CreateAclsRequest) -> CreateAclsResponse:
    result = AclCreationResult(error_code=CLUSTER_DENIED, error_message=MESSAGE)
    return CreateAclsResponse(results=[result] * len(body.creations))


def acls_not_deleted(body: DeleteAclsRequest) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(error_code=CLUSTER_DENIED, error_message=MESSAGE)
    return DeleteAclsResponse(filter_results=[result] * len(body.filters))
