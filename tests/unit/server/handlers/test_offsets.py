"""OffsetCommit and OffsetFetch in all their versions."""

from uuid import UUID

import pytest
from apis_world import Context
from group_world import World

from ottla.coordinator.group.registry_offsets import RegistryOffsets
from ottla.errors import ErrorCode
from ottla.protocol.consumer_protocol import ConsumerProtocolSubscription
from ottla.protocol.message import encode_versioned
from ottla.protocol.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.registry.embedded import EmbeddedRegistry
from ottla.server.handlers.offsets import OffsetHandlers
from ottla.structs import NO_UUID, TopicPartition

UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
UNKNOWN_ID = ErrorCode.UNKNOWN_TOPIC_ID
TOPIC_ID = UUID(int=7)


class Broker:
    """The handlers over a coordinator; the topic "t" has two partitions."""

    def __init__(self):
        self.world = World()
        existing = {TopicPartition("t", 0): TOPIC_ID, TopicPartition("t", 1): TOPIC_ID}
        self.run = self.world.runtime.scheduler.run
        self.registry = EmbeddedRegistry(self.world.runtime, "/data/registry")
        self.run(self.registry.start())
        self.handlers = OffsetHandlers(
            self.world.coordinator,
            self.world.runtime.clock,
            existing.get,
            {TOPIC_ID: "t"}.get,
            RegistryOffsets(self.registry, metadata_max_bytes=4096),
            self.world.runtime.slices,
        )

    def commit(self, version, *partitions, topic="t", **fields):
        """Error codes by partition."""
        topics = [OffsetCommitRequestTopic(name=topic, partitions=list(partitions))]
        context = Context(version)
        body = OffsetCommitRequest(**{"group_id": "g", "topics": topics, **fields})
        answer = self.handlers.handle_offset_commit(context, body)
        if answer is not None:
            context.respond(self.run(answer))
        return [
            (topic.name, partition.partition_index, partition.error_code)
            for topic in context.answer.topics
            for partition in topic.partitions
        ]

    def fetch(self, version, partitions, group="g", require_stable=False):
        """Top-level error, and (partition, offset, epoch, metadata, error) of each partition."""
        body = OffsetFetchRequest(group_id=group, require_stable=require_stable)
        topic_class = OffsetFetchRequestTopic if version < 8 else OffsetFetchRequestTopics
        topics = partitions and [topic_class(name="t", partition_indexes=partitions)]
        if version < 8:
            body.topics = topics
        else:
            body.groups = [OffsetFetchRequestGroup(group_id=group, topics=topics)]
        context = Context(version)
        answer = self.handlers.handle_offset_fetch(context, body)
        context.respond(self.run(answer) if version == 0 else answer)
        answer = context.answer if version < 8 else context.answer.groups[0]
        return answer.error_code, [
            (
                p.partition_index,
                p.committed_offset,
                p.committed_leader_epoch,
                p.metadata,
                p.error_code,
            )
            for topic in answer.topics
            for p in topic.partitions
        ]

    def stored(self):
        """The offset of the first partition as the coordinator keeps it."""
        key = TopicPartition("t", 0)
        return self.world.coordinator.fetch_offsets("g", [key])[1][key]


@pytest.fixture
def broker():
    """A broker with a loaded offsets partition."""
    return Broker()


def offset(partition, value, **fields):
    """One partition of a commit."""
    return OffsetCommitRequestPartition(partition_index=partition, committed_offset=value, **fields)


def test_version_zero_keeps_offsets_in_the_registry(broker):
    """Clients and tools of 0.8 look for them there; later versions do not see them."""
    assert broker.commit(0, offset(0, 5, committed_metadata="note"), offset(1, 6)) == [
        ("t", 0, 0),
        ("t", 1, 0),
    ]
    assert broker.commit(0, offset(0, 7)) == [("t", 0, 0)]

    assert broker.run(broker.registry.get("/consumers/g/offsets/t/0"))[0] == b"7"
    assert broker.fetch(0, [0, 1]) == (0, [(0, 7, -1, "", 0), (1, 6, -1, "", 0)])
    assert broker.fetch(1, [0]) == (0, [(0, -1, -1, "", 0)])


