"""The core of `PartitionReader` and leader epochs: what it tells, and what it notices (KIP-320)."""

from __future__ import annotations

from uuid import UUID

import pytest
from consumer_world import ConsumerWorld, epoch_ends
from mock_kafka import Later, MockCluster
from virtual_thread import VirtualThread

from ottla.clients.consumer.position_validator import LogTruncationError, TopicRecreatedError
from ottla.clients.partition_reader import (
    PartitionReader,
    RangeFetcher,
    ReadUpTo,
    Truncation,
    UnreadRange,
)
from ottla.config.client_config import ConsumerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.fetch import FetchRequest, FetchResponse
from ottla.protocol.leader_epoch import OffsetForLeaderEpochRequest
from ottla.structs import NO_UUID, IsolationLevel, TopicPartition

PARTITION = TopicPartition("pages", 0)


class ReaderWorld(ConsumerWorld):
    """A reader of partition 0, and a leader that knows where epochs end."""

    def __init__(self, runtime, cluster, **settings) -> None:
        super().__init__(runtime, cluster)
        defaults = {"bootstrap.servers": cluster.bootstrap_servers, "default.api.timeout.ms": 3000}
        self.config = ConsumerConfig.parse(defaults, **settings)
        self.reader = runtime.scheduler.run(self.build())

    async def build(self) -> RangeFetcher:
        return RangeFetcher(self.runtime, self.config)

    def read(self, start: int, epoch: int = -1) -> tuple[int, int]:
        """Read one answer from an offset on: where to go on, and the epoch of the last batch."""
        left = UnreadRange(PARTITION, start, 100, IsolationLevel.READ_UNCOMMITTED, epoch)
        chunk = self.run(self.reader.fetch(left))
        return chunk.next_offset, chunk.epoch

    def told(self) -> tuple[int, int]:
        """The epochs in the last fetch: that of the leader, and that of the last batch read."""
        ((p,),) = (topic.partitions for topic in self.cluster[0].sent(FetchRequest)[-1].topics)
        return p.current_leader_epoch, p.last_fetched_epoch

    def ends(self, epoch: int, end_offset: int, error: int = 0) -> None:
        """The leader says that `epoch` ends there, whatever it is asked."""
        self.cluster[0].on(OffsetForLeaderEpochRequest, epoch_ends(epoch, end_offset, error))

    def truncation(self, offset: int, epoch: int) -> Truncation | None:
        """What has become of a log that was read up to an offset in an epoch."""
        position = {PARTITION: ReadUpTo(offset, epoch)}
        return self.run(self.reader.truncations(position)).get(PARTITION)

    def asked(self) -> tuple[int, int]:
        """The epochs in the last question: the one that it is about, and that of the leader."""
        request = self.cluster[0].sent(OffsetForLeaderEpochRequest)[-1]
        ((p,),) = (topic.partitions for topic in request.topics)
        return p.leader_epoch, p.current_leader_epoch


@pytest.fixture
def world(runtime, cluster) -> ReaderWorld:
    """The partition has a leader of epoch 7."""
    cluster.epochs["pages", 0] = 7
    return ReaderWorld(runtime, cluster)


def test_fetch_tells_the_epochs_of_the_leader_and_of_the_last_batch(world):
    """By these a leader notices old metadata, and a log that is another one."""
    world.write("a", epoch=3)
    assert world.read(0) == (1, 3)
    assert world.told() == (7, -1)

    world.write("b", epoch=7)
    assert world.read(1, epoch=3) == (2, 7)
    assert world.told() == (7, 3)


def test_old_fetch_goes_without_the_epoch_of_the_last_batch(world, cluster):
    """Before v12 there is no place for it."""
    cluster[0].versions[ApiKey.FETCH] = (4, 11)
    world.write("a", epoch=3)

    assert world.read(0, epoch=3) == (1, 3)
    assert world.told() == (7, -1)


def test_log_of_a_new_leader_that_parts_from_what_was_read_is_an_error(world, cluster):
    """A reader that went on would mix the records of two logs."""
    for value in "abcd":
        world.write(value, epoch=3)
    cluster[0].on(FetchRequest, world.diverging(3, 2))

    with pytest.raises(LogTruncationError, match="pages-0 was truncated: the position is 4") as e:
        world.read(4, epoch=5)
    assert e.value.divergent_offset == 2


