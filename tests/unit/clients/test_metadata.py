"""Metadata: when they are refreshed, and what is made of old news."""

from __future__ import annotations

from uuid import UUID

import pytest
from mock_kafka import HANG_UP, MockCluster

from ottla.clients.metadata import Metadata, TopicInfo
from ottla.clients.network_client import NetworkClient
from ottla.config.client_config import AdminConfig
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError
from ottla.network.timing import Deadline
from ottla.protocol.metadata import MetadataRequest, MetadataResponse
from ottla.structs import TopicPartition

PARTITION = TopicPartition("pages", 0)


def metadata_of(runtime, cluster, **options) -> Metadata:
    config = AdminConfig.parse({"bootstrap.servers": cluster.bootstrap_servers})
    return Metadata(NetworkClient(runtime, config), **options)


@pytest.fixture
def metadata(runtime, cluster) -> Metadata:
    """A client's metadata, empty so far."""
    return metadata_of(runtime, cluster)


def asked(cluster) -> int:
    return len(cluster[0].sent(MetadataRequest))


def test_topic_is_asked_for_once(runtime, cluster, metadata):
    """What is known is not asked for again."""
    for _ in range(3):
        info = runtime.scheduler.run(metadata.topic("pages", Deadline(runtime.clock, 1000)))

    assert list(info.partitions) == [0, 1]
    assert asked(cluster) == 1


def test_topic_is_waited_for(runtime, cluster, metadata):
    """A topic that may be created by itself is asked for again and again."""
    runtime.scheduler.call_later(700, lambda: cluster.topics.update(later=1))
    info = runtime.scheduler.run(metadata.topic("later", Deadline(runtime.clock, 5000)))

    assert list(info.partitions) == [0]
    assert 700 <= runtime.clock.monotonic_ms() < 2000


def test_answer_that_is_an_error_is_not_taken_for_an_empty_cluster(
    runtime, cluster, metadata, monkeypatch
):
    """Version 13 may say that the client must ask elsewhere (KIP-1102): it asks again."""
    works, errors = cluster.metadata, [ErrorCode.REBOOTSTRAP_REQUIRED]

    def answer(request):
        return MetadataResponse(error_code=int(errors.pop())) if errors else works(request)

    monkeypatch.setattr(cluster, "metadata", answer)
    known = []
    metadata.on_update = known.append
    info = runtime.scheduler.run(metadata.topic("pages", Deadline(runtime.clock, 5000)))

    assert list(info.partitions) == [0, 1]
    assert not errors
    assert asked(cluster) == 2
    assert [len(each.nodes) for each in known] == [len(cluster.brokers)]


def test_topic_that_does_not_come_is_given_up(runtime, metadata):
    """The error names the topic, the limit and the last answer."""
    deadline = Deadline(runtime.clock, 1000)
    with pytest.raises(
        KafkaTimeoutError, match=r"topic later .*UNKNOWN_TOPIC_OR_PARTITION.* within 1000 ms"
    ):
        runtime.scheduler.run(metadata.topic("later", deadline))


def test_topic_is_not_waited_for_where_it_cannot_come(runtime, cluster):
    """Without automatic creation an unknown topic is an answer; and it is asked for anew."""
    metadata = metadata_of(runtime, cluster, allow_auto_topic_creation=False)
    for _ in range(2):
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            runtime.scheduler.run(metadata.topic("later", Deadline(runtime.clock, 5000)))
    assert asked(cluster) == 2
    cluster.topics["later"] = 1
    runtime.scheduler.run(metadata.topic("later", Deadline(runtime.clock, 5000)))


def test_topic_that_is_refused_is_an_error(runtime, cluster, metadata):
    """An error that stays is raised at once."""
    cluster.errors["bad name"] = ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(KafkaError, match="INVALID_TOPIC_EXCEPTION: topic bad name"):
        runtime.scheduler.run(metadata.topic("bad name", Deadline(runtime.clock, 5000)))