def test_version_zero_says_what_it_cannot_keep_or_find(broker):
    """As Kafka's brokers answered: an offset that is not there is an unknown partition."""
    long = offset(0, 5, committed_metadata="x" * 5000)
    assert broker.commit(0, long, offset(7, 1)) == [
        ("t", 0, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("t", 7, UNKNOWN_TOPIC),
    ]
    assert broker.commit(0, offset(0, 5), group_id="../g") == [("t", 0, ErrorCode.INVALID_GROUP_ID)]
    assert broker.fetch(0, [0, 7]) == (
        0,
        [(0, -1, -1, "", UNKNOWN_TOPIC), (7, -1, -1, "", UNKNOWN_TOPIC)],
    )
    broker.commit(0, offset(0, 5))
    broker.run(broker.registry.set("/consumers/g/offsets/t/0", b"five"))
    assert broker.fetch(0, [0])[1][0][1:] == (-1, -1, "", ErrorCode.UNKNOWN_SERVER_ERROR)


def by_id(topic_id, *partitions):
    """A topic of a commit in the version with ids."""
    return OffsetCommitRequestTopic(topic_id=topic_id, partitions=list(partitions))


def test_topics_have_their_ids_since_version_ten(broker):
    """A topic that is not there, any longer or not yet, is refused beside the others (KIP-848)."""
    gone, other = UUID(int=8), UUID(int=9)
    context = Context(10)
    topics = [by_id(gone, offset(0, 4)), by_id(TOPIC_ID, offset(0, 5), offset(7, 1))]
    topics += [by_id(other, offset(0, 6)), by_id(NO_UUID, offset(0, 3))]
    body = OffsetCommitRequest(group_id="g", topics=topics)
    broker.handlers.handle_offset_commit(context, body)

    assert [
        (topic.topic_id, [(p.partition_index, p.error_code) for p in topic.partitions])
        for topic in context.answer.topics
    ] == [
        (gone, [(0, UNKNOWN_ID)]),
        (TOPIC_ID, [(0, 0), (7, UNKNOWN_TOPIC)]),
        (other, [(0, UNKNOWN_ID)]),
        (NO_UUID, [(0, UNKNOWN_ID)]),
    ]
    assert broker.stored().offset == 5
    assert broker.stored().topic_id == TOPIC_ID


@pytest.mark.parametrize("is_all", [False, True])
def test_offsets_are_looked_up_by_id_since_version_ten(broker, is_all):
    """Those of all topics have the ids as well; an unknown id is an error of its own."""
    broker.commit(9, offset(0, 5), offset(1, 6))
    gone = UUID(int=8)
    wanted = [
        OffsetFetchRequestTopics(topic_id=gone, partition_indexes=[0, 1]),
        OffsetFetchRequestTopics(topic_id=TOPIC_ID, partition_indexes=[1, 9]),
    ]
    group = OffsetFetchRequestGroup(group_id="g", topics=None if is_all else wanted)
    context = Context(10)
    body = OffsetFetchRequest(groups=[group])
    context.respond(broker.handlers.handle_offset_fetch(context, body))
    (answer,) = context.answer.groups
    lines = [
        (topic.topic_id, p.partition_index, p.committed_offset, p.error_code)
        for topic in answer.topics
        for p in topic.partitions
    ]

    assert answer.error_code == 0
    assert lines == (
        [(TOPIC_ID, 0, 5, 0), (TOPIC_ID, 1, 6, 0)]
        if is_all
        else [
            (TOPIC_ID, 1, 6, 0),
            (TOPIC_ID, 9, -1, 0),
            (gone, 0, -1, UNKNOWN_ID),
            (gone, 1, -1, UNKNOWN_ID),
        ]
    )


@pytest.mark.parametrize("version", range(1, 10))
def test_commit_is_found_again_in_every_version(broker, version):
    """What the coordinator keeps is there for each version that asks it."""
    assert broker.commit(version, offset(0, 5, committed_metadata="note")) == [("t", 0, 0)]
    assert broker.fetch(version, [0]) == (0, [(0, 5, -1, "note", 0)])


@pytest.mark.parametrize("version", range(1, 10))
def test_nothing_committed_is_minus_one_without_error(broker, version):
    """An unknown group and an unknown partition look alike."""
    assert broker.fetch(version, [0, 7], group="nobody") == (
        0,
        [(0, -1, -1, "", 0), (7, -1, -1, "", 0)],
    )


@pytest.mark.parametrize("version", range(2, 10))
def test_null_topics_ask_for_everything(broker, version):
    """Since version 2 one need not know what was committed (KIP-88)."""
    broker.commit(6, offset(0, 5, committed_leader_epoch=3), offset(1, 6))

    assert broker.fetch(version, None) == (0, [(0, 5, 3, "", 0), (1, 6, -1, "", 0)])


def test_no_topics_ask_for_nothing(broker):
    """An empty list is not null."""
    broker.commit(2, offset(0, 5))

    assert broker.fetch(5, []) == (0, [])


def test_offsets_of_ended_transactions_are_stable(broker):
    """Only those of open ones are not; test_transactions.py has these."""
    broker.commit(2, offset(0, 5))

    assert broker.fetch(7, [0], require_stable=True) == (0, [(0, 5, -1, "", 0)])


def test_several_groups_are_asked_at_once(broker):
    """Each group of version 8 has its own answer, in the order of the request."""
    broker.commit(2, offset(0, 5))
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=g, topics=topics) for g in ("other", "g")]
    answer = broker.handlers.handle_offset_fetch(Context(8), OffsetFetchRequest(groups=groups))

    found = [(g.group_id, g.topics[0].partitions[0].committed_offset) for g in answer.groups]
    assert found == [("other", -1), ("g", 5)]