def test_log_that_lacks_only_the_epoch_is_read_on(world, cluster):
    """Compaction has removed the last batch of it; all that is there is as it was."""
    for value in "abc":
        world.write(value, epoch=3)
    cluster[0].on(FetchRequest, world.diverging(3, 2), world.fetch)

    assert world.read(2, epoch=5) == (3, 3)
    assert world.told() == (7, 3)


@pytest.mark.parametrize(
    ("offset", "epoch", "end", "found"),
    [
        (4, 5, (5, 4), None),
        (4, 5, (3, 9), None),
        (4, 5, (3, 2), Truncation(2, 7)),
        (4, 5, (-1, -1), Truncation(None, 7)),
    ],
)
def test_leader_says_whether_its_log_is_the_one_that_was_read(world, offset, epoch, end, found):
    """It is not where the epoch ends before the offset, or is not known at all."""
    world.ends(*end)

    assert world.truncation(offset, epoch) == found
    assert world.asked() == (epoch, 7)


def test_topic_that_was_made_anew_does_not_know_the_epoch(world):
    """Its epochs begin again: it is asked until time is up, as it could be a leader of old."""
    world.ends(-1, -1, error=ErrorCode.UNKNOWN_LEADER_EPOCH)
    before_ms = world.runtime.clock.monotonic_ms()

    assert world.truncation(4, 9) == Truncation(None, 7)
    assert world.asked() == (9, 9)
    assert world.runtime.clock.monotonic_ms() - before_ms >= 3000


def test_old_broker_that_cannot_say_finds_no_truncation(world, cluster):
    """A broker from before KIP-320 is read without the check."""
    cluster[0].versions[ApiKey.OFFSET_FOR_LEADER_EPOCH] = (0, 2)

    assert world.truncation(4, 5) is None


