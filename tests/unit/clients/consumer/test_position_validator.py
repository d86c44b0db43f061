"""Truncation detection (KIP-320): when positions are validated, and what a divergence leads to."""

from __future__ import annotations

from uuid import UUID

import pytest
from consumer_world import ConsumerWorld, epoch_ends
from mock_kafka import HANG_UP, MockCluster

from ottla.clients.consumer.position_validator import LogTruncationError, TopicRecreatedError
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.fetch import FetchRequest
from ottla.protocol.leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from ottla.protocol.metadata import MetadataRequest
from ottla.protocol.offsets import OffsetCommitRequest, OffsetFetchRequest
from ottla.structs import NO_UUID, TopicPartition

PARTITION = TopicPartition("pages", 0)


class EpochWorld(ConsumerWorld):
    """A consumer that reads partition 0 by hand, and a leader that knows where epochs end."""

    def __init__(self, runtime, cluster: MockCluster, **settings) -> None:
        super().__init__(runtime, cluster, **settings)
        self.epoch(0)
        for broker in cluster.brokers.values():
            broker.on(OffsetForLeaderEpochRequest, epoch_ends(0, 0))
        self.assign(0)

    def epoch(self, epoch: int) -> None:
        """The partition has a leader of this epoch now; the consumer learns it by its metadata."""
        self.cluster.epochs["pages", 0] = epoch

    def learn(self, epoch: int) -> None:
        self.epoch(epoch)
        self.run(self.core.metadata.update(self.deadline()))

    def write(self, *values: str, epoch: int = 0, **header) -> None:
        """A batch as a leader of an epoch stores it."""
        super().write(*values, epoch=epoch, **header)

    def read(self, *values: str, epoch: int = 0) -> None:
        """Write a batch of an epoch and read it."""
        self.write(*values, epoch=epoch)
        assert self.values() == list(values)

    def asked(self, broker: int = 0) -> list[tuple[int, int]]:
        """The epochs that the consumer has asked about, each with that of the leader it means."""
        return [
            (p.leader_epoch, p.current_leader_epoch)
            for request in self.cluster[broker].sent(OffsetForLeaderEpochRequest)
            for topic in request.topics
            for p in topic.partitions
        ]

    def cut(self, end_offset: int, *values: str, epoch: int = 1) -> None:
        """Another replica leads, whose log lacks what is behind an offset and has other records."""
        del self.logs[0][end_offset:]
        for value in values:
            self.write(value, epoch=epoch)
        self.cluster[0].on(OffsetForLeaderEpochRequest, epoch_ends(0, end_offset))
        self.learn(epoch)

    @property
    def position(self) -> int | None:
        return self.core.subscriptions.state(PARTITION).position


@pytest.fixture
def world(runtime, cluster) -> EpochWorld:
    """One that goes on at the earliest offset; the machine has been up for a while."""
    runtime.advance(3_600_000)
    return EpochWorld(runtime, cluster)


@pytest.fixture
def firm(runtime, cluster) -> EpochWorld:
    """One without a policy to go on; it begins at offset 0."""
    world = EpochWorld(runtime, cluster, auto_offset_reset="none")
    world.call(world.core.seek, PARTITION, 0)
    return world


def test_position_is_not_validated_while_the_leader_stays(world):
    """Neither at the beginning, where nothing was read yet, nor after more metadata."""
    world.read("a")
    world.learn(0)
    world.read("b")

    assert world.asked() == []


def test_position_is_validated_before_it_is_fetched_of_a_new_leader(world, cluster):
    """The leader is asked for the end of the last epoch that was read; then reading goes on."""
    world.read("a", epoch=0)
    cluster[0].on(OffsetForLeaderEpochRequest, "hold")
    world.learn(3)
    world.write("b", epoch=3)
    fetches = len(cluster[0].sent(FetchRequest))
    assert world.values(2000) == []
    assert len(cluster[0].sent(FetchRequest)) == fetches
    cluster[0].held.pop().answer(epoch_ends(0, 1))

    assert world.values() == ["b"]
    assert world.asked() == [(0, 3)]


