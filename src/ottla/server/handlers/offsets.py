"""OffsetCommit (8) v0-10, OffsetFetch (9) v0-10 and OffsetDelete (47) v0: how far a group has got.

Version notes, commit: v0 writes to the registry, as Kafka does to ZooKeeper, without a coordinator;
v1 may bring its own timestamp; v2-4 its own retention time, which then decides about expiry alone;
v6 leader epoch. Fetch: v0 reads from the registry and says UNKNOWN_TOPIC_OR_PARTITION where nothing
is; v0-1 have no error but the partitions'; v2 null topics ask for all; v8 several groups.
With `require_stable` (v7) the offsets in open transactions are UNSTABLE_OFFSET_COMMIT (KIP-447).
v9 of both knows the epochs of members of consumer groups (KIP-848), and STALE_MEMBER_EPOCH. v10 of
both names topics by id: an offset in a topic that was deleted is not taken for one in the next
topic of its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.config.config_type import LONG_MAX
from ottla.coordinator.group.group import NOBODY, Committer
from ottla.coordinator.group.member_metadata import UNKNOWN_MEMBER_ID
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.coordinator.group.registry_offsets import RegistryOffsets
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.offsets import (
    FETCH_ERROR_VERSION,
    FETCH_GROUPS_VERSION,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.server.api import Answer, Handler, begin
from ottla.server.handlers.named_topics import (
    UNRESOLVED,
    TopicName,
    has_ids,
    name_topics,
    unknown_error,
)
from ottla.structs import NO_OFFSET, NO_UUID, TopicPartition, by_topic

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.coordinator.group.group_coordinator import GroupCoordinator
    from ottla.network.request_context import RequestContext
    from ottla.runtime import Clock, Slices
    from ottla.runtime.scheduler import Work

REGISTRY_VERSION: Final = 0
MEMBER_EPOCH_VERSION: Final = 9

Errors = Mapping[TopicPartition, ErrorCode]
TopicT = TypeVar("TopicT", OffsetFetchResponseTopic, OffsetFetchResponseTopics)
LINES: Final[Mapping[type[object], Any]] = {
    OffsetFetchResponseTopic: OffsetFetchResponsePartition,
    OffsetFetchResponseTopics: OffsetFetchResponsePartitions,
}
"""The partitions of either kind of topic in an answer."""
LINES_IN_A_SLICE: Final = 1000
NOTHING: Final = CommittedOffset(NO_OFFSET)


class OffsetHandlers:
    """Brings commits and look-ups to the group coordinator."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        clock: Clock,
        topic_id: Callable[[TopicPartition], UUID | None],
        topic_name: TopicName,
        registry_offsets: RegistryOffsets,
        slices: Slices,
    ) -> None:
        self.coordinator = coordinator
        self.slices = slices
        self.clock = clock
        self.topic_id = topic_id
        self.topic_name = topic_name
        self.registry_offsets = registry_offsets

    def apis(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.OFFSET_COMMIT: self.handle_offset_commit,
            ApiKey.OFFSET_FETCH: self.handle_offset_fetch,
            ApiKey.OFFSET_DELETE: self.handle_offset_delete,
        }

    def handle_offset_commit(
        self, context: RequestContext, body: OffsetCommitRequest
    ) -> Coroutine[Any, Any, OffsetCommitResponse] | None:
        unknown: dict[TopicPartition, ErrorCode] = {}
        offsets: dict[TopicPartition, CommittedOffset] = {}
        by_id = has_ids(context, ApiKey.OFFSET_COMMIT)
        if by_id:
            name_topics(body.topics, self.topic_name)
        for topic in body.topics:
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                topic_id = self.topic_id(topic_partition)
                if topic_id is None:
                    unknown[topic_partition] = unknown_error(topic.name, has_ids=by_id)
                else:
                    offsets[topic_partition] = self._offset(body, partition, topic_id)
        if context.api_version == REGISTRY_VERSION:
            return self._commit_to_registry(body, offsets, unknown)
        if not offsets:
            context.respond(_commit_response(body, unknown))
            return None
        committer = Committer(
            body.member_id,
            body.generation_id_or_member_epoch,
            body.group_instance_id,
            knows_epochs=context.api_version >= MEMBER_EPOCH_VERSION,
        )
        self.coordinator.commit_offsets(
            body.group_id,
            committer,
            offsets,
            lambda errors: context.respond(_commit_response(body, {**errors, **unknown})),
        )
        return None

    async def _commit_to_registry(
        self,
        body: OffsetCommitRequest,
        offsets: Mapping[TopicPartition, CommittedOffset],
        unknown: Errors,
    ) -> OffsetCommitResponse:
        errors = await self.registry_offsets.commit(body.group_id, offsets)
        return _commit_response(body, {**errors, **unknown})

    def handle_offset_fetch(self, context: RequestContext, body: OffsetFetchRequest) -> Answer:
        if context.api_version == REGISTRY_VERSION:
            return self._fetch_from_registry(body)
        return begin(self.slices, context, self._fetch_offsets(context, body))

    def _fetch_offsets(
        self, context: RequestContext, body: OffsetFetchRequest
    ) -> Work[OffsetFetchResponse]:
        """The answer in slices: all offsets of a group may be very many."""
        numbers = count(1)
        if context.api_version >= FETCH_GROUPS_VERSION:
            response = OffsetFetchResponse()
            for group in body.groups:
                found = yield from self._fetch_group(context, group, body.require_stable, numbers)
                response.groups.append(found)
            return response
        new_topic = OffsetFetchResponseTopic
        error, topics = yield from self._fetch(body, body.require_stable, new_topic, numbers)
        if error and context.api_version >= FETCH_ERROR_VERSION:
            return OffsetFetchResponse(error_code=error)
        if error:
            for partition in dict.fromkeys(_partitions(body.topics or ())):
                _add_line(topics, new_topic, partition, None, error)
        return OffsetFetchResponse(topics=list(topics.values()))

    async def _fetch_from_registry(self, body: OffsetFetchRequest) -> OffsetFetchResponse:
        wanted = _partitions(body.topics or ())
        known = [partition for partition in wanted if self.topic_id(partition) is not None]
        found = await self.registry_offsets.fetch(body.group_id, known)
        return OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name=name,
                    partitions=[
                        _registry_offset(index, found.get(TopicPartition(name, index)))
                        for index in numbers
                    ],
                )
                for name, numbers in by_topic(dict.fromkeys(wanted)).items()
            ]
        )

    def handle_offset_delete(self, context: RequestContext, body: OffsetDeleteRequest) -> None:
        partitions = [
            TopicPartition(topic.name, partition.partition_index)
            for topic in body.topics
            for partition in topic.partitions
        ]

        def respond(error: ErrorCode, errors: Errors) -> None:
            topics = [] if error else _deleted(body, errors)
            context.respond(OffsetDeleteResponse(error_code=error, topics=topics))

        self.coordinator.delete_offsets(body.group_id, partitions, respond)

    def _offset(
        self, body: OffsetCommitRequest, partition: OffsetCommitRequestPartition, topic_id: UUID
    ) -> CommittedOffset:
        now_ms = self.clock.now_ms()
        timestamp_ms = partition.commit_timestamp
        retention_ms = body.retention_time_ms
        return CommittedOffset(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=partition.committed_metadata or "",
            commit_timestamp_ms=timestamp_ms if timestamp_ms >= 0 else now_ms,
            expire_timestamp_ms=min(now_ms + retention_ms, LONG_MAX) if retention_ms >= 0 else None,
            topic_id=topic_id,
        )

    def _fetch_group(
        self,
        context: RequestContext,
        group: OffsetFetchRequestGroup,
        require_stable: bool,
        numbers: Iterator[int],
    ) -> Work[OffsetFetchResponseGroup]:
        asked = group.topics or []
        by_id = has_ids(context, ApiKey.OFFSET_FETCH)
        if by_id and asked:
            name_topics(asked, self.topic_name)
            group.topics = [topic for topic in asked if topic.name != UNRESOLVED]
        reader = Committer(group.member_id or UNKNOWN_MEMBER_ID, group.member_epoch)
        error, found = yield from self._fetch(
            group, require_stable, OffsetFetchResponseTopics, numbers, reader
        )
        topics = list(found.values())
        if by_id and not error:
            topics = self._with_ids(topics, asked)
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error, topics=topics)

    def _with_ids(
        self, topics: list[OffsetFetchResponseTopics], asked: list[OffsetFetchRequestTopics]
    ) -> list[OffsetFetchResponseTopics]:
        """The topics with their ids, and errors for those that were asked for and do not exist.

        Where all were asked for, a topic without a known id is left out.
        """
        ids = {topic.name: topic.topic_id for topic in asked}
        for topic in topics:
            partition = TopicPartition(topic.name, topic.partitions[0].partition_index)
            topic.topic_id = ids.get(topic.name) or self.topic_id(partition) or NO_UUID
        unknown = int(ErrorCode.UNKNOWN_TOPIC_ID)
        lost = (topic for topic in asked if topic.name == UNRESOLVED)
        return [topic for topic in topics if topic.topic_id != NO_UUID] + [
            OffsetFetchResponseTopics(
                topic_id=topic.topic_id,
                partitions=[_no_offset(index, unknown) for index in topic.partition_indexes],
            )
            for topic in lost
        ]

    def _unstable(
        self, group_id: str, partitions: Iterable[TopicPartition], require_stable: bool
    ) -> Collection[TopicPartition]:
        if not require_stable:
            return ()
        return self.coordinator.unstable_offsets(group_id, partitions)

    def _fetch(
        self,
        wanted: OffsetFetchRequest | OffsetFetchRequestGroup,
        require_stable: bool,
        new_topic: type[TopicT],
        numbers: Iterator[int],
        reader: Committer = NOBODY,
    ) -> Work[tuple[ErrorCode, dict[str, TopicT]]]:
        """The offsets of the topics, or of all that the group has committed, by topic.

        `numbers` counts the lines of the whole answer, for its pauses.
        """
        topics: dict[str, TopicT] = {}
        group_id, is_all = wanted.group_id, wanted.topics is None
        known = list(dict.fromkeys(_partitions(wanted.topics or ())))
        if is_all:
            known = self.coordinator.known_partitions(group_id)
        for place in range(0, len(known) or 1, LINES_IN_A_SLICE):
            some = known[place : place + LINES_IN_A_SLICE]
            error, found = self.coordinator.fetch_offsets(group_id, some, reader)
            if error:
                return error, {}
            unstable = self._unstable(group_id, some, require_stable)
            for partition, value in found.items():
                is_unstable = partition in unstable
                error = ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else ErrorCode.NONE
                if value is not None or not is_all:
                    _add_line(topics, new_topic, partition, None if is_unstable else value, error)
                if not next(numbers) % LINES_IN_A_SLICE:
                    yield
        return ErrorCode.NONE, topics


