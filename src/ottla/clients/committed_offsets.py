"""Fetches committed offsets from a group's coordinator, and commits and deletes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from ottla.clients.network_client import NetworkClient, check_code, response_error
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.errors import KafkaError
from ottla.protocol.offsets import (
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
from ottla.structs import NO_OFFSET, TopicPartition, by_topic

FIRST_COMMIT_VERSION = 2
FIRST_COMMIT_WITH_INSTANCE_ID = 7
FIRST_FETCH_VERSION = 1
FIRST_FETCH_OF_ALL = 2
FIRST_FETCH_STABLE = 7
FIRST_FETCH_OF_GROUPS = 8


class GroupMembership(NamedTuple):
    """The membership for a commit; the default, no member, is allowed if the group is empty."""

    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None


NO_MEMBERSHIP = GroupMembership()


class ConsumerGroupMetadata(NamedTuple):
    """The consumer of a group, as a transactional producer names it when it commits its offsets."""

    group_id: str
    membership: GroupMembership = NO_MEMBERSHIP


async def commit_offsets(
    client: NetworkClient,
    coordinator: int,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    membership: GroupMembership = NO_MEMBERSHIP,
) -> dict[TopicPartition, KafkaError | None]:
    """Commit once; the result has None or an error for each partition."""
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=membership.generation,
        member_id=membership.member_id,
    )
    low = FIRST_COMMIT_VERSION
    if membership.instance_id is not None:
        request.group_instance_id = membership.instance_id
        low = FIRST_COMMIT_WITH_INSTANCE_ID
    for topic, partitions in by_topic(offsets).items():
        request.topics.append(
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[_commit_of(p, offsets[TopicPartition(topic, p)]) for p in partitions],
            )
        )
    response = cast(OffsetCommitResponse, await client.send(coordinator, request, low=low))
    results = {}
    for result in response.topics:
        for p in result.partitions:
            partition = TopicPartition(result.name, p.partition_index)
            what = f"commit of {partition} by group {group_id}"
            results[partition] = response_error(p.error_code, what)
    return results


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
) -> dict[TopicPartition, OffsetAndMetadata]:
    """The committed offsets of some partitions, or of all (None); others are left out."""
    version = await client.version_for(coordinator, OffsetFetchRequest)
    request = OffsetFetchRequest()
    if require_stable and version >= FIRST_FETCH_STABLE:
        request.require_stable = True
    topics = None if partitions is None else by_topic(partitions)
    if version >= FIRST_FETCH_OF_GROUPS:
        group = OffsetFetchRequestGroup(group_id=group_id)
        group.topics = _wanted(topics, OffsetFetchRequestTopics)
        request.groups = [group]
    else:
        request.group_id = group_id
        request.topics = _wanted(topics, OffsetFetchRequestTopic)
    low = FIRST_FETCH_OF_ALL if topics is None else FIRST_FETCH_VERSION
    response = cast(OffsetFetchResponse, await client.send(coordinator, request, low=low))
    answer: Any = response.groups[0] if response.groups else response
    check_code(answer.error_code, f"offsets of group {group_id}")
    return _committed(answer, group_id)


async def fetch_offsets_of_groups(
    client: NetworkClient, coordinator: int, group_ids: Sequence[str]
) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | KafkaError]:
    """All committed offsets of groups of one coordinator, or the error of each.

    It is one request from version 8 on (KIP-709); older coordinators get one for each group.
    """
    version = await client.version_for(coordinator, OffsetFetchRequest)
    if version < FIRST_FETCH_OF_GROUPS:
        return {group: await _fetch_or_error(client, coordinator, group) for group in group_ids}
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in group_ids]
    )
    response = cast(
        OffsetFetchResponse, await client.send(coordinator, request, low=FIRST_FETCH_OF_GROUPS)
    )
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


def _committed(answer: Any, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
    offsets = {}
    for topic in answer.topics:
        for p in topic.partitions:
            partition = TopicPartition(topic.name, p.partition_index)
            check_code(p.error_code, f"offset of {partition} in group {group_id}")
            if p.committed_offset != NO_OFFSET:
                offsets[partition] = OffsetAndMetadata(
                    p.committed_offset, p.metadata or "", p.committed_leader_epoch
                )
    return offsets