def test_complaints_lead_to_one_refresh(runtime, cluster, metadata):
    """Many partitions complain at once; brokers are asked once, and not again at once."""
    runtime.scheduler.run(metadata.topic("pages", Deadline(runtime.clock, 1000)))
    for _ in range(10):
        metadata.request_update()
    runtime.advance(1)
    assert asked(cluster) == 1
    runtime.advance(100)
    assert asked(cluster) == 2


def test_refresh_is_repeated_until_it_works(runtime, cluster, metadata):
    """With growing pauses."""
    cluster[0].on(MetadataRequest, HANG_UP, HANG_UP, cluster[0]._metadata)
    runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 5000)))

    assert list(metadata.cluster.nodes) == [0]


def test_refresh_without_a_broker_ends_in_time(runtime, cluster, metadata):
    """The error says why nobody could be reached."""
    cluster[0].stop()
    with pytest.raises(KafkaTimeoutError, match="nobody listens on mock:9000"):
        runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 2000)))
    assert runtime.clock.monotonic_ms() <= 2100


def test_missing_topics_are_looked_for_sooner(runtime, cluster, metadata):
    """While something is missing, metadata.max.age.ms is too long."""
    metadata.want(["later"])
    runtime.advance(5000)

    assert 4 < asked(cluster) < 20


def test_old_leader_epoch_is_not_believed(runtime, cluster, metadata):
    """A slow broker's news do not undo a newer answer (KIP-320)."""
    cluster.leaders["pages", 0], cluster.epochs["pages", 0] = 0, 5
    runtime.scheduler.run(metadata.topic("pages", Deadline(runtime.clock, 1000)))
    cluster.leaders["pages", 0], cluster.epochs["pages", 0] = 7, 4
    runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 1000)))

    assert metadata.cluster.leader(PARTITION) == 0


def test_topic_that_was_created_again_is_never_taken_for_the_one_before(runtime, cluster, metadata):
    """A slow broker may still describe the topic that was deleted, or say that there is none."""

    def learn(topic_id: UUID, epoch: int) -> TopicInfo:
        cluster.topic_ids["pages"], cluster.epochs["pages", 0] = topic_id, epoch
        runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 1000)))
        return metadata.cluster.topics["pages"]

    metadata.want(["pages"])
    before, after, last = UUID(int=1), UUID(int=2), UUID(int=3)
    assert learn(before, 7).topic_id == before
    created_again = learn(after, 0)
    assert (created_again.topic_id, created_again.partitions[0].leader_epoch) == (after, 0)
    assert learn(before, 8) == created_again
    count = cluster.topics.pop("pages")
    assert learn(after, 0).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.topics["pages"] = count
    assert learn(before, 8).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert learn(after, 1).topic_id == after
    assert learn(last, 0).topic_id == last
    assert learn(after, 2).topic_id == last


def test_leader_is_waited_for(runtime, cluster, metadata):
    """A partition without a leader gets one sooner or later."""
    cluster.leaders["pages", 0] = -1

    def elect() -> None:
        cluster.leaders["pages", 0], cluster.epochs["pages", 0] = 0, 1

    runtime.scheduler.call_later(500, elect)
    deadline = Deadline(runtime.clock, 5000)
    assert runtime.scheduler.run(metadata.leader(PARTITION, deadline)) == 0


def test_partition_that_does_not_exist_is_an_error(runtime, metadata):
    """The text says how many there are."""
    with pytest.raises(KafkaError, match="topic pages has 2 partitions, and none with"):
        runtime.scheduler.run(
            metadata.leader(TopicPartition("pages", 9), Deadline(runtime.clock, 1000))
        )


def test_bootstrap_is_tried_again_when_all_brokers_are_gone(runtime):
    """The cluster may have moved behind the addresses that we began with."""
    cluster = MockCluster(runtime, 2)
    metadata = metadata_of(runtime, cluster)
    runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 1000)))
    cluster.brokers[0].stop()
    cluster.brokers[1].stop()
    runtime.advance(5000)
    cluster.brokers[1].start()
    runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 5000)))
