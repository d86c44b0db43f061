"""Fetch requests: limits, rights, quotas, old readers, and what the answer says of partitions."""

from __future__ import annotations

from collections.abc import Coroutine
from itertools import pairwise
from types import SimpleNamespace
from uuid import UUID

import pytest
from apis_world import Context

from ottla.errors import ErrorCode, KafkaError
from ottla.log.leader_epoch_cache import EpochEntry
from ottla.log.transaction_index import AbortedTxn
from ottla.network.connection import CLOSING
from ottla.network.request_context import NO_QUOTA, RequestQuota
from ottla.protocol.fetch import (
    LAST_VERSION_WITH_NAMES,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from ottla.protocol.message import encode
from ottla.protocol.produce import LeaderIdAndEpoch, NodeEndpoint
from ottla.record.batch_builder import build_batch
from ottla.replication.delayed_fetch import DelayedFetch
from ottla.replication.replica_manager import ReplicaManager
from ottla.replication.replica_requests import FetchParams, FetchPartitionResult
from ottla.runtime import FileRegion
from ottla.server.fetch_session import FetchSessionCache
from ottla.server.handlers import fetch as fetch_module
from ottla.server.handlers.fetch import FetchHandler
from ottla.structs import CONSUMER_REPLICA_ID, NO_UUID, IsolationLevel, TopicPartition
from ottla.testing import MemoryDisk, mock_runtime

ID, UNKNOWN_ID = UUID(int=7), UUID(int=8)
LIMITS = FetchParams(CONSUMER_REPLICA_ID, 0, 0, 0, IsolationLevel.READ_UNCOMMITTED)
OPERATION = DelayedFetch(LIMITS, dict, dict, frozenset())
BATCH = build_batch([(1000, b"k", b"value", ())])


def stored(data=BATCH):
    """A region of a file with these bytes."""
    file = MemoryDisk().open("/segment", create=True)
    file.pwrite(data, 0)
    return FileRegion(file, 0, len(data))


class Quota(RequestQuota):
    """A client that may read a number of bytes, once."""

    max_fetch_bytes = 1_000

    def __init__(self, allowed=10**9):
        self.allowed = allowed
        self.is_exempt = False
        self.asked = []

    def exempt(self):
        self.is_exempt = True

    def admits_fetch(self, size):
        self.asked.append(size)
        return size <= self.allowed


class World(ReplicaManager):
    """A broker that has topics t and u, with one batch in each partition that is asked for."""

    def __init__(self, *, fetch_max_bytes=5_000, may_read=None):
        self.runtime = mock_runtime()
        self.partitions = {}
        self.configs = {}
        for name in "tu":
            config = self.configs[name] = SimpleNamespace(
                compression_type="producer",
                message_downconversion_enable=True,
                max_message_bytes=1_000,
            )
            for index in range(10):
                self.partitions[TopicPartition(name, index)] = config
        self.results = {}
        self.asked = []
        self.sliced = 0
        self.sessions = FetchSessionCache(self.runtime, 10, {ID: "t"}.get, {2, 3}.__contains__)
        self.handler = FetchHandler(self, self.sessions, self, fetch_max_bytes, may_read)
        self.quota = NO_QUOTA
        self.waits, self.closed = [], []

    def fetch_records(self, params, partitions, respond):
        self.params = params
        self.asked = [each.topic_partition for each in partitions]
        respond(
            {
                each.key: self.results.get(each.topic_partition)
                or FetchPartitionResult(
                    ErrorCode.NONE,
                    high_watermark=9,
                    last_stable_offset=8,
                    log_start_offset=2,
                    records=stored(),
                )
                for each in partitions
                if self.results.get(each.topic_partition, self) is not None
            }
        )
        return OPERATION

    @property
    def reads(self):
        return self

    def read(self, params, requests, is_first):
        self.sliced += 1
        found = {}
        self.fetch_records(params, requests, found.update)
        return found

    def answer(self, params, requests, respond, results):
        respond(results)

    def log_config(self, topic_partition):
        return self.partitions.get(topic_partition)

    def find(self, topic_partition, listener_name, endpoints):
        """Broker 3 leads everything."""
        assert listener_name == "PLAINTEXT"
        endpoints[3] = NodeEndpoint(node_id=3, host="three", port=9092)
        return LeaderIdAndEpoch(leader_id=3, leader_epoch=5)

    def ask(self, body, version=12):
        """The answer, which must have bytes in the version."""
        context = Context(version)
        context.quota, context.waits, context.closed = self.quota, self.waits, self.closed
        answer = self.handler.handle_fetch(context, body)
        if isinstance(answer, Coroutine):
            answer = self.runtime.scheduler.run(answer)
        self.runtime.scheduler.run_ready()
        answer = answer or (context.answers.pop() if context.answers else None)
        if answer is not None:
            encode(answer, version)
        return answer

    def fetch(self, *wanted, version=12, topic_id=ID, **fields):
        named_by = topic_id if version > LAST_VERSION_WITH_NAMES else NO_UUID
        return self.ask(request(*wanted, topic_id=named_by, **fields), version)


def request(*wanted, topic_id, **fields):
    """Topics by name with the numbers of their partitions; t's 0 unless named."""
    fields = {"max_bytes": 10_000, "min_bytes": 1, "max_wait_ms": 500, **fields}
    topics = [
        FetchTopic(
            topic=name,
            topic_id=topic_id,
            partitions=[FetchPartition(partition=i, partition_max_bytes=1_000) for i in indexes],
        )
        for name, indexes in wanted or [("t", [0])]
    ]
    return FetchRequest(topics=topics, **fields)


def errors(answer):
    return {
        (topic.topic, each.partition_index): each.error_code
        for topic in answer.responses
        for each in topic.partitions
    }


def the_only(answer):
    ((data,),) = (topic.partitions for topic in answer.responses)
    return data


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("version", range(19))
def test_records_are_answered_in_every_version(world, version):
    """A request that waits for data ends with its connection."""
    data = the_only(world.fetch(version=version))

    assert (data.error_code, data.partition_index, data.high_watermark) == (0, 0, 9)
    assert (data.last_stable_offset, data.log_start_offset) == (8, 2)
    assert bytes(data.records if version < 4 else data.records.read())
    assert world.waits == [OPERATION]
    assert world.closed == []


def test_partitions_are_grouped_by_their_topics(world):
    """In the order in which they were read, without a session too."""
    answer = world.fetch(("t", [0, 1]), ("u", [2]), ("t", [3]))

    assert [(t.topic, [p.partition_index for p in t.partitions]) for t in answer.responses] == [
        ("t", [0, 1]),
        ("u", [2]),
        ("t", [3]),
    ]
    assert world.fetch(session_epoch=0).session_id > 0


def test_session_that_is_not_known_is_an_error_of_the_whole(world):
    """Nothing is read."""
    answer = world.fetch(session_id=5, session_epoch=1)

    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (answer.session_id, world.asked, world.waits) == (0, [], [])


@pytest.mark.parametrize(
    ("fields", "version", "expected"),
    [
        ({"max_bytes": 10_000, "min_bytes": 1}, 11, (-1, 1, 5_000, True)),
        ({"max_bytes": 10_000, "min_bytes": 1}, 10, (-1, 1, 5_000, False)),
        ({"max_bytes": 4_000, "min_bytes": 4_500}, 11, (-1, 4_000, 4_000, True)),
        ({"replica_id": 2, "max_bytes": 10_000}, 11, (2, 1, 10_000, False)),
        ({"replica_id": 0, "max_bytes": 10_000}, 14, (0, 1, 10_000, False)),
        ({"replica_id": -2}, 11, (-1, 1, 5_000, True)),
        ({"replica_state": None}, 15, (-1, 1, 5_000, True)),
        ({"replica_state": ReplicaState(replica_id=2, replica_epoch=4)}, 15, (2, 1, 10_000, False)),
    ],
)
def test_limits_are_those_of_the_reader_and_of_the_broker(world, fields, version, expected):
    """fetch.max.bytes limits consumers only, which may read from followers if they know of them."""
    world.fetch(version=version, **fields)
    params = world.params

    assert expected == (
        params.replica_id,
        params.min_bytes,
        params.max_bytes,
        params.may_read_from_follower,
    )
    assert params.max_wait_ms == 500
    assert params.replica_epoch == (4 if fields.get("replica_state") else -1)


@pytest.mark.parametrize(
    ("level", "isolation"),
    [(0, IsolationLevel.READ_UNCOMMITTED), (1, IsolationLevel.READ_COMMITTED), (2, 0)],
)
def test_only_the_committed_is_read_where_the_reader_wants_it(world, level, isolation):
    """Its rack is known to whoever chooses a replica for it."""
    world.fetch(isolation_level=level, rack_id="east")

    assert (world.params.isolation, world.params.client_rack) == (isolation, "east")


def test_what_a_result_says_stands_in_the_answer(world):
    """Null aborted transactions are not the same as none."""
    world.results[TopicPartition("t", 0)] = FetchPartitionResult(
        ErrorCode.NONE,
        aborted_transactions=[AbortedTxn(7, 3, 5, 6)],
        diverging_epoch=EpochEntry(epoch=4, start_offset=11),
        preferred_read_replica=2,
    )
    answer = world.fetch(("t", [0, 1]))
    first, second = answer.responses[0].partitions

    assert [(a.producer_id, a.first_offset) for a in first.aborted_transactions] == [(7, 3)]
    assert (first.diverging_epoch.epoch, first.diverging_epoch.end_offset) == (4, 11)
    assert (first.preferred_read_replica, first.records) == (2, b"")
    assert (second.aborted_transactions, second.diverging_epoch) == (None, None)
    assert second.preferred_read_replica == -1


def test_topic_is_unknown_by_what_the_reader_calls_it(world):
    """A partition that is missing from a known topic is none of an unknown id."""
    missing = FetchPartitionResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for name in ("t", f"(topic id {UNKNOWN_ID})"):
        world.results[TopicPartition(name, 0)] = missing

    found = {
        (version, topic_id): the_only(world.fetch(version=version, topic_id=topic_id)).error_code
        for version in (12, 13)
        for topic_id in (ID, UNKNOWN_ID)
    }
    assert found == {
        (12, ID): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (12, UNKNOWN_ID): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (13, ID): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (13, UNKNOWN_ID): ErrorCode.UNKNOWN_TOPIC_ID,
    }


@pytest.mark.parametrize("version", [15, 16])
@pytest.mark.parametrize(
    ("error", "names_leader"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.OFFSET_OUT_OF_RANGE, False),
    ],
)
def test_reader_that_should_ask_elsewhere_is_told_the_leader(world, version, error, names_leader):
    """Since version 16, with the leader's address."""
    world.results[TopicPartition("t", 0)] = FetchPartitionResult(error)
    answer = world.fetch(version=version)
    data = the_only(answer)

    assert data.error_code == error
    is_told = names_leader and version == 16
    assert data.current_leader == (
        LeaderIdAndEpoch(leader_id=3, leader_epoch=5) if is_told else None
    )
    assert [node.host for node in answer.node_endpoints] == ["three"] * is_told


