"""Requests about committed offsets, as each version of a coordinator wants them."""

from __future__ import annotations

import pytest

from ottla.clients.committed_offsets import fetch_offsets
from ottla.clients.metadata import Metadata
from ottla.clients.network_client import NetworkClient
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.config.client_config import AdminConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.runtime.timing import Deadline
from ottla.structs import TopicPartition

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
