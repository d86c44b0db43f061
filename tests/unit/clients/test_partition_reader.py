"""The core of `PartitionReader` and leader epochs: what it tells, and what it notices (KIP-320)."""

from __future__ import annotations

from uuid import UUID

import pytest
from consumer_world import ConsumerWorld, epoch_ends

from ottla.clients.consumer.positions import LogTruncationError, TopicRecreatedError
from ottla.clients.partition_reader import RangeFetcher, ReadUpTo, Truncation, UnreadRange
from ottla.config.client_config import ConsumerConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.fetch import FetchRequest
from ottla.protocol.offsets import OffsetForLeaderEpochRequest
from ottla.structs import IsolationLevel, TopicPartition

PARTITION = TopicPartition("pages", 0)


class ReaderWorld(ConsumerWorld):
    """A reader of partition 0, and a leader that knows where epochs end."""

    def __init__(self, runtime, cluster) -> None:
        super().__init__(runtime, cluster)
        settings = {"bootstrap.servers": cluster.bootstrap_servers}
        self.config = ConsumerConfig.parse(settings, default_api_timeout_ms=3000)
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
    """As before KIP-320."""
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
    cluster.topic_ids["pages"] = UUID(int=2)
    world.write("b", epoch=0)
    with pytest.raises(TopicRecreatedError, match="created again: the position 1 of pages-0"):
        world.run(world.reader.fetch(chunk.rest_of(left)))

    assert world.run(world.reader.fetch(left)).topic_id == UUID(int=2)