# Rights


def may_read(context, topic):
    """Everybody may read t alone."""
    return topic == "t"


@pytest.mark.parametrize("version", [3, 9, 12])
def test_topic_that_may_not_be_read_is_refused(version):
    """The others are read; a follower has been asked for its rights before."""
    world = World(may_read=may_read)
    answer = world.fetch(("t", [0]), ("u", [0, 1]), version=version)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    assert errors(answer) == {("t", 0): 0, ("u", 0): denied, ("u", 1): denied}
    assert world.asked == [("t", 0)]
    world.fetch(("u", [0]), version=version, replica_id=2)
    assert world.asked == [("u", 0)]


def test_topic_of_an_unknown_id_needs_no_right():
    """Its name is not known, and no line of the log would say anything."""
    asked = []
    world = World(may_read=lambda context, topic: asked.append(topic))
    world.fetch(version=13, topic_id=UNKNOWN_ID)

    assert asked == []


@pytest.mark.parametrize("version", [4, 9, 12, 13])
@pytest.mark.parametrize("count", [2, 3, 4, 9])
def test_rights_to_very_many_topics_are_asked_in_slices(version, count, monkeypatch):
    """Each once, and by the same rules; those of a session, too, that the request does not name."""
    monkeypatch.setattr(fetch_module, "ASKED_AT_ONCE", 2)
    asked = []

    def ask(context, topic):
        asked.append(topic)
        return topic == "t"

    world = World(may_read=ask)
    is_by_id = version > LAST_VERSION_WITH_NAMES
    names = ["t"] if is_by_id else [f"u{number}" for number in range(count - 1)] + ["t"]
    wanted = [("t", [number]) for number in range(count)] if is_by_id else [(n, [0]) for n in names]
    answer = world.fetch(*wanted, version=version)

    assert sorted(asked) == sorted(names)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    expected = {(name, index): 0 if name == "t" else denied for name, (index,) in wanted}
    assert errors(answer) == expected
    assert {each.topic for each in world.asked} == {"t"}


