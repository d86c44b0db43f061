"""Fetches committed offsets from a group's coordinator, and commits and deletes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast
from uuid import UUID

from ottla.clients.answers import left_out, of_each, only
from ottla.clients.network_client import NetworkClient, check_code, response_error
from ottla.clients.topic_offsets import KnownTopics, OffsetAndMetadata
from ottla.errors import KafkaError
from ottla.protocol.offsets import (
    TOPIC_IDS_VERSION,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.structs import NO_OFFSET, NO_UUID, NamedTuple, TopicPartition, by_topic

FIRST_COMMIT_VERSION = 2
FIRST_COMMIT_WITH_INSTANCE_ID = 7
FIRST_FETCH_VERSION = 1
FIRST_FETCH_OF_ALL = 2
FIRST_FETCH_STABLE = 7
FIRST_FETCH_OF_GROUPS = 8
NO_NAMES: Mapping[UUID, str] = MappingProxyType({})


class GroupMembership(NamedTuple):
    """The membership for a commit; the default, no member, is allowed if the group is empty."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


NO_MEMBERSHIP = GroupMembership()


class ConsumerGroupMetadata(NamedTuple):
    """The consumer of a group, as a transactional producer names it when it commits its offsets.

    `topics` are those that it has read, by which the producer knows whose offsets it commits.
    """

    group_id: str
    membership: GroupMembership = NO_MEMBERSHIP
    topics: Mapping[TopicPartition, KnownTopics] = MappingProxyType({})


async def commit_offsets(
    client: NetworkClient,
    coordinator: int,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    membership: GroupMembership = NO_MEMBERSHIP,
) -> dict[TopicPartition, KafkaError | None]:
    """Commit once; the result has None or an error for each partition.

    An offset with the id of its topic counts for that topic alone, if the coordinator knows ids:
    else it counts for whichever topic has the name. A request has ids, or names: offsets of both
    kinds are two.
    """
    low = FIRST_COMMIT_VERSION
    if membership.instance_id is not None:
        low = FIRST_COMMIT_WITH_INSTANCE_ID
    connection = await client.ready(coordinator)
    newest = connection.version_of(OffsetCommitRequest, low)
    results = {}
    for part in by_kind_of_topic(offsets, are_ids_known=newest >= TOPIC_IDS_VERSION):
        request, names = _commit_request(group_id, part, membership)
        version = min(newest, _highest_version(NO_UUID not in names))
        response: OffsetCommitResponse = await client.send_on(connection, request, version)
        for result in response.topics:
            for p in result.partitions:
                partition = TopicPartition(
                    result.name or names.get(result.topic_id, ""), p.partition_index
                )
                what = f"commit of {partition} by group {group_id}"
                results[partition] = response_error(p.error_code, what)
    return of_each(offsets, results)


def by_kind_of_topic(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], *, are_ids_known: bool
) -> list[Mapping[TopicPartition, OffsetAndMetadata]]:
    """The offsets in the topics of an id, and those in the topics of a name: one may be left out.

    All of them are together where ids are not known.
    """
    ided = {p: offset for p, offset in offsets.items() if offset.topic_id != NO_UUID}
    if not are_ids_known or len(ided) in (0, len(offsets)):
        return [offsets]
    return [ided, {p: offset for p, offset in offsets.items() if p not in ided}]


def _commit_request(
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    membership: GroupMembership,
) -> tuple[OffsetCommitRequest, Mapping[UUID, str]]:
    """A commit, and the names of the topics with the ids in it."""
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=membership.generation,
        member_id=membership.member_id,
    )
    if membership.instance_id is not None:
        request.group_instance_id = membership.instance_id
    names: dict[UUID, str] = {}
    for (topic, topic_id), partitions in _by_topic_and_id(offsets).items():
        names[topic_id] = topic
        request.topics.append(
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id,
                partitions=[_commit_of(p, offsets[TopicPartition(topic, p)]) for p in partitions],
            )
        )
    return request, names


def _by_topic_and_id(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> dict[tuple[str, UUID], list[int]]:
    """The partitions of each topic; one that was made again meanwhile is there twice."""
    return by_topic(
        ((topic, offset.topic_id), partition) for (topic, partition), offset in offsets.items()
    )


def _commit_of(partition: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


async def delete_offsets(
    client: NetworkClient,
    coordinator: int,
    group_id: str,
    partitions: Sequence[TopicPartition],
) -> dict[TopicPartition, KafkaError | None]:
    """Delete commits once (KIP-496); the result has None or an error for each partition."""
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in numbers],
            )
            for topic, numbers in by_topic(partitions).items()
        ],
    )
    response = cast(OffsetDeleteResponse, await client.send(coordinator, request))
    check_code(response.error_code, f"offsets of group {group_id}")
    return {
        TopicPartition(topic.name, p.partition_index): response_error(
            p.error_code, f"offset of {topic.name}-{p.partition_index} of group {group_id}"
        )
        for topic in response.topics
        for p in topic.partitions
    }


