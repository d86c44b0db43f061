"""Requests about committed offsets, as each version of a coordinator wants them."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.clients.committed_offsets import commit_offsets, fetch_offsets
from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.config.client_config import AdminConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.runtime.timing import Deadline
from ottla.structs import NO_UUID, TopicPartition

FIRST, SECOND = TopicPartition("pages", 0), TopicPartition("pages", 1)


@pytest.fixture
def client(runtime, cluster) -> NetworkClient:
    """One that knows the coordinator, which has offset 5 of partition 0, and none of 1."""
    config = AdminConfig.parse({"bootstrap.servers": cluster.bootstrap_servers})
    client = NetworkClient(runtime, config)
    runtime.scheduler.run(Metadata(client).update(Deadline(runtime.clock, 1000)))
    return client


def answer_with(code: int = 0):
    def answer(request, version):
        entry = {"committed_leader_epoch": 2 if version > 4 else -1, "metadata": None}
        rows = [{"partition_index": 0, "committed_offset": 5, "error_code": code, **entry}]
        rows.append({"partition_index": 1, "committed_offset": -1})
        if version < 8:
            partitions = [OffsetFetchResponsePartition(**row) for row in rows]
            topics = [OffsetFetchResponseTopic(name="pages", partitions=partitions)]
            return OffsetFetchResponse(topics=topics)
        partitions = [OffsetFetchResponsePartitions(**row) for row in rows]
        topics = [OffsetFetchResponseTopics(name="pages", partitions=partitions)]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])

    return answer


@pytest.mark.parametrize("wants_all", [False, True])
@pytest.mark.parametrize("version", [1, 2, 6, 7, 8, 9])
def test_offsets_are_fetched_in_each_version(runtime, cluster, client, version, wants_all):
    """All of a group from version 2 on, without those of open transactions from version 7 on."""
    cluster[0].versions[OffsetFetchRequest.api_key] = (1, version)
    cluster[0].on(OffsetFetchRequest, answer_with())
    partitions = None if wants_all else [FIRST, SECOND]
    call = fetch_offsets(client, 0, "g", partitions, require_stable=True)
    if wants_all and version == 1:
        with pytest.raises(KafkaError) as caught:
            runtime.scheduler.run(call)
        assert caught.value.error is ErrorCode.UNSUPPORTED_VERSION
        return
    found = runtime.scheduler.run(call)
    (request,) = cluster[0].sent(OffsetFetchRequest)
    (group,) = request.groups if version > 7 else (request,)

    assert found == {FIRST: OffsetAndMetadata(5, "", 2 if version > 4 else -1)}
    assert group.group_id == "g"
    assert request.require_stable is (version >= 7)
    topics = None if wants_all else [("pages", [0, 1])]
    told = None if group.topics is None else [(t.name, t.partition_indexes) for t in group.topics]
    assert told == topics


def test_offset_that_may_not_be_seen_is_an_error(runtime, cluster, client):
    """It names partition and group."""
    cluster[0].on(OffsetFetchRequest, answer_with(ErrorCode.UNSTABLE_OFFSET_COMMIT))
    with pytest.raises(KafkaError, match="offset of pages-0 in group g") as caught:
        runtime.scheduler.run(fetch_offsets(client, 0, "g", [FIRST]))

    assert caught.value.error is ErrorCode.UNSTABLE_OFFSET_COMMIT


def commit_answer(request, version):
    """The topic with the id is gone; all others are there."""
    response = OffsetCommitResponse()
    for topic in request.topics:
        entry = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        code = ErrorCode.UNKNOWN_TOPIC_ID if topic.topic_id == UUID(int=1) else 0
        entry.partitions = [
            OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code)
            for p in topic.partitions
        ]
        response.topics.append(entry)
    return response


GONE, PRESENT, NAMED = (TopicPartition(name, 0) for name in ("gone", "present", "named"))
IDS = {GONE: UUID(int=1), PRESENT: UUID(int=2), NAMED: NO_UUID}


@pytest.mark.parametrize(
    ("newest", "given", "sent"),
    [
        (10, [GONE, PRESENT, NAMED], [(10, ["", ""]), (9, ["named"])]),
        (10, [NAMED, GONE], [(10, [""]), (9, ["named"])]),
        (10, [GONE, PRESENT], [(10, ["", ""])]),
        (10, [NAMED], [(9, ["named"])]),
        (9, [GONE, NAMED], [(9, ["gone", "named"])]),
        (9, [PRESENT], [(9, ["present"])]),
        (7, [PRESENT, NAMED], [(7, ["present", "named"])]),
    ],
)
def test_offsets_with_and_without_the_ids_of_topics_are_committed(
    runtime, cluster, client, newest, given, sent
):
    """One that has none takes nothing from the others: an offset in a topic that is gone fails."""
    cluster[0].versions[OffsetCommitRequest.api_key] = (2, newest)
    cluster[0].on(OffsetCommitRequest, commit_answer)
    offsets = {each: OffsetAndMetadata(7, topic_id=IDS[each]) for each in given}
    results = runtime.scheduler.run(commit_offsets(client, 0, "g", offsets))

    assert [
        (version, [topic.name for topic in request.topics])
        for request, version in cluster[0].requests
        if isinstance(request, OffsetCommitRequest)
    ] == sent
    refused = {GONE} & set(given) if newest == 10 else set()
    assert {each for each, error in results.items() if error is not None} == refused
    assert results.keys() == set(given)


@pytest.mark.parametrize("partition", [0, 1])
@pytest.mark.parametrize("version", [1, 7, 8, 9])
def test_partition_that_an_answer_leaves_out_is_not_one_without_a_commit(
    runtime, cluster, client, version, partition
):
    """Reading would begin at auto.offset.reset, behind records that nobody has read."""
    cluster[0].versions[OffsetFetchRequest.api_key] = (1, version)

    def answer(request, version):
        response = answer_with()(request, version)
        topics = response.groups[0].topics if version >= 8 else response.topics
        del topics[0].partitions[partition]
        return response

    cluster[0].on(OffsetFetchRequest, answer)
    match = f"the answer leaves the offset of pages-{partition} in group g out"
    with pytest.raises(KafkaError, match=match):
        runtime.scheduler.run(fetch_offsets(client, 0, "g", [FIRST, SECOND]))


@pytest.mark.parametrize("group_ids", [[], ["h"], ["g", "g"]])
def test_answer_about_other_groups_is_none(runtime, cluster, client, group_ids):
    """Nor is one that says two things."""
    groups = [OffsetFetchResponseGroup(group_id=each) for each in group_ids]
    cluster[0].on(OffsetFetchRequest, OffsetFetchResponse(groups=groups))
    with pytest.raises(KafkaError) as caught:
        runtime.scheduler.run(fetch_offsets(client, 0, "g", None))

    assert caught.value.error is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("topic_id", [NO_UUID, UUID(int=2)])
def test_commit_that_an_answer_leaves_out_is_not_made(runtime, cluster, client, topic_id):
    """Whatever else the answer tells, of topics that were not asked about."""

    def answer(request, version):
        response = commit_answer(request, version)
        response.topics = response.topics[1:]
        stranger = OffsetCommitResponseTopic(name="", topic_id=UUID(int=99))
        stranger.partitions = [OffsetCommitResponsePartition(partition_index=0)]
        if version > 9:
            response.topics.append(stranger)
        return response

    cluster[0].on(OffsetCommitRequest, answer)
    offsets = {
        PRESENT: OffsetAndMetadata(1, topic_id=topic_id),
        NAMED._replace(topic="other"): OffsetAndMetadata(2, topic_id=topic_id and UUID(int=3)),
    }
    if topic_id == NO_UUID:
        offsets = {each: OffsetAndMetadata(offset.offset) for each, offset in offsets.items()}
    results = runtime.scheduler.run(commit_offsets(client, 0, "g", offsets))

    assert list(results) == list(offsets)
    refused, done = results.values()
    assert isinstance(refused, KafkaError)
    assert refused.message == "the answer leaves present-0 out"
    assert done is None
