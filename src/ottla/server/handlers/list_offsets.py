"""ListOffsets (2): the offset of the first record at or after a time, or of either end.

Special times: -1 latest, -2 earliest, -3 the record with the largest timestamp (v7, KIP-734), -4
earliest local (v8), -5 latest tiered (v9, KIP-405) and -6 the first that waits for a tier (v11,
KIP-1023), which here, without tiered storage, are the earliest offset and none. v0 lists the
offsets where segments that were begun before a time start, the newest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.log.log_retention import segment_offsets_before
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.replication.replica_requests import OffsetResult
from ottla.server.api import Answer, Handler, begin
from ottla.structs import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_EPOCH,
    IsolationLevel,
    TopicPartition,
)

if TYPE_CHECKING:
    from ottla.network.request_context import RequestContext
    from ottla.replication.replica_manager import ReplicaManager
    from ottla.runtime import Slices
    from ottla.runtime.scheduler import Work


FIRST_VERSION_WITH_TIMESTAMPS = 1
LEADER_EPOCH_VERSION = 4
OFFSET_NOT_AVAILABLE_VERSION = 5

FIRST_VERSIONS = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


class ListOffsetsHandler:
    """Looks offsets up through the replica manager."""

    def __init__(self, replica_manager: ReplicaManager, slices: Slices) -> None:
        self.replica_manager = replica_manager
        self.slices = slices

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.LIST_OFFSETS: self.handle_list_offsets}

    def handle_list_offsets(self, context: RequestContext, body: ListOffsetsRequest) -> Answer:
        return begin(self.slices, context, self._list_offsets(context, body))

    def _list_offsets(
        self, context: RequestContext, body: ListOffsetsRequest
    ) -> Work[ListOffsetsResponse]:
        """The answer; a search for a time may take many slices."""
        named = Counter(
            TopicPartition(topic.name, partition.partition_index)
            for topic in body.topics
            for partition in topic.partitions
        )
        response = ListOffsetsResponse()
        for topic in body.topics:
            answer = ListOffsetsTopicResponse(name=topic.name)
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                if named[topic_partition] > 1:
                    result = OffsetResult(ErrorCode.INVALID_REQUEST)
                elif context.api_version < FIRST_VERSION_WITH_TIMESTAMPS:
                    answer.partitions.append(self._segment_offsets(topic_partition, partition))
                    continue
                else:
                    result = yield from self._look_up(topic_partition, partition, body, context)
                line = partition_response(partition.partition_index, result, context.api_version)
                answer.partitions.append(line)
            response.topics.append(answer)
        return response

    def _segment_offsets(
        self, topic_partition: TopicPartition, partition: ListOffsetsPartition
    ) -> ListOffsetsPartitionResponse:
        line = ListOffsetsPartitionResponse(partition_index=partition.partition_index)
        try:
            found = self.replica_manager.partition(topic_partition)
            found.check_leader_epoch(NO_EPOCH)
            now_ms = self.replica_manager.runtime.clock.now_ms()
            line.old_style_offsets = segment_offsets_before(
                found.log, partition.timestamp, partition.max_num_offsets, now_ms
            )
        except KafkaError as error:
            line.error_code = int(error.error)
        return line

    def _look_up(
        self,
        topic_partition: TopicPartition,
        partition: ListOffsetsPartition,
        body: ListOffsetsRequest,
        context: RequestContext,
    ) -> Work[OffsetResult]:
        timestamp_ms = partition.timestamp
        lowest = min(FIRST_VERSIONS)
        if timestamp_ms < lowest or context.api_version < FIRST_VERSIONS.get(timestamp_ms, 0):
            return OffsetResult(ErrorCode.UNSUPPORTED_VERSION)
        if timestamp_ms == EARLIEST_LOCAL_TIMESTAMP:
            timestamp_ms = EARLIEST_TIMESTAMP
        isolation = IsolationLevel(1 if body.isolation_level == 1 else 0)
        epoch = partition.current_leader_epoch
        return (
            yield from self.replica_manager.fetch_offset(
                topic_partition, timestamp_ms, isolation, epoch, body.replica_id
            )
        )


def partition_response(
    index: int, result: OffsetResult, api_version: int
) -> ListOffsetsPartitionResponse:
    """One partition's line of the answer, in words that clients of the version know."""
    error = result.error
    if error is ErrorCode.OFFSET_NOT_AVAILABLE and api_version < OFFSET_NOT_AVAILABLE_VERSION:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=int(error),
        timestamp=result.timestamp_ms,
        offset=result.offset,
        leader_epoch=result.leader_epoch if api_version >= LEADER_EPOCH_VERSION else NO_EPOCH,
    )
