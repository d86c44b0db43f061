"""What clients are told of topics, and that it follows what the controller says."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest
from counting_slices import CountingSlices

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.describe_cluster import DescribeClusterRequest
from ottla.protocol.message import encode
from ottla.protocol.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    TopicRequest,
)
from ottla.protocol.topic_name import validate_topic_name
from ottla.runtime import Slices
from ottla.server.handlers.metadata import MAX_CREATIONS_A_SECOND, SLICE_PARTITIONS, MetadataHandler
from ottla.server.metadata_cache import MetadataCache
from ottla.structs import BrokerEndPoints, EndPoint, LeaderAndIsr, PartitionState, TopicPartition

MOST = 5
INSIDE = SimpleNamespace(api_version=12, listener_name="INSIDE", received_ms=0)
OUTSIDE = SimpleNamespace(api_version=12, listener_name="OUTSIDE", received_ms=0)
OLD = SimpleNamespace(api_version=5, listener_name="OUTSIDE", received_ms=0)


def broker(broker_id, *listeners):
    end_points = tuple(EndPoint(name, "PLAINTEXT", "host", 9092) for name in listeners)
    return BrokerEndPoints(broker_id, 1, end_points)


def led_by(leader):
    state = LeaderAndIsr(leader, 3, (1, 2), 4)
    return [PartitionState(TopicPartition("t", 0), UUID(int=7), 1, state, (1, 2))]


BROKERS = [broker(1, "INSIDE", "OUTSIDE"), broker(2, "INSIDE")]


@pytest.fixture
def cache():
    cache = MetadataCache("cluster")
    cache.update(led_by(1), BROKERS)
    return cache


@pytest.fixture
def handler(cache):
    return MetadataHandler(cache, False, None, validate_topic_name, MOST, Slices())


def told(handler, context):
    """The error and the leader of the only partition."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    ((partition,),) = (
        topic.partitions for topic in handler.handle_metadata(context, request).topics
    )
    return ErrorCode.of(partition.error_code), partition.leader_id


def test_answer_follows_every_update(cache, handler):
    """What was built for one client serves the next ones until the controller says more."""
    assert told(handler, INSIDE) == told(handler, INSIDE) == (ErrorCode.NONE, 1)
    cache.update(led_by(2), BROKERS)
    assert told(handler, INSIDE) == (ErrorCode.NONE, 2)
    cache.update([], BROKERS[:1])

    assert told(handler, INSIDE) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


def test_each_listener_and_version_has_an_answer_of_its_own(cache, handler):
    """A leader without a listener is none for the clients of that listener."""
    cache.update(led_by(2), BROKERS)

    assert told(handler, INSIDE) == (ErrorCode.NONE, 2)
    assert told(handler, OUTSIDE) == (ErrorCode.LISTENER_NOT_FOUND, -1)
    assert told(handler, OLD) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    first = SimpleNamespace(**{**vars(OLD), "api_version": 6})
    assert told(handler, first) == (ErrorCode.LISTENER_NOT_FOUND, -1)


def test_partitions_are_built_once_for_many_clients(cache, handler, monkeypatch):
    """Clients that lost the leader of 5,000 partitions kept brokers busy with their questions."""
    cache.update(led_by(1), BROKERS)
    first = told(handler, INSIDE)
    monkeypatch.setattr(handler, "_partition", None)

    assert told(handler, INSIDE) == first


def of_topics(cache, **counts):
    """Topics with so many partitions, led by broker 1."""
    state = LeaderAndIsr(1, 3, (1, 2), 4)
    states = [
        PartitionState(TopicPartition(name, index), UUID(int=ord(name)), 1, state, (1, 2))
        for name, count in counts.items()
        for index in range(count)
    ]
    cache.update(states, BROKERS)


def described(handler, *names, limit=2000, cursor=None, context=INSIDE):
    """The partitions of each topic of one answer, and where the next one begins."""
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    answer = asyncio.run(handler.handle_describe_topic_partitions(context, request))
    encode(answer, 0)
    topics = {
        topic.name: [partition.partition_index for partition in topic.partitions]
        or ErrorCode.of(topic.error_code)
        for topic in answer.topics
    }
    following = answer.next_cursor
    return topics, following and (following.topic_name, following.partition_index)