def test_fetch_tells_the_epoch_of_the_leader_and_that_of_the_last_batch(world, cluster):
    """By these the leader notices old metadata, and a log that is another one (Fetch v9, v12)."""
    world.learn(2)
    world.read("a", epoch=1)
    world.values(600)
    first, *_, last = cluster[0].sent(FetchRequest)

    def epochs(request) -> tuple[int, int]:
        ((p,),) = (topic.partitions for topic in request.topics)
        return p.current_leader_epoch, p.last_fetched_epoch

    assert epochs(last) == (2, 1)
    assert epochs(first)[1] == -1


def test_truncation_is_raised_without_a_policy(firm):
    """Records that were read are gone: topic, partition, position and where the logs part."""
    for value in "abc":
        firm.read(value)
    firm.cut(1, "x", "y", "z", "w")

    for _ in range(2):  # until somebody seeks
        with pytest.raises(
            LogTruncationError, match="pages-0 was truncated: the position is 3"
        ) as e:
            firm.poll()
        found = e.value
        assert (found.topic, found.partition, found.position) == ("pages", 0, 3)
        assert found.divergent_offset == 1
        assert found.error is ErrorCode.OFFSET_OUT_OF_RANGE
    firm.call(firm.core.seek, PARTITION, found.divergent_offset)
    assert [value for _ in range(4) for value in firm.values()] == ["x", "y", "z", "w"]


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_truncation_goes_back_to_where_the_logs_part_with_a_policy(runtime, cluster, policy):
    """Nothing that has replaced what was read is passed over, whatever the policy (as in Java)."""
    world = EpochWorld(runtime, cluster, auto_offset_reset=policy)
    world.values(500)
    for value in "abc":
        world.read(value)
    world.cut(1, "x", "y", "z", "w")

    assert [value for _ in range(4) for value in world.values()] == ["x", "y", "z", "w"]


def test_unknown_epoch_resets_by_the_policy(world, cluster):
    """The leader knows nothing of the epoch, so there is no place where the logs part."""
    world.read("a")
    world.read("b")
    cluster[0].on(OffsetForLeaderEpochRequest, epoch_ends(-1, -1))
    world.learn(1)

    assert [value for _ in range(2) for value in world.values(3000)] == ["a", "b"]


def test_unknown_epoch_is_raised_without_a_policy(firm, cluster):
    """Then the divergent offset is not known either."""
    firm.read("a")
    cluster[0].on(OffsetForLeaderEpochRequest, epoch_ends(-1, -1))
    firm.learn(1)

    with pytest.raises(LogTruncationError, match="a place that is not known") as raised:
        firm.poll()
    assert raised.value.divergent_offset is None


def test_divergence_that_a_fetch_tells_is_raised_without_a_policy(firm, cluster):
    """The leader itself says so, from Fetch v12 on."""
    firm.read("a", "b")
    cluster[0].on(FetchRequest, firm.diverging(0, 1))

    with pytest.raises(LogTruncationError) as raised:
        firm.poll(3000)
    assert (raised.value.position, raised.value.divergent_offset) == (2, 1)


def test_divergence_that_a_fetch_tells_is_gone_back_to_with_a_policy(world, cluster):
    """The position goes back as after a validation that finds a divergence."""
    world.read("a", "b")
    cluster[0].on(FetchRequest, world.diverging(0, 1), world.fetch)

    assert world.values(3000) == ["b"]


def test_log_that_lacks_only_the_epoch_is_read_on(firm, cluster):
    """Compaction has removed its last batch, from a replica made later: that was called a loss."""
    firm.learn(6)
    firm.read("a", epoch=3)
    firm.read("b", epoch=5)
    firm.write("c", epoch=6)
    parts = firm.diverging(3, 2)

    def answer(request, version):
        ((p,),) = (topic.partitions for topic in request.topics)
        return (parts if p.last_fetched_epoch == 5 else firm.fetch)(request, version)

    cluster[0].on(FetchRequest, answer)

    assert firm.values(3000) == ["c"]


def test_what_was_fetched_before_is_read_before_the_position_is_judged(runtime, cluster):
    """Then the error names the position that the application has really come to."""
    world = EpochWorld(runtime, cluster, auto_offset_reset="none", max_poll_records=1)
    world.call(world.core.seek, PARTITION, 0)
    world.write("a", "b")
    assert world.values() == ["a"]
    world.cut(0, "x")

    assert world.values() == ["b"]
    with pytest.raises(LogTruncationError, match="the position is 2"):
        world.poll()