@pytest.mark.parametrize("version", [7, 12])
def test_rights_to_the_topics_of_a_session_are_asked_in_slices(version, monkeypatch):
    """Also where the request names none of them: others are served between the slices."""
    monkeypatch.setattr(fetch_module, "ASKED_AT_ONCE", 4)
    monkeypatch.setattr(fetch_module, "RIGHTS_AT_ONCE", 2)
    asked, others = [], [0]

    def ask(context, topic):
        asked.append(topic)
        world.runtime.scheduler.call_soon(lambda: others.append(len(asked)))
        return topic != "u"

    world = World(may_read=ask)
    wanted = [("t", [0]), ("u", [0]), *((f"v{number}", [0]) for number in range(9))]
    first = world.fetch(*wanted, version=version, session_epoch=0)
    session = {"session_id": first.session_id, "session_epoch": 1}
    for fetch in (lambda: None, lambda: world.fetch(("w", [0]), version=version, **session)):
        fetch()
        assert len(asked) == len(set(asked)) >= len(wanted)
        assert max(later - earlier for earlier, later in pairwise(others)) == 2
        asked.clear()
        others[:] = [0]

    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert {name for (name, _), error in errors(first).items() if error == denied} == {"u"}


def test_reader_that_has_gone_while_its_rights_were_asked_begins_nothing(monkeypatch):
    """A session would be left of it."""
    monkeypatch.setattr(fetch_module, "ASKED_AT_ONCE", 1)
    world = World(may_read=may_read)
    context = Context(12)
    context.connection.muted |= CLOSING
    topics = [FetchTopic(topic=name, partitions=[FetchPartition(partition=0)]) for name in "tu"]
    answer = world.handler.handle_fetch(context, FetchRequest(topics=topics, session_epoch=0))
    task = world.runtime.scheduler.spawn(answer, "fetch")
    world.runtime.scheduler.run_ready()

    assert task.result() is None
    assert len(world.sessions) == 0
    assert world.asked == []