def test_partitions_are_described_in_pieces(cache, handler):
    """By name, up to the limit of the request or the setting; the cursor goes on from there."""
    of_topics(cache, a=3, b=2, c=4)

    assert described(handler) == ({"a": [0, 1, 2], "b": [0, 1]}, ("c", 0))
    assert described(handler, cursor=("c", 0)) == ({"c": [0, 1, 2, 3], "t": [0]}, None)
    assert described(handler, limit=2) == ({"a": [0, 1]}, ("a", 2))
    assert described(handler, limit=2, cursor=("a", 2)) == ({"a": [2], "b": [0]}, ("b", 1))
    assert described(handler, "c", "a", "c", limit=4) == ({"a": [0, 1, 2], "c": [0]}, ("c", 1))
    assert described(handler, "c", "a", cursor=("c", 3)) == ({"c": [3]}, None)


def test_limit_below_one_describes_one_partition(cache, handler):
    """A client that asks again with the cursor must get on."""
    of_topics(cache, a=2)

    assert described(handler, "a", limit=0) == ({"a": [0]}, ("a", 1))


def test_topics_that_cannot_be_described_say_why(cache, handler):
    """Those that are named; a cursor may stand on a topic that was deleted meanwhile."""
    of_topics(cache, a=1)

    assert described(handler, "a", "no", "../x") == (
        {
            "../x": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "a": [0],
            "no": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        },
        None,
    )
    assert described(handler, cursor=("b", 7)) == ({"t": [0]}, None)


@pytest.mark.parametrize("cursor", [("b", 0), ("a", -1)])
def test_cursor_that_is_no_partition_of_the_request_is_refused(cache, handler, cursor):
    """It names a topic that was not asked for, or a negative partition."""
    of_topics(cache, a=1, b=1)

    assert described(handler, "a", cursor=cursor) == ({"a": ErrorCode.INVALID_REQUEST}, None)


def test_described_partition_has_what_metadata_tells(cache, handler):
    """A leader without the client's listener is none, with an error that says so."""
    cache.update(led_by(2), BROKERS)
    request = DescribeTopicPartitionsRequest()
    context = SimpleNamespace(api_version=0, listener_name="OUTSIDE", received_ms=0)
    (topic,) = asyncio.run(handler.handle_describe_topic_partitions(context, request)).topics
    (partition,) = topic.partitions

    assert (topic.topic_id, topic.is_internal) == (UUID(int=7), False)
    assert ErrorCode.of(partition.error_code) is ErrorCode.LISTENER_NOT_FOUND
    assert (partition.leader_id, partition.leader_epoch) == (-1, 3)
    assert (partition.replica_nodes, partition.isr_nodes) == ([1, 2], [1, 2])
    assert partition.eligible_leader_replicas == partition.last_known_elr == []


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_of_describe_cluster_lists_the_brokers(handler, version):
    """Of ZooKeeper's cluster none is fenced, whether the client asks for such or not."""
    context = SimpleNamespace(api_version=version, listener_name="INSIDE", received_ms=0)
    request = DescribeClusterRequest(include_fenced_brokers=version > 1)
    answer = handler.handle_describe_cluster(context, request)

    assert encode(answer, version)
    assert [(each.broker_id, each.is_fenced) for each in answer.brokers] == [(1, False), (2, False)]


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_of_the_newest_version_has_no_error(handler, version):
    """v13 has an error for the whole request (KIP-1102), which only proxies set."""
    context = SimpleNamespace(api_version=version, listener_name="INSIDE", received_ms=0)
    answer = handler.handle_metadata(context, MetadataRequest(topics=None))

    assert encode(answer, version)
    assert (answer.error_code, [topic.name for topic in answer.topics]) == (0, ["t"])