@pytest.mark.parametrize("version", range(1, 10))
def test_error_of_a_fetch_stands_where_the_version_has_room(broker, version):
    """Before version 2 every partition has it, then the answer, since version 8 the group."""
    broker.world.coordinator.on_resignation(0)
    moved = ErrorCode.NOT_COORDINATOR

    expected = (0, [(0, -1, -1, "", moved)]) if version < 2 else (moved, [])
    assert broker.fetch(version, [0]) == expected


@pytest.mark.parametrize("version", range(1, 10))
def test_unknown_topic_fails_alone(broker, version):
    """The partitions that exist are committed."""
    errors = broker.commit(version, offset(7, 1), offset(0, 5))

    assert errors == [("t", 7, UNKNOWN_TOPIC), ("t", 0, 0)]
    assert broker.stored().offset == 5
    assert broker.stored().topic_id == TOPIC_ID
    assert broker.commit(version, offset(0, 1), topic="u") == [("u", 0, UNKNOWN_TOPIC)]


def test_partition_that_is_named_twice_has_its_last_offset(broker):
    """Each mention has its result."""
    assert broker.commit(2, offset(0, 1), offset(0, 2)) == [("t", 0, 0)] * 2
    assert broker.stored().offset == 2


def test_commit_of_a_stranger_is_refused(broker):
    """A member must be one, and in the present generation."""
    member = broker.world.stable_group(None)[0]
    generation = {"generation_id_or_member_epoch": 1}

    refused = broker.commit(9, offset(0, 1), member_id="stranger", **generation)
    assert refused == [("t", 0, ErrorCode.UNKNOWN_MEMBER_ID)]
    assert broker.commit(9, offset(0, 1), member_id=member, **generation) == [("t", 0, 0)]


