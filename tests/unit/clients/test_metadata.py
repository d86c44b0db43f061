"""Metadata: when they are refreshed, and what is made of old news."""

from __future__ import annotations

import gc
from uuid import UUID

import pytest
from mock_kafka import HANG_UP, MockCluster

from ottla.clients.metadata import Cluster, Metadata, TopicInfo
from ottla.clients.network_client import NetworkClient
from ottla.config.client_config import AdminConfig
from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError, TlsError
from ottla.protocol.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.runtime.timing import Deadline
from ottla.structs import NO_EPOCH, NO_LEADER, TopicPartition

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


@pytest.mark.parametrize("topics", [["pages"], ["pages", "other"], None])
def test_topics_that_are_wanted_already_are_not_asked_for_again(runtime, cluster, metadata, topics):
    """Neither where they are added, nor where they are all that is wanted from now on."""
    cluster.topics["other"] = 1
    metadata.set_topics(topics)
    runtime.advance(0)
    assert asked(cluster) == 1
    assert "pages" in metadata.cluster.topics
    metadata.want(["pages"])
    if topics is not None:
        metadata.set_topics(topics)
        metadata.set_topics(["pages"])
    runtime.advance(1000)

    assert asked(cluster) == 1
    assert metadata.topics == (None if topics is None else {"pages"})


@pytest.mark.parametrize("way", ["want", "set_topics"])
def test_new_topics_are_asked_for_at_once(runtime, cluster, metadata, way):
    """All topics are more than any, and of all it is not known which are new."""
    cluster.topics |= {"other": 1, "third": 1}
    metadata.set_topics(["pages"])
    runtime.advance(0)
    getattr(metadata, way)(["other"])
    runtime.advance(0)
    assert set(metadata.cluster.topics) == {"other"} | ({"pages"} if way == "want" else set())
    metadata.set_topics(None)
    runtime.advance(0)
    assert set(metadata.cluster.topics) == {"pages", "other", "third"}
    metadata.set_topics(["third"])
    runtime.advance(0)
    assert set(metadata.cluster.topics) == {"third"}
    assert asked(cluster) == 4


def test_topic_that_was_forgotten_is_not_asked_for(runtime, cluster, metadata):
    """Where all topics are wanted there is nothing to forget."""
    metadata.set_topics(["pages", "gone"])
    metadata.forget("gone")
    metadata.forget("never wanted")
    runtime.advance(0)
    assert [topic.name for topic in cluster[0].sent(MetadataRequest)[0].topics] == ["pages"]
    metadata.set_topics(None)
    metadata.forget("pages")
    runtime.advance(0)
    assert "pages" in metadata.cluster.topics


@pytest.mark.parametrize(("version", "creates"), [(3, True), (4, False)])
def test_brokers_are_told_to_create_nothing_as_soon_as_they_can_be(
    runtime, cluster, version, creates
):
    """Version 4 of the request is the first with that field."""
    cluster[0].versions[MetadataRequest.api_key] = (0, version)
    metadata = metadata_of(runtime, cluster, allow_auto_topic_creation=False)
    runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 1000)))

    (request,) = cluster[0].sent(MetadataRequest)
    assert request.allow_auto_topic_creation is creates


def test_topic_is_waited_for(runtime, cluster, metadata):
    """A topic that may be created by itself is asked for again and again."""
    runtime.scheduler.call_later(700, lambda: cluster.topics.update(later=1))
    info = runtime.scheduler.run(metadata.topic("later", Deadline(runtime.clock, 5000)))

    assert list(info.partitions) == [0]
    assert 700 <= runtime.clock.monotonic_ms() < 2000


def test_answer_that_is_an_error_is_not_taken_for_an_empty_cluster(runtime, cluster, monkeypatch):
    """Version 13 may say that the client must ask elsewhere (KIP-1102): it asks again."""
    works, errors = cluster.metadata, [ErrorCode.REBOOTSTRAP_REQUIRED]

    def answer(request):
        return MetadataResponse(error_code=int(errors.pop())) if errors else works(request)

    monkeypatch.setattr(cluster, "metadata", answer)
    known = []
    metadata = metadata_of(runtime, cluster, on_update=known.append)
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
    """An unknown topic that is not created automatically is an answer; it is asked for anew."""
    metadata = metadata_of(runtime, cluster, allow_auto_topic_creation=False)
    for _ in range(2):
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            runtime.scheduler.run(metadata.topic("later", Deadline(runtime.clock, 5000)))
    assert asked(cluster) == 2
    assert metadata.topics == set()
    cluster.topics["later"] = 1
    runtime.scheduler.run(metadata.topic("later", Deadline(runtime.clock, 5000)))