def test_few_topics_are_created_for_being_named(cache):
    """In a second, whoever names them: a request that names thousands creates the first of them."""
    created = []

    async def create(name):
        created.append(name)

    handler = MetadataHandler(cache, True, create, validate_topic_name, MOST, Slices())
    names = [f"new-{number:03}" for number in range(2 * MAX_CREATIONS_A_SECOND)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    answer = asyncio.run(handler.handle_metadata(INSIDE, request))
    again = handler.handle_metadata(INSIDE, request)

    assert created == names[:MAX_CREATIONS_A_SECOND]
    assert len(answer.topics) == len(again.topics) == len(names)
    later = SimpleNamespace(**{**vars(INSIDE), "received_ms": 1000})
    request.topics = request.topics[-10:]
    asyncio.run(handler.handle_metadata(later, request))
    assert created[MAX_CREATIONS_A_SECOND:] == names[-10:]


@pytest.mark.parametrize("is_all", [True, False])
@pytest.mark.parametrize(
    ("counts", "pauses"),
    [
        ((1, 1, 1), 0),
        ((1, 1, SLICE_PARTITIONS - 3), 0),
        ((SLICE_PARTITIONS - 1, SLICE_PARTITIONS - 1, 1), 2),
        ((SLICE_PARTITIONS,) * 3, 3),
        ((5 * SLICE_PARTITIONS, 1, 1), 5),
    ],
)
def test_topics_of_many_partitions_are_answered_in_slices(cache, handler, counts, pauses, is_all):
    """Others are served between them; the answer is that of one step."""
    of_topics(cache, **dict(zip("abc", counts, strict=True)))
    slices = CountingSlices()
    slow = MetadataHandler(cache, False, None, validate_topic_name, MOST, slices)
    topics = None if is_all else [by_name(topic.name) for topic in cache.topics()]
    request = MetadataRequest(topics=topics)
    answer = slow.handle_metadata(INSIDE, request)

    assert asyncio.iscoroutine(answer) == bool(pauses)
    if asyncio.iscoroutine(answer):
        answer = asyncio.run(answer)
    assert slices.turns == pauses
    parts = {topic.name: topic.partitions for topic in answer.topics}
    assert list(parts) == [topic.name for topic in cache.topics()]
    for topic in cache.topics():
        expected = [(n, state.leader) for n, state in sorted(topic.partitions.items())]
        assert [(it.partition_index, it.leader_id) for it in parts[topic.name]] == expected


@pytest.mark.parametrize(
    ("key", "request_of", "told_of"),
    [
        (
            ApiKey.METADATA,
            MetadataRequest(topics=[MetadataRequestTopic(name="t")]),
            lambda answer: answer.topics[0].error_code == 0 and len(answer.topics[0].partitions),
        ),
        (ApiKey.METADATA, MetadataRequest(topics=None), lambda answer: len(answer.topics)),
        (ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(), lambda answer: len(answer.brokers)),
        (
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]),
            lambda answer: answer.topics[0].error_code == 0 and len(answer.topics[0].partitions),
        ),
    ],
    ids=["one topic", "all topics", "the cluster", "the partitions of a topic"],
)
def test_broker_that_was_told_nothing_yet_does_not_say_that_topics_are_not_there(
    key, request_of, told_of
):
    """A request that comes before the controller's first update is answered after it."""

    async def ask():
        cache = MetadataCache("cluster")

        def until_told():
            return cache.wait_until(lambda: 1 in cache.brokers)

        handler = MetadataHandler(
            cache, False, None, validate_topic_name, MOST, Slices(), until_told
        )
        handle = handler.apis()[key]
        early = asyncio.ensure_future(handle(INSIDE, request_of))
        await asyncio.sleep(0)
        assert not early.done()
        cache.update(led_by(1), BROKERS)
        late = handle(INSIDE, request_of)
        return await early, await late if asyncio.iscoroutine(late) else late

    early, late = asyncio.run(ask())
    assert told_of(early)
    assert early == late


def test_broker_that_no_controller_tells_of_the_cluster_answers_in_the_end():
    """It knows of no topic; whoever asks is not kept for ever."""

    async def give_up():
        return False

    cache = MetadataCache("cluster")
    handler = MetadataHandler(cache, False, None, validate_topic_name, MOST, Slices(), give_up)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    answer = asyncio.run(handler.apis()[ApiKey.METADATA](INSIDE, request))

    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def named(handler, *topics, version=12, **fields):
    """The names in an answer to a request for some topics."""
    context = SimpleNamespace(api_version=version, listener_name="INSIDE", received_ms=0)
    answer = handler.handle_metadata(context, MetadataRequest(topics=list(topics), **fields))
    if asyncio.iscoroutine(answer):
        answer = asyncio.run(answer)
    assert encode(answer, version)
    return {topic.name: ErrorCode.of(topic.error_code) for topic in answer.topics}