def test_long_metadata_is_refused_per_partition(broker):
    """offset.metadata.max.bytes is 4096."""
    errors = broker.commit(2, offset(0, 1, committed_metadata="x" * 4_097), offset(1, 2))

    assert errors == [("t", 0, ErrorCode.OFFSET_METADATA_TOO_LARGE), ("t", 1, 0)]


def test_version_1_may_bring_its_own_time(broker):
    """Without one, the broker's clock says when the commit was made."""
    now_ms = broker.world.runtime.clock.now_ms()
    broker.commit(1, offset(0, 1, commit_timestamp=123))
    assert broker.stored().commit_timestamp_ms == 123
    broker.commit(1, offset(0, 1))
    assert broker.stored().commit_timestamp_ms == now_ms


def test_retention_time_of_versions_2_to_4_is_kept(broker):
    """The expiry counts from the commit; -1 leaves it to the broker."""
    now_ms = broker.world.runtime.clock.now_ms()
    broker.commit(2, offset(0, 1), retention_time_ms=1_000)
    assert broker.stored().expire_timestamp_ms == now_ms + 1_000
    broker.commit(4, offset(0, 1), retention_time_ms=-1)
    assert broker.stored().expire_timestamp_ms is None


@pytest.mark.parametrize("version", [2, 3, 4])
def test_retention_time_without_end_is_kept_as_long_as_times_go(broker, version):
    """A client may name the largest number that there is."""
    assert broker.commit(version, offset(0, 1), retention_time_ms=2**63 - 1) == [("t", 0, 0)]

    assert broker.stored().expire_timestamp_ms == 2**63 - 1
    assert not broker.world.group().offsets.has_pending


def test_all_apis_have_handlers(broker):
    """The table of the family has OffsetCommit and OffsetFetch."""
    assert sorted(broker.handlers.apis()) == [8, 9, 47]


def delete(broker, *partitions, group="g"):
    """Top-level error, and the error of each partition of "t"."""
    topic = OffsetDeleteRequestTopic(
        name="t",
        partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in partitions],
    )
    context = Context(0)
    broker.handlers.handle_offset_delete(
        context, OffsetDeleteRequest(group_id=group, topics=[topic])
    )
    topics = context.answer.topics
    return context.answer.error_code, [p.error_code for t in topics for p in t.partitions]


def test_deleted_offsets_are_gone_for_good(broker):
    """Deleted offsets stay away after a restart; unknown ones are no error (KIP-496)."""
    broker.commit(2, offset(0, 5), offset(1, 6))
    assert delete(broker, 0, 7) == (0, [0, 0])
    broker.world.start()

    assert broker.world.coordinator.fetch_offsets("g", None)[1] == {
        TopicPartition("t", 1): broker.world.group().offsets.get(TopicPartition("t", 1))
    }


def test_offsets_of_an_unknown_group_cannot_be_deleted(broker):
    """The whole request fails."""
    assert delete(broker, 0, group="nobody") == (ErrorCode.GROUP_ID_NOT_FOUND, [])


def test_group_that_nothing_is_left_of_is_gone(broker):
    """As when its offsets expire."""
    broker.commit(2, offset(0, 5))
    delete(broker, 0)

    assert broker.world.coordinator.manager.group("g") is None


def test_offsets_of_topics_that_are_being_read_stay():
    """Of a group whose members do not say what they read, all do."""
    subscription = encode_versioned(ConsumerProtocolSubscription(topics=["t"]), 0)
    for protocols, expected in (
        ((("range", subscription),), (0, [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC])),
        ((("range", b"?"),), (ErrorCode.NON_EMPTY_GROUP, [])),
    ):
        broker = Broker()
        joining = broker.world.join(protocols=protocols)
        broker.world.end_initial_delay()
        broker.world.stabilize(joining)
        assert delete(broker, 0) == expected
