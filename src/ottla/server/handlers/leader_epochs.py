"""OffsetForLeaderEpoch (23), v0-4: where the records of a leader epoch end in a leader's log.

Consumers ask to find out whether records they have read were cut off since (KIP-320), followers to
find out where to cut their own log (KIP-101).

Version notes: v1 has the epoch as well (KIP-279) · v2 current leader epoch, which fences · v3
replica id · v4 flexible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.errors import KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ottla.server.api import Handler
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla.network.request_context import RequestContext
    from ottla.replication.replica_manager import ReplicaManager


class LeaderEpochHandler:
    """Answers from the leader epochs of the logs."""

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self.replica_manager = replica_manager

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {ApiKey.OFFSET_FOR_LEADER_EPOCH: self.handle_offset_for_leader_epoch}

    def handle_offset_for_leader_epoch(
        self, context: RequestContext, body: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[self._end(topic.topic, asked) for asked in topic.partitions],
                )
                for topic in body.topics
            ]
        )

    def _end(self, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        try:
            partition = self.replica_manager.partition(TopicPartition(topic, asked.partition))
            epoch, end_offset = partition.end_offset_for_epoch(
                asked.leader_epoch, asked.current_leader_epoch
            )
        except KafkaError as error:
            return EpochEndOffset(partition=asked.partition, error_code=error.error)
        return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