def test_refusal_to_say_is_raised(world):
    """What may not be asked is not taken for good."""
    world.ends(-1, -1, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
        world.truncation(4, 5)


def test_range_is_not_read_on_in_a_topic_that_was_created_again(runtime, cluster):
    """Half of the records would be of one topic, and half of another."""
    cluster.topic_ids["pages"] = UUID(int=1)
    world = ReaderWorld(runtime, cluster)
    world.write("a", epoch=0)
    left = UnreadRange(PARTITION, 0, 100, IsolationLevel.READ_UNCOMMITTED)
    chunk = world.run(world.reader.fetch(left))
    assert chunk.topic_id == UUID(int=1)
    world.write("b", epoch=0)
    assert world.run(world.reader.fetch(chunk.rest_of(left))).next_offset == 2
    cluster.topic_ids["pages"] = UUID(int=2)
    with pytest.raises(TopicRecreatedError, match="created again: the position 1 of pages-0"):
        world.run(world.reader.fetch(chunk.rest_of(left)))

    assert world.run(world.reader.fetch(left)).topic_id == UUID(int=2)


def fetches(cluster) -> int:
    return sum(len(broker.sent(FetchRequest)) for broker in cluster.brokers.values())


@pytest.mark.parametrize(
    ("code", "times", "count"),
    [
        (ErrorCode.OFFSET_NOT_AVAILABLE, 3, 4),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, 3, 4),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1, 2),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 2, None),
        (ErrorCode.OFFSET_OUT_OF_RANGE, 1, 2),
        (ErrorCode.OFFSET_OUT_OF_RANGE, 2, None),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1, None),
    ],
)
def test_fetch_is_repeated_after_what_may_pass(world, cluster, code, times, count):
    """A broker that does not know the topic, or the offset, is believed the second time: it may
    have lost the topic, or have been cut off from its successor."""
    world.write("a", epoch=3)
    cluster[0].on(FetchRequest, *[world.refuse_fetch(code)] * times, world.fetch)
    if count is None:
        with pytest.raises(KafkaError, match="offset 0 of pages-0") as caught:
            world.read(0)
        assert caught.value.error is code
        count = times
    else:
        assert world.read(0) == (1, 3)

    assert fetches(cluster) == count
    assert world.runtime.clock.monotonic_ms() >= 80 * (count - 1)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ],
)
def test_fetch_goes_to_the_leader_that_is_there(runtime, code):
    """The metadata are fetched again before the next try."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 1
    world = ReaderWorld(runtime, cluster)
    world.write("a", epoch=3)

    def move(request, version):
        cluster.leaders["pages", 0] = 1
        return world.fetched(request, {0: code})

    cluster[0].on(FetchRequest, move)

    assert world.read(0) == (1, 3)
    assert len(cluster[0].sent(FetchRequest)) == 1


def test_error_of_a_whole_fetch_names_the_partition(world, cluster):
    """It is raised, as one of the partition is."""
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    cluster[0].on(FetchRequest, FetchResponse(error_code=code))
    with pytest.raises(KafkaError, match="fetch of pages-0") as caught:
        world.read(0)

    assert caught.value.error is code


def test_fetch_may_wait_for_records_beyond_the_request_timeout(runtime, cluster):
    """fetch.max.wait.ms comes on top of request.timeout.ms."""
    settings = {"request_timeout_ms": 1000, "fetch_max_wait_ms": 800}
    settings |= {"session_timeout_ms": 500, "heartbeat_interval_ms": 100}
    world = ReaderWorld(runtime, cluster, **settings)
    world.write("a", epoch=3)
    cluster[0].on(FetchRequest, lambda request, _: Later(1500, world.fetched(request, {})))

    assert world.read(0) == (1, 3)
    assert fetches(cluster) == 1


@pytest.mark.parametrize("version", [12, 13])
def test_topic_is_named_by_its_id_from_version_13_on(runtime, cluster, version):
    """If the metadata have it; a topic without an id may be any."""
    cluster.topic_ids["pages"] = UUID(int=7)
    cluster[0].versions[FetchRequest.api_key] = (4, version)
    world = ReaderWorld(runtime, cluster)
    world.write("a", epoch=3)
    cluster[0].on(FetchRequest, lambda request, _: world.fetched(request, {0: 0}))
    assert world.read(0) == (1, 3)
    (topic,) = cluster[0].sent(FetchRequest)[-1].topics

    assert (topic.topic, topic.topic_id) == (
        ("pages", NO_UUID) if version == 12 else ("", UUID(int=7))
    )


def test_leader_that_does_not_know_the_epoch_yet_is_asked_with_fresh_metadata(world, cluster):
    """Another one may lead by now, in a later epoch."""

    def answer(request, version):
        cluster.epochs["pages", 0] = 9
        ((p,),) = (topic.partitions for topic in request.topics)
        error = ErrorCode.UNKNOWN_LEADER_EPOCH if p.current_leader_epoch < 9 else 0
        return epoch_ends(5, 4, error)

    cluster[0].on(OffsetForLeaderEpochRequest, answer)

    assert world.truncation(4, 5) is None
    assert world.asked() == (5, 9)


def test_closed_reader_has_no_connection(world, cluster, caplog):
    """A closed reader sends no request later either."""
    world.run(world.core.close(world.deadline()))
    world.write("a", epoch=3)
    world.read(0)
    assert cluster[0].connections
    world.call(world.reader.close)
    world.advance(1000)
    before = len(cluster[0].requests)
    assert not cluster[0].connections
    world.advance(3_600_000)

    assert len(cluster[0].requests) == before
    assert caplog.records == []


class ReaderThread(VirtualThread):
    """Keeps what a reader has begun, and notices if it takes longer than the reader waits."""

    def __init__(self, runtime) -> None:
        super().__init__(runtime)
        self.futures: list = []

    def submit(self, call):
        self.futures.append(self.runtime.scheduler.spawn(call, "call of a reader"))
        return self.futures[-1]

    def wait(self, future, limit_ms):
        began_ms = self.runtime.clock.monotonic_ms()
        try:
            return self.runtime.scheduler.run(future)
        finally:
            assert self.runtime.clock.monotonic_ms() - began_ms < limit_ms, "nobody waited for it"


@pytest.fixture
def thread(runtime, monkeypatch) -> ReaderThread:
    thread = ReaderThread(runtime)
    monkeypatch.setattr("ottla.clients.partition_reader.IoThread", lambda name: thread)
    return thread


def test_reader_that_is_left_early_drops_the_fetch_that_is_ahead(world, cluster, thread):
    """At the end of the range there is none."""
    world.write("a", epoch=3)
    world.write("b", epoch=3)
    cluster[0].on(FetchRequest, lambda request, _: first_batch(world.fetched(request, {})))
    with PartitionReader(cluster.bootstrap_servers) as reader:
        views = reader.read(PARTITION, 0, 2)
        next(views)
        views.close()
        ahead = thread.futures[-1]
        world.advance(1)
        assert ahead.cancelled()
        assert len(list(reader.read(PARTITION, 0, 2))) == 2
        assert len(thread.futures) == 4
        last = reader.read(PARTITION, 1, 2)
        next(last)
        last.close()
        assert list(reader.read(PARTITION, 2, 2)) == []
        assert reader.truncations({}) == {}
        assert len(thread.futures) == 5
        assert cluster[0].connections
    assert not thread.is_alive
    world.advance(1)

    assert not cluster[0].connections


def first_batch(response: FetchResponse) -> FetchResponse:
    """The response without all that follows the first batch."""
    data = response.responses[0].partitions[0]
    size = 12 + int.from_bytes(data.records[8:12], "big")
    data.records = data.records[:size]
    return response


def test_reader_waits_as_long_as_its_last_request_may_take(world, cluster, thread):
    """default.api.timeout.ms, and request.timeout.ms for the answer to that."""
    cluster[0].on(FetchRequest, None)
    cluster[0].on(OffsetForLeaderEpochRequest, None)
    settings = {"default.api.timeout.ms": 1000, "request.timeout.ms": 20_000}
    with PartitionReader(cluster.bootstrap_servers, settings) as reader:
        with pytest.raises(KafkaError):
            list(reader.read(PARTITION, 0, 1))
        with pytest.raises(KafkaError):
            reader.truncations({PARTITION: ReadUpTo(4, 5)})


def fetched_of(world, *entries):
    """An answer whose parts are those of the partition with another topic or number, or none."""

    def answer(request: FetchRequest, version: int) -> FetchResponse:
        response = FetchResponse()
        for topic_id, index in entries:
            topic = world.fetched(request, {}).responses[0]
            topic.topic_id = topic_id or topic.topic_id
            topic.partitions[0].partition_index = index
            response.responses.append(topic)
        return response

    return answer


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ((), "leaves pages-0 out"),
        ([(None, 1)], "leaves pages-0 out"),
        ([(UUID(int=9), 0)], "leaves pages-0 out"),
        ([(None, 0), (None, 0)], "has 2 entries about pages-0"),
    ],
)
def test_records_of_another_partition_are_not_taken_for_those_of_this_one(
    world, cluster, entries, match
):
    """Nor are those of an answer that has the partition twice."""
    cluster.topic_ids["pages"] = UUID(int=1)
    world.write("a")
    cluster[0].on(FetchRequest, fetched_of(world, *entries))
    with pytest.raises(KafkaError, match=match):
        world.read(0)
    cluster[0].on(FetchRequest, fetched_of(world, (None, 1), (None, 0)))

    assert world.read(0)[0] == 1


def test_reader_says_why_it_has_got_nothing(world, cluster):
    """Its time is over while the same error comes again and again."""
    cluster[0].on(FetchRequest, world.refuse_fetch(ErrorCode.CORRUPT_MESSAGE))
    with pytest.raises(KafkaError, match="The record batch failed its checksum"):
        world.read(0)


def test_reader_asks_slowly_where_answers_bring_nothing_at_once(world, cluster):
    """A broker that does not wait for records is not asked thousands of times."""
    cluster[0].on(FetchRequest, lambda request, version: world.fetched(request, {}))
    with pytest.raises(KafkaError, match="nothing at offset 0 of pages-0 within 3000 ms"):
        world.read(0)

    assert 20 < len(cluster[0].sent(FetchRequest)) < 40