def test_topic_that_is_refused_is_an_error(runtime, cluster, metadata):
    """An error that stays is raised at once."""
    cluster.errors["secret"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED: topic secret"):
        runtime.scheduler.run(metadata.topic("secret", Deadline(runtime.clock, 5000)))


@pytest.mark.parametrize("bad", ["orders\ud800", "a b", "x" * 40_000, b"pages", None])
def test_name_that_no_topic_may_have_stops_no_other(runtime, cluster, metadata, bad):
    """It is refused where it comes in, and else is an error of its own that is asked of nobody."""
    deadline = Deadline(runtime.clock, 1000)
    with pytest.raises(KafkaError, match="cannot be a topic's name"):
        runtime.scheduler.run(metadata.topic(bad, deadline))
    assert metadata.topics == set()
    metadata.want([bad])
    assert runtime.scheduler.run(metadata.topic("pages", deadline)).partitions
    assert metadata.cluster.error_of(bad) is ErrorCode.INVALID_TOPIC_EXCEPTION
    requests = cluster[0].sent(MetadataRequest)
    assert {each.name for request in requests for each in request.topics} == {"pages"}


def test_complaints_lead_to_one_refresh(runtime, cluster, metadata):
    """Many partitions complain at once; brokers are asked once, and not again at once."""
    runtime.scheduler.run(metadata.topic("pages", Deadline(runtime.clock, 1000)))
    for _ in range(10):
        metadata.request_update()
    runtime.advance(1)
    assert asked(cluster) == 1
    runtime.advance(100)
    assert asked(cluster) == 2


def test_first_refresh_does_not_wait(runtime, cluster, metadata):
    """There is none before it that it could follow too soon."""
    metadata.request_update()
    runtime.advance(0)

    assert asked(cluster) == 1


def test_complaint_waits_for_what_is_left_of_the_pause(runtime, cluster, metadata):
    """The pause of retry.backoff.ms counts from the last answer, and not from the complaint."""
    runtime.advance(5000)
    runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 1000)))
    runtime.advance(30)
    metadata.request_update()
    runtime.advance(69)
    assert asked(cluster) == 1
    runtime.advance(1)
    assert asked(cluster) == 2
    runtime.advance(100)
    metadata.request_update()
    runtime.advance(0)
    assert asked(cluster) == 3


def test_metadata_are_refreshed_once_when_they_are_old(runtime, cluster, metadata):
    """The age is that of the last refresh, whatever was the reason for it."""
    for _ in range(3):
        runtime.scheduler.run(metadata.topic("pages", Deadline(runtime.clock, 1000)))
        runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 1000)))
        runtime.advance(10_000)
    before = asked(cluster)
    runtime.advance(289_999)
    assert asked(cluster) == before
    runtime.advance(1)
    assert asked(cluster) == before + 1


def test_pauses_after_failures_end_with_the_next_answer(runtime, cluster, metadata):
    """What is urgent is asked for at once again."""
    deadline = Deadline(runtime.clock, 60_000)
    cluster[0].on(MetadataRequest, *[HANG_UP] * 4, cluster[0]._metadata)
    runtime.scheduler.run(metadata.update(deadline))
    now_ms = runtime.clock.monotonic_ms()
    assert now_ms > 1000
    runtime.scheduler.run(metadata.update(deadline))

    assert runtime.clock.monotonic_ms() == now_ms


def test_closed_metadata_are_not_refreshed(runtime, cluster, metadata):
    """Neither by a request that waits, nor by one that comes later, nor by their age."""
    runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 1000)))
    metadata.request_update()
    runtime.advance(0)
    metadata.close()
    runtime.advance(0)
    metadata.request_update(is_urgent=True)
    runtime.advance(1_000_000)

    assert asked(cluster) == 1


@pytest.mark.parametrize(
    ("error", "count"),
    [(0, 0), (ErrorCode.LEADER_NOT_AVAILABLE, 0), (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1)],
)
def test_rights_are_looked_at_again_after_a_pause(runtime, cluster, metadata, error, count):
    """Where a topic was refused; another error passes by itself."""
    if error:
        cluster.errors["secret"] = error
    else:
        cluster.topics["secret"] = 1
    metadata.set_topics(["pages", "secret"])
    runtime.advance(0)
    metadata.set_topics(["pages"])
    before, now_ms = asked(cluster), runtime.clock.monotonic_ms()
    topics = ["pages", "secret"]
    runtime.scheduler.run(metadata.ask_again(topics, Deadline(runtime.clock, 1000)))

    assert asked(cluster) == before + count
    assert runtime.clock.monotonic_ms() == now_ms + 100 * count


def test_refresh_is_repeated_until_it_works(runtime, cluster, metadata):
    """The pauses between refreshes grow."""
    cluster[0].on(MetadataRequest, HANG_UP, HANG_UP, cluster[0]._metadata)
    runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 5000)))

    assert list(metadata.cluster.nodes) == [0]