# Sessions keep no names without end


@pytest.fixture
def few(monkeypatch):
    """More than two useless partitions are too many; more than two are begun, and more than four
    read, in slices."""
    monkeypatch.setattr(fetch_module, "MAX_USELESS", 2)
    monkeypatch.setattr(fetch_module, "READ_AT_ONCE", 4)
    monkeypatch.setattr(fetch_module, "ASKED_AT_ONCE", 2)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    ("wanted", "is_kept"),
    [
        ([("t", [0, 1, 2])], True),
        ([("t", [0]), ("gone", [0, 1])], True),
        ([("gone", [0, 1, 2])], False),
        ([("gone", [0, 1]), ("u", [0])], False),
        ([("t", [0, 1, 2]), ("gone", [0])], True),
    ],
)
def test_session_does_not_keep_many_partitions_that_are_of_no_use(wanted, is_kept):
    """Unknown ones, and such that may not be read; they are answered all the same."""
    world = World(may_read=may_read)
    answer = world.fetch(*wanted, session_epoch=0)

    assert (answer.session_id > 0) == is_kept
    assert len(world.sessions) == int(is_kept)
    assert len(errors(answer)) == sum(len(indexes) for _, indexes in wanted)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("version", [4, 9, 12, 13, 17])
def test_consumer_with_very_many_partitions_is_answered_in_slices(version):
    """All of them, and by the same rules; a session goes on with them."""
    world = World(may_read=may_read)
    world.quota = Quota(allowed=20 * len(BATCH))
    wanted = [("t", [*range(10)])] if version > LAST_VERSION_WITH_NAMES else WIDE
    answer = world.fetch(*wanted, version=version)

    assert errors(answer) == {
        (name, index): 0 if name == "t" else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for name, indexes in wanted
        for index in indexes
    }
    assert world.sliced == 1
    assert world.quota.asked == [10 * len(BATCH)]


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("version", [7, 12, 13])
def test_session_may_have_very_many_partitions(world, version):
    """Each of its fetches is read in slices then."""
    answer = world.fetch(("t", [*range(10)]), version=version, session_epoch=0)
    session = {"session_id": answer.session_id, "session_epoch": 1}
    again = world.fetch(version=version, **session)

    assert answer.session_id > 0
    assert errors(again) == errors(answer)
    assert world.sliced == 2


WIDE = [("t", [0, 1, 2]), ("u", [*range(10)]), ("t", [*range(3, 10)])]


@pytest.mark.usefixtures("few")
def test_wide_answer_has_no_more_records_than_the_quota(world):
    """Nor what an older reader cannot read."""
    world.quota = Quota(allowed=0)
    answer = world.fetch(*WIDE)
    assert not any(each.records for topic in answer.responses for each in topic.partitions)
    world.quota = NO_QUOTA
    world.configs["u"].compression_type = "zstd"
    assert errors(world.fetch(*WIDE, version=9)) == {
        (name, index): ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if name == "u" else 0
        for name, indexes in WIDE
        for index in indexes
    }