def by_name(name):
    return MetadataRequestTopic(name=name)


def test_all_topics_are_an_empty_list_in_version_0_alone(cache, handler):
    """Since then it is none, and null is all."""
    of_topics(cache, a=1)

    assert named(handler, version=0).keys() == {"a", "t"}
    assert named(handler, version=1) == {}
    assert named(handler, by_name("a"), version=0).keys() == {"a"}


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("name", ["t", None])
def test_older_request_by_ids_is_refused(handler, version, name):
    """Its version has a field for the id, and no answer without a name could be encoded."""
    by_id = MetadataRequestTopic(name=name, topic_id=UUID(int=9))
    refused = ErrorCode.INVALID_REQUEST

    assert named(handler, by_id, by_name("t"), version=version) == dict.fromkeys(
        (name or "", "t"), refused
    )


def test_topic_is_found_by_its_id(handler):
    """One that is not known is told by the id alone."""
    wanted = [MetadataRequestTopic(name=None, topic_id=UUID(int=each)) for each in (7, 9)]

    assert named(handler, *wanted) == {"t": ErrorCode.NONE, None: ErrorCode.UNKNOWN_TOPIC_ID}


@pytest.mark.parametrize(
    ("version", "allowed", "creates"), [(3, False, True), (4, False, False), (4, True, True)]
)
def test_topic_is_created_where_its_reader_allows_it(cache, version, allowed, creates):
    """Before version 4 a reader cannot say; one that is asked for by an id is not made."""
    created = []

    async def create(name):
        created.append(name)

    handler = MetadataHandler(cache, True, create, validate_topic_name, MOST, Slices())
    with_id = MetadataRequestTopic(name="other", topic_id=UUID(int=9))
    topics = [by_name("t"), by_name("new")]
    named(handler, *topics, version=version, allow_auto_topic_creation=allowed)
    named(handler, with_id, version=12)

    assert created == ["new"] * creates


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_topic_that_cannot_be_created_has_the_reason(cache, failure, error):
    """Where another client was faster the topic will soon be there, and its reader asks again."""

    async def create(name):
        raise KafkaError(failure)

    handler = MetadataHandler(cache, True, create, validate_topic_name, MOST, Slices())

    assert named(handler, by_name("new")) == {"new": error}


@pytest.mark.parametrize(("name", "is_internal"), [("t", False), ("__consumer_offsets", True)])
@pytest.mark.parametrize("is_there", [True, False])
def test_internal_topics_are_marked(cache, handler, name, is_internal, is_there):
    """Clients that subscribe to a pattern leave them out."""
    if is_there:
        state = LeaderAndIsr(1, 3, (1,), 4)
        tp = TopicPartition(name, 0)
        cache.update([PartitionState(tp, UUID(int=5), 1, state, (1,))], BROKERS)
    else:
        cache.update([], BROKERS, ["t"])
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])
    (topic,) = asyncio.run(handler.handle_describe_topic_partitions(INSIDE, request)).topics
    assert topic.is_internal is is_internal
    if is_there:
        answer = handler.handle_metadata(INSIDE, MetadataRequest(topics=[by_name(name)]))
        assert [each.is_internal for each in answer.topics] == [is_internal]


def test_replicas_on_dead_brokers_and_failed_disks_are_offline(cache, handler):
    """An administrator sees which of them have to come back."""
    state = LeaderAndIsr(1, 3, (1,), 4)
    tp = TopicPartition("t", 0)
    cache.update([PartitionState(tp, UUID(int=7), 1, state, (1, 2, 3), False, (2,))], BROKERS)
    answer = handler.handle_metadata(INSIDE, MetadataRequest(topics=[by_name("t")]))
    (partition,) = answer.topics[0].partitions

    assert partition.replica_nodes == [1, 2, 3]
    assert partition.offline_replicas == [2, 3]