async def fetch_offsets(
    client: NetworkClient,
    coordinator: int,
    group_id: str,
    partitions: Sequence[TopicPartition] | None,
    *,
    require_stable: bool = False,
    topic_ids: Mapping[str, UUID] | None = None,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The committed offsets of some partitions, or of all (None); others are left out.

    With `topic_ids` of all their topics, they are those of these topics, and of no others of the
    same names: UNKNOWN_TOPIC_ID is raised for one that the coordinator does not know.
    """
    topics = None if partitions is None else by_topic(partitions)
    ids = {} if topics is None or topic_ids is None else topic_ids
    low = FIRST_FETCH_OF_ALL if topics is None else FIRST_FETCH_VERSION
    is_by_id = topics is not None and topics.keys() <= ids.keys()
    connection = await client.ready(coordinator)
    version = connection.version_of(OffsetFetchRequest, low, _highest_version(is_by_id))
    request = OffsetFetchRequest()
    if require_stable and version >= FIRST_FETCH_STABLE:
        request.require_stable = True
    if version >= FIRST_FETCH_OF_GROUPS:
        group = OffsetFetchRequestGroup(group_id=group_id)
        group.topics = _wanted(topics, OffsetFetchRequestTopics)
        for topic in group.topics or ():
            topic.topic_id = ids.get(topic.name, NO_UUID)
        request.groups = [group]
    else:
        request.group_id = group_id
        request.topics = _wanted(topics, OffsetFetchRequestTopic)
    response: OffsetFetchResponse = await client.send_on(connection, request, version)
    answer: Any = response
    if version >= FIRST_FETCH_OF_GROUPS:
        answer = only([each for each in response.groups if each.group_id == group_id], group_id)
    check_code(answer.error_code, f"offsets of group {group_id}")
    names = {id: name for name, id in ids.items()}
    return _committed(answer, group_id, names, () if partitions is None else partitions)


def _highest_version(is_by_id: bool) -> int:
    return TOPIC_IDS_VERSION if is_by_id else TOPIC_IDS_VERSION - 1


async def fetch_offsets_of_groups(
    client: NetworkClient, coordinator: int, group_ids: Sequence[str]
) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | KafkaError]:
    """All committed offsets of groups of one coordinator, or the error of each.

    It is one request from version 8 on (KIP-709); older coordinators get one for each group.
    """
    connection = await client.ready(coordinator)
    version = connection.version_of(OffsetFetchRequest, 0, _highest_version(is_by_id=False))
    if version < FIRST_FETCH_OF_GROUPS:
        return {group: await _fetch_or_error(client, coordinator, group) for group in group_ids}
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in group_ids]
    )
    response: OffsetFetchResponse = await client.send_on(connection, request, version)
    return {answer.group_id: _committed_or_error(answer) for answer in response.groups}


async def _fetch_or_error(
    client: NetworkClient, coordinator: int, group_id: str
) -> dict[TopicPartition, OffsetAndMetadata] | KafkaError:
    try:
        return await fetch_offsets(client, coordinator, group_id, None)
    except KafkaError as error:
        return error


def _committed_or_error(answer: Any) -> dict[TopicPartition, OffsetAndMetadata] | KafkaError:
    error = response_error(answer.error_code, f"offsets of group {answer.group_id}")
    if error is not None:
        return error
    try:
        return _committed(answer, answer.group_id)
    except KafkaError as cause:
        return cause


def _wanted(topics: Mapping[str, list[int]] | None, kind: type[Any]) -> Any:
    if topics is None:
        return None
    return [kind(name=name, partition_indexes=indexes) for name, indexes in topics.items()]


def _committed(
    answer: Any,
    group_id: str,
    names: Mapping[UUID, str] = NO_NAMES,
    asked: Iterable[TopicPartition] = (),
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets of an answer, which has names of topics, or ids with these `names`.

    A partition that was asked for is in it, with an offset or without: who took one that is left
    out for one without a commit would pass over its records.
    """
    offsets, told = {}, set()
    for topic in answer.topics:
        name = topic.name or names.get(topic.topic_id, "")
        for p in topic.partitions:
            partition = TopicPartition(name, p.partition_index)
            told.add(partition)
            check_code(p.error_code, f"offset of {partition} in group {group_id}")
            if p.committed_offset != NO_OFFSET:
                offsets[partition] = OffsetAndMetadata(
                    p.committed_offset, p.metadata or "", p.committed_leader_epoch
                )
    for partition in asked:
        if partition not in told:
            raise left_out(f"the offset of {partition} in group {group_id}")
    return offsets
