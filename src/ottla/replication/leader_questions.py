"""The questions of a follower before it can fetch: where the leader's epochs end, and its log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, cast

from ottla.errors import ErrorCode, KafkaError
from ottla.log.leader_epoch_cache import EpochEntry
from ottla.protocol.leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.replication.follower_partition import FollowerPartition
from ottla.structs import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_EPOCH, TopicPartition, by_topic

if TYPE_CHECKING:
    from ottla.config.broker_config import BrokerConfig
    from ottla.network.node_connection import NodeConnection

logger = logging.getLogger(__name__)

FIRST_VERSION_WITH_REPLICA_ID: Final = 3
FIRST_VERSION_WITH_EPOCHS: Final = 4

T = TypeVar("T")
Delay = Callable[[Iterable[FollowerPartition], str], object]


class LeaderQuestions:
    """Asks for several partitions in one request. Those that get an error go to `delay`."""

    def __init__(
        self, connection: NodeConnection, config: BrokerConfig, broker_id: int, delay: Delay
    ) -> None:
        self._connection = connection
        self._timeout_ms = config.replica_socket_timeout_ms
        self._broker_id = broker_id
        self._delay = delay

    async def ask_epoch_ends(self, followers: Sequence[FollowerPartition]) -> None:
        """Cut each log where the leader's epochs say; then, or after more questions, it fetches."""
        asked = [follower for follower in followers if follower.last_epoch != NO_EPOCH]
        await self._attempt_all(
            (follower, follower.truncate_without_epochs)
            for follower in followers
            if follower.last_epoch == NO_EPOCH
        )
        if not asked:
            return
        response = await self._send_epochs(asked)
        by_name = {follower.topic_partition: follower for follower in asked}
        steps: list[tuple[FollowerPartition, Callable[[], Awaitable[None]]]] = []
        for topic in response.topics:
            for end in topic.partitions:
                follower_ = by_name.pop(TopicPartition(topic.topic, end.partition), None)
                if follower_ is None or not follower_.is_current:
                    continue
                if end.error_code:
                    self._delay([follower_], ErrorCode.of(end.error_code).name)
                else:
                    entry = EpochEntry(end.leader_epoch, end.end_offset)
                    steps.append((follower_, partial(follower_.take_epoch_end, entry)))
        await self._attempt_all(steps)
        self._delay(by_name.values(), "the leader has not answered where its epoch ends")

    async def _send_epochs(
        self, followers: Sequence[FollowerPartition]
    ) -> OffsetForLeaderEpochResponse:
        """Ask where the leader's log has the end of the last epoch of each follower."""
        request = OffsetForLeaderEpochRequest(replica_id=self._broker_id, topics=[])
        for name, group in _by_topic(followers).items():
            partitions = [
                OffsetForLeaderPartition(
                    partition=follower.topic_partition.partition,
                    current_leader_epoch=follower.leader_epoch,
                    leader_epoch=follower.last_epoch,
                )
                for follower in group
            ]
            request.topics.append(OffsetForLeaderTopic(topic=name, partitions=partitions))
        version = self._connection.version_of(
            OffsetForLeaderEpochRequest, FIRST_VERSION_WITH_REPLICA_ID
        )
        answer = await self._connection.send(request, version, self._timeout_ms)
        return cast("OffsetForLeaderEpochResponse", answer)

    async def ask_ends(self, followers: Sequence[FollowerPartition]) -> None:
        """Truncate logs at the leader's end; one that ends before its start restarts there."""
        ahead = await self._list_offsets(followers, LATEST_TIMESTAMP)
        cut = await self._attempt_all(
            (follower, partial(follower.take_leader_end, offset)) for follower, offset in ahead
        )
        behind = [follower for (follower, _), done in zip(ahead, cut, strict=True) if done is False]
        if behind:
            await self._attempt_all(
                (follower, partial(follower.take_leader_start, offset))
                for follower, offset in await self._list_offsets(behind, EARLIEST_TIMESTAMP)
            )

    async def _attempt_all(
        self, steps: Iterable[tuple[FollowerPartition, Callable[[], Awaitable[T]]]]
    ) -> list[T | None]:
        """Take a step with each, side by side: one write to disk serves all that are cut."""
        return await asyncio.gather(*(self._attempt(follower, step) for follower, step in steps))

    async def _attempt(
        self, follower: FollowerPartition, step: Callable[[], Awaitable[T]]
    ) -> T | None:
        """Take a step with one follower; its error does not affect the others."""
        try:
            return await step()
        except KafkaError as error:
            self._delay([follower], str(error))
        except Exception as error:
            if not follower.failure_count:
                logger.exception("cutting %s has failed", follower.topic_partition)
            self._delay([follower], repr(error))
        return None

    async def _list_offsets(
        self, followers: Sequence[FollowerPartition], timestamp_ms: int
    ) -> list[tuple[FollowerPartition, int]]:
        request = ListOffsetsRequest(replica_id=self._broker_id, topics=[])
        for name, group in _by_topic(followers).items():
            partitions = [
                ListOffsetsPartition(
                    partition_index=follower.topic_partition.partition,
                    current_leader_epoch=follower.leader_epoch,
                    timestamp=timestamp_ms,
                )
                for follower in group
            ]
            request.topics.append(ListOffsetsTopic(name=name, partitions=partitions))
        version = self._connection.version_of(ListOffsetsRequest, FIRST_VERSION_WITH_EPOCHS)
        response = cast(
            "ListOffsetsResponse", await self._connection.send(request, version, self._timeout_ms)
        )
        by_name = {follower.topic_partition: follower for follower in followers}
        found: list[tuple[FollowerPartition, int]] = []
        for topic in response.topics:
            for line in topic.partitions:
                follower = by_name.pop(TopicPartition(topic.name, line.partition_index), None)
                if follower is None or not follower.is_current:
                    continue
                if line.error_code:
                    self._delay([follower], ErrorCode.of(line.error_code).name)
                else:
                    found.append((follower, line.offset))
        self._delay(by_name.values(), "the leader has not answered where its log ends")
        return found


def _by_topic(followers: Iterable[FollowerPartition]) -> dict[str, list[FollowerPartition]]:
    return by_topic((follower.topic_partition.topic, follower) for follower in followers)