def _commit_response(body: OffsetCommitRequest, errors: Errors) -> OffsetCommitResponse:
    """One result for each partition of the request, in its order."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=errors[TopicPartition(topic.name, partition.partition_index)],
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in body.topics
        ]
    )


def _partitions(
    topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics],
) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition)
        for topic in topics
        for partition in topic.partition_indexes
    ]


def _add_line(
    topics: dict[str, TopicT],
    new_topic: type[TopicT],
    partition: TopicPartition,
    value: CommittedOffset | None,
    error: ErrorCode,
) -> None:
    """The committed offset, or -1 where there is none, or none that is known for sure."""
    topic = topics.get(partition.topic)
    if topic is None:
        topic = topics[partition.topic] = new_topic(name=partition.topic)
    known = NOTHING if value is None else value
    line = LINES[new_topic](
        partition_index=partition.partition,
        committed_offset=known.offset,
        committed_leader_epoch=known.leader_epoch,
        metadata=known.metadata,
        error_code=error,
    )
    topic.partitions.append(line)


def _no_offset(index: int, error_code: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=error_code
    )


def _registry_offset(index: int, found: int | KafkaError | None) -> OffsetFetchResponsePartition:
    """An offset of the registry; one that is not there is said to be of no known partition."""
    line = OffsetFetchResponsePartition(
        partition_index=index, committed_offset=NO_OFFSET, metadata=""
    )
    if isinstance(found, int):
        line.committed_offset = found
    elif found is None:
        line.error_code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    else:
        line.error_code = int(found.error)
    return line


def _deleted(body: OffsetDeleteRequest, errors: Errors) -> list[OffsetDeleteResponseTopic]:
    """One result for each partition of the request, in its order."""
    return [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=errors[TopicPartition(topic.name, partition.partition_index)],
                )
                for partition in topic.partitions
            ],
        )
        for topic in body.topics
    ]