@pytest.mark.parametrize("code", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_validation_is_repeated_with_fresh_metadata(world, cluster, code):
    """The leader and the consumer do not mean the same epoch yet."""
    world.read("a")
    cluster[0].on(OffsetForLeaderEpochRequest, epoch_ends(0, -1, error=code), epoch_ends(0, 1))
    world.learn(1)
    before = len(cluster[0].sent(MetadataRequest))
    world.write("b", epoch=1)

    assert world.values(3000) == ["b"]
    assert len(world.asked()) == 2
    assert len(cluster[0].sent(MetadataRequest)) > before


def test_validation_is_repeated_after_a_lost_connection(world, cluster):
    """The leader is connected to again."""
    world.read("a")
    cluster[0].on(OffsetForLeaderEpochRequest, HANG_UP, epoch_ends(0, 1))
    world.learn(1)
    world.write("b", epoch=1)

    assert world.values(5000) == ["b"]


def test_validation_is_repeated_where_the_answer_leaves_the_partition_out(world, cluster):
    """The request is repeated after a pause."""
    world.read("a")
    empty = OffsetForLeaderEpochResponse()
    cluster[0].on(OffsetForLeaderEpochRequest, empty, empty, epoch_ends(0, 1))
    world.learn(1)
    world.write("b", epoch=1)
    began_ms = world.runtime.clock.monotonic_ms()

    assert world.values(3000) == ["b"]
    assert len(world.asked()) == 3
    assert world.runtime.clock.monotonic_ms() - began_ms >= 200


def test_consumer_that_is_closed_asks_no_leader_any_more(world, caplog):
    """The question was about to be sent when it was closed."""
    world.read("a")
    world.values(600)
    world.call(world.core.pause, [PARTITION], True)
    world.learn(1)

    async def resume_and_close() -> None:
        world.core.pause([PARTITION], False)
        await world.core.close(world.deadline())

    world.run(resume_and_close())
    world.advance(100)

    assert world.asked() == []
    assert caplog.records == []


def test_fetch_follows_the_answer_at_once(world, cluster):
    """The fetch follows without another poll."""
    world.read("a")
    cluster[0].on(OffsetForLeaderEpochRequest, "hold")
    world.learn(1)
    world.values(600)
    before = len(cluster[0].sent(FetchRequest))
    cluster[0].held.pop().answer(epoch_ends(0, 1))
    world.advance(1)
    assert len(cluster[0].sent(FetchRequest)) == before + 1


def test_poll_that_waits_is_told_of_a_truncation_at_once(firm, cluster):
    """The poll ends before its time is over."""
    firm.read("a")
    cluster[0].on(OffsetForLeaderEpochRequest, "hold")
    firm.learn(1)
    held = cluster[0].held
    firm.runtime.scheduler.call_later(1000, lambda: held.pop().answer(epoch_ends(0, 0)))
    began_ms = firm.runtime.clock.monotonic_ms()
    with pytest.raises(LogTruncationError):
        firm.poll(60_000)

    assert firm.runtime.clock.monotonic_ms() - began_ms < 1500


def test_answer_about_a_place_that_was_left_does_not_count(world, cluster):
    """More was fetched and read while the leader was asked: it is asked again."""
    world.read("a")
    cluster[0].on(FetchRequest, "hold", world.fetch)
    world.values(600)
    cluster[0].on(OffsetForLeaderEpochRequest, "hold", epoch_ends(0, 1))
    world.learn(1)
    world.values(100)
    fetch, question = cluster[0].held
    world.write("cut off")
    fetch.answer(world.fetched(fetch.request, {}))
    assert world.values(100) == ["cut off"]
    world.logs[0].pop()
    world.write("kept", epoch=1)
    question.answer(epoch_ends(0, 1))

    assert world.values(3000) == ["kept"]
    assert world.asked() == [(0, 1)] * 2


def test_validation_that_is_not_permitted_is_raised(world, cluster):
    """The text names the partition."""
    world.read("a")
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    cluster[0].on(OffsetForLeaderEpochRequest, epoch_ends(0, -1, error=code))
    world.learn(1)

    with pytest.raises(Exception, match="validation of pages-0: Not authorized"):
        world.poll()


def test_leader_that_cannot_be_asked_is_read_without_validation(world, cluster):
    """Before version 3 of the request, readers may not ask."""
    cluster[0].versions[ApiKey.OFFSET_FOR_LEADER_EPOCH] = (0, 2)
    world.read("a")
    world.learn(1)
    world.write("b", epoch=1)

    assert world.values(3000) == ["b"]
    assert world.asked() == []


def test_seek_ends_the_validation(world, cluster):
    """The answer that is still on its way belongs to another place."""
    world.read("a", "b", "c")
    cluster[0].on(OffsetForLeaderEpochRequest, "hold")
    world.learn(1)
    world.values(500)
    world.call(world.core.seek, PARTITION, 2)
    cluster[0].held.pop().answer(epoch_ends(0, 1))

    assert world.values() == ["c"]


def test_seek_with_an_epoch_is_validated(world, cluster):
    """The offset is validated like one that was committed with an epoch."""
    world.write("a", "b", "c")
    world.values()
    cluster[0].on(OffsetForLeaderEpochRequest, epoch_ends(0, 1))
    world.call(world.core.seek, PARTITION, 3, 0)

    assert world.values(3000) == ["b", "c"]
    assert world.asked() == [(0, 0)]


def test_metadata_older_than_the_position_are_not_believed(world, cluster):
    """A leader that was cut off may be believed in for a while; it would see truncation."""
    world.learn(5)
    world.read("a", epoch=5)
    world.call(world.core.seek, PARTITION, 1, 6)
    world.write("b", epoch=6)

    assert world.values(2000) == []
    assert world.asked() == []
    cluster[0].on(OffsetForLeaderEpochRequest, epoch_ends(6, 1))
    world.epoch(6)
    assert world.values(3000) == ["b"]


def test_metadata_that_stay_older_are_believed_in_the_end(runtime, cluster):
    """The topic was made anew, and its epochs began again: the position is in no log any more."""
    world = EpochWorld(runtime, cluster, request_timeout_ms=5000)
    world.write("a")
    cluster[0].on(OffsetForLeaderEpochRequest, epoch_ends(-1, -1))
    world.call(world.core.seek, PARTITION, 1, 6)

    assert world.values(20_000) == ["a"]


def test_position_is_committed_with_the_epoch_of_the_last_batch(runtime, cluster):
    """The next reader can find out by the epoch whether the log is still the same."""
    world = EpochWorld(runtime, cluster, group_id="report")
    world.read("a", epoch=0)
    world.epoch(4)
    cluster[0].on(OffsetForLeaderEpochRequest, epoch_ends(0, 1))
    world.read("b", epoch=4)
    world.run(world.core.commit(None, world.deadline()))

    (request,) = cluster[0].sent(OffsetCommitRequest)
    (place,) = (p for topic in request.topics for p in topic.partitions)
    assert (place.committed_offset, place.committed_leader_epoch) == (2, 4)


def test_committed_position_is_validated_before_it_is_fetched(runtime, cluster):
    """It may have been cut off while nobody read."""
    world = EpochWorld(runtime, cluster, group_id="report")
    world.write("a", "b", "c", epoch=0)

    def committed(request, version):
        response = world.fetch_offsets(request, version)
        for group in response.groups:
            for topic in group.topics:
                for p in topic.partitions:
                    p.committed_leader_epoch = 0
        return response

    world.committed[PARTITION] = 3
    cluster[0].on(OffsetFetchRequest, committed)
    cluster[0].on(OffsetForLeaderEpochRequest, epoch_ends(0, 2))
    world.learn(1)

    assert world.values(3000) == ["c"]
    assert world.asked() == [(0, 1)]


def test_answer_of_the_leader_before_does_not_count(runtime):
    """It may bring what the new leader does not have, after the position was validated there."""
    cluster = MockCluster(runtime, broker_count=2)
    cluster.topics["pages"] = 1
    world = EpochWorld(runtime, cluster)
    world.read("a")
    cluster[0].on(FetchRequest, "hold")
    world.values(600)
    cluster[1].on(OffsetForLeaderEpochRequest, epoch_ends(0, 1))
    cluster.leaders["pages", 0] = 1
    world.learn(1)
    world.values(600)
    late = cluster[0].held.pop()
    world.write("lost")
    late.answer(world.fetched(late.request, {}))
    world.logs[0].pop()
    world.write("kept", epoch=1)

    assert world.values(3000) == ["kept"]


class RecreatedWorld(EpochWorld):
    """A consumer of a topic that is deleted and created again, with other records."""

    def __init__(self, runtime, cluster: MockCluster, **settings) -> None:
        cluster.topic_ids["pages"] = UUID(int=1)
        super().__init__(runtime, cluster, **settings)

    def create_again(self, *values: str, epoch: int = 0) -> None:
        """The name belongs to another topic from now on, whose first leader has this epoch."""
        self.cluster.topic_ids["pages"] = UUID(int=self.cluster.topic_ids["pages"].int + 1)
        self.epoch(epoch)
        self.logs[0] = []
        for value in values:
            self.write(value, epoch=epoch)
        for broker in self.cluster.brokers.values():
            broker.on(OffsetForLeaderEpochRequest, epoch_ends(epoch, self.end(0)))


def poll_in_vain(world: RecreatedWorld) -> None:
    for _ in range(20):
        assert world.values(200) == []


def test_poll_that_waits_goes_on_in_the_topic_that_was_created_again(runtime, cluster):
    """The poll goes on as soon as the metadata have the new topic."""
    world = RecreatedWorld(runtime, cluster)
    world.read("old")
    runtime.scheduler.call_later(1000, lambda: world.create_again("new"))
    began_ms = runtime.clock.monotonic_ms()

    assert world.values(60_000) == ["new"]
    assert runtime.clock.monotonic_ms() - began_ms < 2500


@pytest.mark.parametrize("new", [1, 2, 3, 5], ids=lambda count: f"{count} new records")
@pytest.mark.parametrize("epoch", [0, 3])
def test_topic_that_was_created_again_is_read_from_its_beginning(runtime, cluster, new, epoch):
    """Whether its log is shorter than what was read before, as long, or longer."""
    world = RecreatedWorld(runtime, cluster)
    world.read("old 0")
    world.read("old 1", "old 2")
    values = [f"new {number}" for number in range(new)]
    world.create_again(*values, epoch=epoch)
    found = []
    for _ in range(20):
        found += world.values(200)

    assert found == values


def test_topic_that_is_created_again_and_again_is_read_each_time(runtime, cluster):
    """Each time from its beginning, and never twice."""
    world = RecreatedWorld(runtime, cluster)
    world.read("old")
    for number in range(3):
        world.create_again(f"{number} a", f"{number} b")
        found = []
        for _ in range(20):
            found += world.values(200)
        assert found == [f"{number} a", f"{number} b"]


def test_recreation_is_raised_without_a_policy_until_the_application_seeks(runtime, cluster):
    """The application decides where to begin in the other topic."""
    world = RecreatedWorld(runtime, cluster, auto_offset_reset="none")
    world.call(world.core.seek, PARTITION, 0)
    world.read("old")
    world.create_again("new 0", "new 1", "new 2")
    for _ in range(2):
        with pytest.raises(TopicRecreatedError, match="deleted and created again") as raised:
            poll_in_vain(world)
        assert raised.value.topic_partition == PARTITION
        assert world.values(0) == [], "there is a pause before the error comes again"
    world.call(world.core.seek, PARTITION, 1)

    assert world.values() == ["new 1", "new 2"]


def test_position_in_a_deleted_topic_is_not_committed(runtime, cluster):
    """Another member would begin there, and pass over the first records of the new topic."""
    world = RecreatedWorld(runtime, cluster, auto_offset_reset="none", group_id="g")
    world.call(world.core.seek, PARTITION, 0)
    world.read("old")
    assert list(world.call(world.core.positions)) == [PARTITION]
    world.create_again("new 0", "new 1")
    world.run(world.core.metadata.update(world.deadline()))

    assert world.call(world.core.positions) == {}


def test_position_is_not_committed_while_its_topic_is_gone(runtime, cluster):
    """The commit might arrive when there is another topic of the name."""
    world = RecreatedWorld(runtime, cluster, group_id="g")
    world.read("old")
    count = cluster.topics.pop("pages")
    world.run(world.core.metadata.update(world.deadline()))
    assert world.call(world.core.positions) == {}
    cluster.topics["pages"] = count
    world.run(world.core.metadata.update(world.deadline()))

    assert list(world.call(world.core.positions)) == [PARTITION]


def test_commit_for_a_topic_that_is_gone_is_not_sent_again(runtime, cluster):
    """The next time it would be one for another topic of the name."""
    world = RecreatedWorld(runtime, cluster, group_id="g")
    world.read("old")
    refusal = world.refuse_commit(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cluster[0].on(OffsetCommitRequest, refusal, world.commit)
    with pytest.raises(KafkaError) as caught:
        world.run(world.core.commit(None, world.deadline()))

    assert caught.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.committed == {}


@pytest.mark.parametrize("asks", ["commit", "automatic"])
def test_position_in_a_topic_that_was_made_again_unnoticed_is_left_out(runtime, cluster, asks):
    """The metadata are late: the coordinator refuses the id, and newer metadata are asked for."""
    world = RecreatedWorld(runtime, cluster, group_id="g", enable_auto_commit=asks == "automatic")
    world.read("old")
    world.create_again("new 0", "new 1")
    if asks == "commit":
        world.run(world.core.commit(None, world.deadline()))
    else:
        world.run(world.core.coordinator.auto_commit(world.core.positions(), 10_000))

    assert world.committed == {}
    assert world.core.coordinator.commit_error is None  # the topic may never come back
    found = []
    for _ in range(20):
        found += world.values(200)
    assert found == ["new 0", "new 1"]
    world.run(world.core.commit(None, world.deadline()))
    assert world.committed == {PARTITION: 2}
    assert world.core.coordinator.commit_error is None


@pytest.mark.parametrize("is_once", [False, True])
def test_offset_that_the_application_names_is_refused_for_another_topic(runtime, cluster, is_once):
    """It has asked for this commit: it is told, at once, that it cannot be."""
    world = RecreatedWorld(runtime, cluster, group_id="g")
    world.read("old")
    world.create_again("new 0")
    commit = world.core.commit_once if is_once else world.core.commit
    with pytest.raises(KafkaError) as caught:
        world.run(commit({PARTITION: OffsetAndMetadata(1)}, world.deadline()))

    assert caught.value.error is ErrorCode.UNKNOWN_TOPIC_ID
    assert world.committed == {}


@pytest.mark.parametrize("by_batch", [False, True])
def test_what_was_given_before_counts_for_the_topic_that_it_is_of(runtime, cluster, by_batch):
    """The application is at work on records of the old topic, while the consumer knows the new."""
    world = RecreatedWorld(runtime, cluster, group_id="g")
    if by_batch:
        world.write("old")
        collect = world.core.fetcher.collect_batches
        assert world.run(world.core.poll_for(collect, world.deadline()))
    else:
        world.read("old")
    world.create_again("new 0", "new 1")
    world.run(world.core.metadata.update(world.deadline()))
    world.values(0)  # the position is found anew; nothing is given
    given = {PARTITION: OffsetAndMetadata(1)}

    topics = world.call(world.core.group_metadata).topics
    assert [topics[PARTITION].of(offset) for offset in (1, 0)] == [UUID(int=1), UUID(int=2)]
    with pytest.raises(KafkaError) as caught:
        world.run(world.core.commit(given, world.deadline()))
    assert caught.value.error is ErrorCode.UNKNOWN_TOPIC_ID
    found = []
    for _ in range(20):
        found += world.values(200)
    assert found == ["new 0", "new 1"]
    topics = world.call(world.core.group_metadata).topics
    assert topics[PARTITION].of(1) == UUID(int=2)
    world.run(world.core.commit(given, world.deadline()))
    assert world.committed == {PARTITION: 1}


def half_read(runtime, cluster, **settings) -> RecreatedWorld:
    """A world whose application has handled one of three records when the topic is made again."""
    world = RecreatedWorld(runtime, cluster, group_id="g", **settings)
    for value in ("old 0", "old 1", "old 2"):
        world.write(value)
    records = world.run(world.core.poll(world.deadline()))
    while len(records) < 3:
        records += world.run(world.core.poll(world.deadline()))
    world.core.unread.fill(records)
    world.core.unread.pop()
    world.create_again("new 0", "new 1", "new 2", "new 3")
    world.run(world.core.metadata.update(world.deadline()))
    return world


def test_record_that_is_still_to_be_handled_is_of_its_own_topic(runtime, cluster):
    """The consumer has a position in the new topic, the application none."""
    world = half_read(runtime, cluster)
    while world.core.subscriptions.state(PARTITION).position is None:
        world.core.fetcher.send_fetches()
        world.run(world.core.poll_for(lambda: ([1], True), world.deadline()))
    assert world.call(world.core.positions) == {}
    world.run(world.core.commit(None, world.deadline()))

    assert world.committed == {}


def test_records_of_a_deleted_topic_are_not_read_again_in_the_next_one(runtime, cluster):
    """What was given, and is given back, has no place there: it begins at its beginning."""
    world = half_read(runtime, cluster)
    world.core.unread.give_back([PARTITION], lambda *place: world.call(world.core.rewind, *place))
    found = []
    for _ in range(20):
        found += world.values(200)

    assert found == ["new 0", "new 1", "new 2", "new 3"]


def test_application_that_seeks_commits_for_the_topic_that_is_there(runtime, cluster):
    """What it was given before the seek is not what it speaks of."""
    world = RecreatedWorld(runtime, cluster, group_id="g")
    world.read("old")
    world.create_again("new 0", "new 1")
    world.run(world.core.metadata.update(world.deadline()))
    world.call(world.core.seek, PARTITION, 1)
    world.run(world.core.commit({PARTITION: OffsetAndMetadata(1)}, world.deadline()))

    assert world.committed == {PARTITION: 1}
    assert world.call(world.core.group_metadata).topics == {}


@pytest.mark.parametrize("is_once", [False, True])
def test_place_in_a_new_topic_is_committed_before_its_first_record(runtime, cluster, is_once):
    """An application may name the position that it has asked for, in a topic without records."""
    world = RecreatedWorld(runtime, cluster, group_id="g")
    world.read("old")
    world.create_again()
    world.run(world.core.metadata.update(world.deadline()))
    assert world.values(200) == []
    assert world.run(world.core.position(PARTITION, world.deadline())) == 0
    commit = world.core.commit_once if is_once else world.core.commit
    world.run(commit({PARTITION: OffsetAndMetadata(0)}, world.deadline()))

    assert world.committed == {PARTITION: 0}


def test_committed_offset_is_taken_for_a_topic_that_the_metadata_have(runtime, cluster):
    """A coordinator may know the old topic while brokers know none, or the next one, of its name.

    The offset, found by name, would be a place in the next topic.
    """
    partitions = cluster.topics.pop("pages")
    world = RecreatedWorld(runtime, cluster, group_id="g")
    world.run(world.core.metadata.update(world.deadline()))
    world.committed[PARTITION] = 2
    assert world.values(500) == []
    assert world.core.subscriptions.state(PARTITION).position is None
    cluster.topics["pages"] = partitions
    world.create_again("new 0", "new 1", "new 2")
    world.committed.clear()
    found = []
    for _ in range(20):
        found += world.values(200)

    assert found == ["new 0", "new 1", "new 2"]


def test_records_that_are_given_back_leave_the_place_in_the_new_topic(runtime, cluster):
    """It was found before: the latest one would be another by now, and pass over a record."""
    world = RecreatedWorld(runtime, cluster, group_id="g", auto_offset_reset="latest")
    assert world.values(200) == []
    for value in ("old 0", "old 1"):
        world.write(value)
    world.core.unread.fill(world.poll())
    world.create_again("new 0", "new 1", "new 2", "new 3")
    world.run(world.core.metadata.update(world.deadline()))
    assert world.run(world.core.position(PARTITION, world.deadline())) == 0  # of the old topic
    world.write("new 4")
    world.call(world.core.unread.give_back, [PARTITION], world.core.rewind)
    found = []
    for _ in range(20):
        found += world.values(200)

    assert found == ["new 4"]


@pytest.mark.parametrize("offsets", [None, {PARTITION: OffsetAndMetadata(1)}])
def test_coordinator_that_has_not_heard_of_a_topic_is_asked_again(runtime, cluster, offsets):
    """A new topic may be read before all brokers know of it."""
    world = RecreatedWorld(runtime, cluster, group_id="g")
    world.read("old")
    refusal = world.refuse_commit(ErrorCode.UNKNOWN_TOPIC_ID)
    cluster[0].on(OffsetCommitRequest, refusal, refusal, world.commit)
    world.run(world.core.commit(offsets, world.deadline()))

    assert world.committed == {PARTITION: 1}


def test_partitions_of_two_lives_of_a_topic_are_committed_each_for_its_own(runtime, cluster):
    """The application has read on in one of them; the other's position is older."""
    world = RecreatedWorld(runtime, cluster, group_id="g")
    world.read("old")
    offsets = {
        PARTITION: OffsetAndMetadata(1, topic_id=UUID(int=7)),
        TopicPartition("pages", 1): OffsetAndMetadata(2, topic_id=UUID(int=1)),
    }
    with pytest.raises(KafkaError) as caught:
        world.run(world.core.commit(offsets, world.deadline()))

    assert caught.value.error is ErrorCode.UNKNOWN_TOPIC_ID
    assert world.committed == {TopicPartition("pages", 1): 2}


def test_committed_offset_is_looked_up_in_the_topic_that_is_there(runtime, cluster):
    """The metadata are late: the offset of the next topic is not taken for one of this."""
    world = RecreatedWorld(runtime, cluster, group_id="g")
    world.write("old")
    world.run(world.core.metadata.update(world.deadline()))
    world.create_again("new 0", "new 1", "new 2")
    world.committed[PARTITION] = 1
    found = []
    for _ in range(20):
        found += world.values(200)

    assert found == ["new 1", "new 2"]


@pytest.mark.parametrize("is_committed", [False, True])
def test_seek_while_the_position_is_looked_for_stays(runtime, cluster, monkeypatch, is_committed):
    """The search waits for metadata first: what it then finds is for nobody."""
    world = RecreatedWorld(runtime, cluster, group_id="g")
    world.write("0")
    world.write("1")
    world.write("2")
    if is_committed:
        world.committed[PARTITION] = 1
    world.assign(0)
    hear_of = world.core.metadata.hear_of

    async def hear_late(topics, deadline):
        await hear_of(topics, deadline)
        if world.core.subscriptions.state(PARTITION).reset_to is not None or is_committed:
            world.core.seek(PARTITION, 2)

    monkeypatch.setattr(world.core.metadata, "hear_of", hear_late)

    found = []
    for _ in range(10):
        found += world.values(200)

    assert found == ["2"]


def test_coordinator_without_ids_gets_names(runtime, cluster):
    """As before Kafka 4.2."""
    for broker in cluster.brokers.values():
        broker.versions[OffsetCommitRequest.api_key] = (2, 9)
        broker.versions[OffsetFetchRequest.api_key] = (1, 9)
    world = RecreatedWorld(runtime, cluster, group_id="g")
    world.read("old")
    world.run(world.core.commit(None, world.deadline()))

    assert world.committed == {PARTITION: 1}
    assert world.run(world.core.committed([PARTITION], world.deadline()))[PARTITION].offset == 1


def test_answer_about_another_topic_of_the_name_is_no_truncation(runtime, cluster):
    """The question for the end of an epoch has no topic id, and the metadata may be late."""
    world = RecreatedWorld(runtime, cluster)
    world.read("old 0", "old 1", "old 2")
    known, again = UUID(int=1), UUID(int=2)
    world.create_again("new 0", "new 1")
    cluster.topic_ids["pages"] = known  # what the metadata say when the leader has changed
    world.learn(1)
    cluster.topic_ids["pages"] = again
    found = []
    for _ in range(20):
        found += world.values(200)

    assert found == ["new 0", "new 1"]


def test_metadata_without_ids_change_nothing(runtime, cluster):
    """Brokers before Kafka 2.8 have none: topics are told apart by their leader epochs at most."""
    cluster.topic_ids["pages"] = NO_UUID
    world = EpochWorld(runtime, cluster)
    world.read("a")
    world.read("b")

    assert world.core.subscriptions.assigned[PARTITION].topic_id == NO_UUID