@pytest.mark.usefixtures("few")
def test_very_many_partitions_are_for_readers_of_batches_and_followers(world):
    """Who says to be a broker that is not there is no follower; message sets are converted."""
    with pytest.raises(KafkaError, match="for replica 4, which is no broker"):
        world.fetch(*WIDE, replica_id=4, session_epoch=0)
    assert len(world.sessions) == 0
    with pytest.raises(KafkaError, match="a Fetch v3 of 20 partitions"):
        world.fetch(*WIDE, version=3)
    assert len(errors(world.fetch(*WIDE, replica_id=2))) == 20
    assert world.sliced == 0


# Quotas


def test_quota_bounds_what_a_consumer_reads_at_once(world):
    """It waits for no more than it may have."""
    world.quota = Quota()
    world.fetch(min_bytes=2_000)

    assert (world.params.max_bytes, world.params.min_bytes) == (1_000, 1_000)
    assert world.quota.asked == [len(BATCH)]
    world.fetch(max_bytes=300, min_bytes=200)
    assert (world.params.max_bytes, world.params.min_bytes) == (300, 200)


def test_quota_does_not_hold_followers(world):
    """The cluster would fall behind with its clients."""
    world.quota = Quota(allowed=0)
    data = the_only(world.fetch(replica_id=2))

    assert world.quota.is_exempt
    assert (world.quota.asked, data.records.size) == ([], len(BATCH))
    assert world.params.max_bytes == 10_000


@pytest.mark.parametrize("version", [3, 9, 12])
def test_consumer_over_its_quota_is_answered_without_records(world, version):
    """It is told when to ask again; what was aborted is of no use to it."""
    aborted = AbortedTxn(7, 3, 5, 6)
    world.results[TopicPartition("t", 1)] = FetchPartitionResult(
        ErrorCode.NONE, records=stored(), aborted_transactions=[aborted]
    )
    world.quota = Quota(allowed=2 * len(BATCH) - 1)
    first, second = world.fetch(("t", [0, 1]), version=version).responses[0].partitions

    assert (first.records, second.records) == (b"", b"")
    assert (first.aborted_transactions, second.aborted_transactions) == (None, [])
    assert world.quota.asked == [2 * len(BATCH)]
    world.quota = Quota(allowed=2 * len(BATCH))
    first, _ = world.fetch(("t", [0, 1]), version=version).responses[0].partitions
    assert first.records


# Old readers


@pytest.mark.parametrize("version", [3, 9, 10])
def test_topic_with_zstd_is_refused_to_readers_that_do_not_know_it(world, version):
    """Since version 10 they do (KIP-110); what is not here keeps its own error."""
    world.configs["t"].compression_type = "zstd"
    world.results[TopicPartition("t", 1)] = FetchPartitionResult(ErrorCode.OFFSET_OUT_OF_RANGE)
    gone = TopicPartition("gone", 0)
    world.results[gone] = FetchPartitionResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    answer = world.fetch(("t", [0, 1]), ("u", [0]), ("gone", [0]), version=version)

    assert errors(answer) == {
        ("t", 0): 0 if version == 10 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ("t", 1): ErrorCode.OFFSET_OUT_OF_RANGE,
        ("u", 0): 0,
        gone: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    first = answer.responses[0].partitions[0]
    assert bool(first.records) == (version == 10)


@pytest.mark.parametrize(("version", "error"), [(3, ErrorCode.UNSUPPORTED_VERSION), (4, 0)])
def test_topic_that_is_not_converted_is_refused_to_readers_of_message_sets(world, version, error):
    """message.downconversion.enable=false (KIP-283); readers of batches need no conversion."""
    world.configs["t"].message_downconversion_enable = False
    answer = world.fetch(("t", [0]), ("u", [0]), version=version)

    assert errors(answer) == {("t", 0): error, ("u", 0): 0}
    assert bool(answer.responses[0].partitions[0].records) == (not error)
    assert world.waits == [OPERATION]


def test_partition_without_a_result_is_left_out_of_an_old_readers_session(world):
    """Incremental answers name those with news alone."""
    session_id = world.fetch(("t", [0, 1]), version=9, session_epoch=0).session_id
    world.results[TopicPartition("t", 1)] = None
    answer = world.ask(FetchRequest(session_id=session_id, session_epoch=1), 9)

    assert errors(answer) == {("t", 0): 0}


def test_conversion_that_fails_closes_the_connection(world, monkeypatch):
    """Its client would wait for ever, and the log says why."""

    def fail(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr("ottla.server.message_set_fetch.down_convert", fail)

    assert world.fetch(version=3) is None
    assert world.closed == ["down-conversion failed: RuntimeError('planted')"]