def test_refresh_without_a_broker_ends_in_time(runtime, cluster, metadata):
    """The error says why nobody could be reached."""
    cluster[0].stop()
    with pytest.raises(KafkaTimeoutError, match="nobody listens on mock:9000"):
        runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 2000)))
    assert runtime.clock.monotonic_ms() <= 2100


@pytest.mark.parametrize("missing", ["topic", "leader"])
def test_what_is_missing_is_looked_for_sooner(runtime, cluster, metadata, missing):
    """While something is missing, metadata.max.age.ms is too long; pauses grow, and then end."""
    metadata.want(["pages"] if missing == "leader" else ["pages", "later"])
    cluster.leaders["pages", 0] = -1 if missing == "leader" else 0
    runtime.advance(5000)
    assert 4 < asked(cluster) < 20

    cluster.topics["later"], cluster.leaders["pages", 0] = 1, 0
    runtime.advance(2000)
    known = asked(cluster)
    runtime.advance(200_000)
    assert asked(cluster) == known


@pytest.mark.parametrize("is_known", [False, True])
def test_topic_is_given_up_for_the_reason_that_says_more(runtime, cluster, metadata, is_known):
    """It is the last answer about it, or if there was none, that no broker gives one."""
    if is_known:
        cluster.errors["later"] = ErrorCode.LEADER_NOT_AVAILABLE
        metadata.want(["later"])
        runtime.advance(0)
    cluster[0].on(MetadataRequest, None)
    reason = "LEADER_NOT_AVAILABLE" if is_known else "no metadata were received"
    with pytest.raises(KafkaTimeoutError, match=reason):
        runtime.scheduler.run(metadata.topic("later", Deadline(runtime.clock, 3000)))


def test_broker_that_never_answers_is_told_from_one_that_cannot_be_reached(
    runtime, cluster, metadata
):
    """The error names no failure where there was none."""
    cluster[0].on(MetadataRequest, None)
    with pytest.raises(KafkaTimeoutError, match="nothing was answered"):
        runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 1000)))


@pytest.mark.parametrize("other", ["answers", "refuses", "hangs", "is not there"])
def test_broker_that_hangs_does_not_keep_the_answer_of_another(runtime, other):
    """Another one is asked, too; where it has none, the first may still answer."""
    cluster = MockCluster(runtime, 1 if other == "is not there" else 2)
    metadata = metadata_of(runtime, cluster)
    metadata.set_topics(["pages"])
    runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 1000)))
    for broker in cluster.brokers.values():
        broker.on(MetadataRequest, "hold")
    metadata.request_update(is_urgent=True)
    runtime.advance(100)
    (hung,) = [each for each in cluster.brokers.values() if each.held]
    for broker in cluster.brokers.values():
        if broker is not hung and other != "hangs":
            answer = HANG_UP if other == "refuses" else lambda asked, _: cluster.metadata(asked)
            broker.on(MetadataRequest, answer)
    before = metadata.cluster
    runtime.advance(3_000)
    assert (metadata.cluster is not before) == (other == "answers")

    request = hung.held.pop()
    request.answer(cluster.metadata(request.request))
    runtime.advance(100)
    assert metadata.cluster is not before


def test_only_broker_that_hangs_is_not_looked_past_again_and_again(runtime, cluster, monkeypatch):
    """There is nobody else to ask: the client rests, for reconnect.backoff.ms each time."""
    looks = []
    by_preference = NetworkClient._by_preference

    def look(client):
        looks.append(client.runtime.clock.monotonic_ms())
        return by_preference(client)

    monkeypatch.setattr(NetworkClient, "_by_preference", look)
    metadata = metadata_of(runtime, cluster)
    cluster[0].on(MetadataRequest, None)
    metadata.request_update()
    runtime.advance(10_000)

    assert 2 <= len(looks) <= 2 + 7_000 // 50


def test_certificate_that_is_refused_ends_what_waits_and_nothing_later(
    runtime, cluster, metadata, monkeypatch, caplog
):
    """As soon as it is accepted the next call works; an error that nobody waits for is dropped."""
    works = runtime.network.connect

    async def distrusted(*arguments):
        raise TlsError("not trusted")

    deadline = Deadline(runtime.clock, 60_000)
    monkeypatch.setattr(runtime.network, "connect", distrusted)
    with pytest.raises(TlsError):
        runtime.scheduler.run(metadata.update(deadline))
    monkeypatch.setattr(runtime.network, "connect", works)
    runtime.scheduler.run(metadata.update(deadline))

    cluster[0].on(MetadataRequest, None)
    with pytest.raises(KafkaTimeoutError):
        runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 100)))
    monkeypatch.setattr(runtime.network, "connect", distrusted)
    cluster[0].stop()
    runtime.advance(5000)
    metadata.close()
    gc.collect()
    assert caplog.messages == []


def test_old_leader_epoch_is_not_believed(runtime, cluster, metadata):
    """A slow broker's news do not undo a newer answer (KIP-320)."""
    cluster.leaders["pages", 0], cluster.epochs["pages", 0] = 0, 5
    runtime.scheduler.run(metadata.topic("pages", Deadline(runtime.clock, 1000)))
    cluster.leaders["pages", 0], cluster.epochs["pages", 0] = 7, 4
    runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 1000)))

    assert metadata.cluster.leader(PARTITION) == 0


def described(leader: int, epoch: int, isr: list[int]) -> MetadataResponse:
    """Metadata of one partition."""
    partition = MetadataResponsePartition(leader_id=leader, leader_epoch=epoch, isr_nodes=isr)
    topic = MetadataResponseTopic(name="pages", partitions=[partition])
    return MetadataResponse(topics=[topic])


@pytest.mark.parametrize(
    ("epoch", "is_believed"), [(4, False), (5, True), (6, True), (NO_EPOCH, True)]
)
def test_news_are_believed_unless_they_are_of_an_older_epoch(epoch, is_believed):
    """The replicas in sync change within one, and old brokers do not say the epoch."""
    before = Cluster.of(described(1, 5, [1, 2]), Cluster())
    after = Cluster.of(described(1, epoch, [1]), before)

    assert after.partition(PARTITION).isr == ((1,) if is_believed else (1, 2))


def test_cluster_says_what_is_known_and_what_is_not():
    """A partition without a leader exists, and a topic with an error does not."""
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=7)
        for index, leader in ((1, NO_LEADER), (0, 3))
    ]
    topics = [
        MetadataResponseTopic(name="pages", partitions=partitions),
        MetadataResponseTopic(name="bad", error_code=ErrorCode.INVALID_TOPIC_EXCEPTION),
        MetadataResponseTopic(name=None, error_code=ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    cluster = Cluster.of(MetadataResponse(topics=topics), Cluster())
    second, unknown = TopicPartition("pages", 1), TopicPartition("none", 0)

    assert [each.partition for each in cluster.partitions_for_topic("pages")] == [0, 1]
    assert [each.partition for each in cluster.available_partitions_for_topic("pages")] == [0]
    assert cluster.topics["pages"].available == [0]
    assert [cluster.partition_count_for_topic(name) for name in ("pages", "none")] == [2, 0]
    assert cluster.partition_counts(["pages", "bad", "none"]) == {"pages": 2}
    assert [cluster.leader(each) for each in (PARTITION, second, unknown)] == [3, -1, -1]
    assert [cluster.leader_epoch(each) for each in (PARTITION, second, unknown)] == [7, 7, -1]
    assert cluster.partition(unknown) is None
    assert cluster.partition(TopicPartition("pages", 2)) is None
    assert {name: cluster.error_of(name) for name in ("pages", "bad", "none", "")} == {
        "pages": ErrorCode.NONE,
        "bad": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "": ErrorCode.UNKNOWN_TOPIC_ID,
    }


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


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER])
def test_reason_that_was_answered_is_told_at_the_end_of_the_time(runtime, cluster, code):
    """A broker has answered, and what it said is the reason."""
    for broker in cluster.brokers.values():
        broker.on(MetadataRequest, MetadataResponse(error_code=code))
    metadata = metadata_of(runtime, cluster)
    with pytest.raises(KafkaTimeoutError, match="the cluster's metadata") as caught:
        runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 3000)))

    assert "nothing was answered" not in caught.value.message


def test_versions_that_do_not_fit_are_told_at_the_end_of_the_time(runtime, cluster):
    """They may fit after an upgrade that is under way, so they are asked for until then."""
    for broker in cluster.brokers.values():
        broker.versions[MetadataRequest.api_key] = (900, 999)
    metadata = metadata_of(runtime, cluster)
    with pytest.raises(KafkaTimeoutError, match="METADATA: this client needs one of the versions"):
        runtime.scheduler.run(metadata.update(Deadline(runtime.clock, 3000)))


def test_metadata_that_are_refused_for_long_are_a_warning(runtime, cluster, caplog):
    """Else a consumer would return nothing for ever, and say nothing."""
    refusal = MetadataResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    for broker in cluster.brokers.values():
        broker.on(MetadataRequest, refusal)
    metadata = metadata_of(runtime, cluster)
    metadata_asked = metadata.update(Deadline(runtime.clock, 20_000))
    with pytest.raises(KafkaTimeoutError):
        runtime.scheduler.run(metadata_asked)

    (line,) = (r.getMessage() for r in caplog.records if r.levelname == "WARNING")
    assert line.startswith(
        "the refresh of the metadata has failed for 5 s, and is tried again: UNKNOWN"
    )
