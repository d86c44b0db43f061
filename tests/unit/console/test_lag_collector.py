"""The collector: what it asks for, what it keeps, and what it does not take for lag."""

from __future__ import annotations

import pytest
from lag_world import LagWorld

from ottla.clients.metadata import Cluster, PartitionInfo, TopicInfo
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.console import lag_collector
from ottla.console.group_look import lag_of, observations_since
from ottla.console.lag_causes import explain
from ottla.console.lag_collector import LagCollector, without_coordinator
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.list_offsets import ListOffsetsRequest
from ottla.protocol.offsets import OffsetFetchRequest
from ottla.structs import NO_UUID, OFFSETS_TOPIC, TopicPartition


class Enough(Exception):
    """Ends a collector that would go on for ever."""


@pytest.fixture
def collector(world: LagWorld) -> LagCollector:
    return LagCollector(world.cluster)


@pytest.fixture
def sent(world: LagWorld, monkeypatch) -> list[object]:
    """The requests that the console sends."""
    requests: list[object] = []
    send = world.cluster.client.send_on

    def noting(connection, request, *more):
        requests.append(request)
        return send(connection, request, *more)

    monkeypatch.setattr(world.cluster.client, "send_on", noting)
    return requests


def look(world: LagWorld, collector: LagCollector) -> None:
    """A look at fresh metadata, 10 s after the one before."""
    world.pass_s(10)
    world.run(world.cluster.all_topics.fresh(0))
    world.run(collector.look())


def test_lag_of_all_groups_is_two_requests(world, collector, sent):
    """One for the offsets of all groups, one for the ends of the logs that they read."""
    (read,), (unread,) = world.add_topic("read"), world.add_topic("unread")
    world.write(read, 10)
    world.write(unread, 10)
    for number in range(3):
        world.admin.alter_group_offsets(f"three-{number}", {read: number})
    look(world, collector)
    lags = {name: collector.groups[name].total for name in collector.groups if "three" in name}

    assert lags == {"three-0": 10, "three-1": 9, "three-2": 8}
    assert [type(each) for each in sent].count(OffsetFetchRequest) == 1
    (ends,) = [each for each in sent if isinstance(each, ListOffsetsRequest)]
    assert "unread" not in [topic.name for topic in ends.topics]


def test_history_grows_with_each_look(world, collector):
    """Lag and new records by topic, commits by partition; and the causes of the lag by these."""
    (grown,) = world.add_topic("grown")
    reader = world.read("growing", grown)
    world.write(grown, 10)
    world.commit(reader, {grown: 5})
    look(world, collector)
    world.write(grown, 60)
    world.commit(reader, {grown: 15})
    look(world, collector)
    points = [each for each in collector.history.points("growing", "grown", "1h") if each.lag]

    assert [(each.lag, each.records_in) for each in points] == [(5, None), (55, 60)]
    assert [each.offset for each in collector.history.commits("growing", grown)] == [5, 15]
    seen = observations_since(collector.history, world.look("growing"), [])
    assert [cause.rule for cause in explain(seen)] == ["too_slow"]
    assert (seen.tracks[grown].advance, seen.tracks[grown].growth) == (10, 60)


def test_seconds_behind_are_those_since_the_end_passed(world, collector):
    """A group that reads nothing falls behind as time passes; one that has read all is not."""
    (timed,) = world.add_topic("timed")
    world.write(timed, 5)
    world.admin.alter_group_offsets("timed-late", {timed: 5})
    look(world, collector)
    world.write(timed, 5)
    look(world, collector)
    for _ in range(5):
        look(world, collector)

    assert 50 <= collector.groups["timed-late"].seconds <= 61
    world.admin.alter_group_offsets("timed-late", {timed: 10})
    look(world, collector)
    assert collector.groups["timed-late"].seconds == 0


def test_members_that_come_are_noted(world, collector):
    """Of groups that have lag."""
    two = world.add_topic("two", 2)
    for each in two:
        world.write(each, 10)
    first = world.read("joined", *two)
    world.commit(first, dict.fromkeys(two, 1))
    began_ms = world.clock.now_ms()
    look(world, collector)
    first.close()
    look(world, collector)

    (rebalance,) = collector.rebalances("joined", began_ms)
    assert rebalance.left == ("joined-reader",)


def test_offsets_of_a_topic_that_was_made_again_are_no_lag(world, collector):
    """Until the group commits to the new one; its history is forgotten."""
    (again,) = world.add_topic("again")
    world.write(again, 10)
    world.admin.alter_group_offsets("restless", {again: 4})
    look(world, collector)
    assert collector.groups["restless"].total == 6
    world.admin.delete_topics(["again"])
    world.add_topic("again")
    world.write(again, 20)
    world.admin.alter_group_offsets("restless", {again: 4})  # as by a reader that knows no better
    look(world, collector)
    assert collector.groups["restless"].lag == {}
    assert collector.history.topics_of("restless") == []

    world.admin.alter_group_offsets("restless", {again: 5})
    look(world, collector)
    assert collector.groups["restless"].total == 15


@pytest.mark.parametrize(
    ("committed", "end", "leader_epoch", "lag"),
    [
        (OffsetAndMetadata(4), 10, 0, 6),
        (OffsetAndMetadata(10), 10, 0, 0),
        (OffsetAndMetadata(11), 10, 0, None),
        (OffsetAndMetadata(4, "", 3), 10, 2, None),
        (OffsetAndMetadata(4, "", 3), 10, 3, 6),
        (OffsetAndMetadata(4, "", 3), 10, -1, 6),
        (None, 10, 0, None),
        (OffsetAndMetadata(4), None, 0, None),
    ],
)
def test_lag_is_between_an_offset_and_the_end_of_the_same_log(committed, end, leader_epoch, lag):
    """An offset behind the end, or of an epoch to come, is of another log."""
    assert lag_of(committed, end, leader_epoch) == lag


def test_very_many_groups_are_looked_at_in_turn(world, collector, monkeypatch):
    """All of them within six looks."""
    monkeypatch.setattr(lag_collector, "GROUPS_A_LOOK", 2)
    (many,) = world.add_topic("many")
    names = [f"many-{number}" for number in range(8)]
    for name in names:
        world.admin.alter_group_offsets(name, {many: 0})
    for _ in range(lag_collector.ROUNDS):
        look(world, collector)

    assert set(names) <= set(collector.groups)


def test_group_that_has_gone_is_forgotten(world, collector):
    """With the next list."""
    (gone,) = world.add_topic("gone")
    world.admin.alter_group_offsets("leaving", {gone: 0})
    look(world, collector)
    assert "leaving" in collector.groups
    world.admin.delete_groups(["leaving"])
    look(world, collector)

    assert "leaving" not in collector.groups


def test_collector_waits_a_hundred_times_as_long_as_it_took(world, collector, monkeypatch):
    """Brokers spend at most 1 % on it; a look that fails is tried again."""
    waits: list[int] = []

    async def pause(_scheduler: object, ms: int) -> None:
        waits.append(ms)
        if len(waits) == 2:
            raise Enough

    async def slow_look() -> None:
        times.append(times[-1] + 100 * len(times))

    times = [1_900]
    monkeypatch.setattr(type(world.clock), "monotonic_ms", lambda _: times[-1])
    monkeypatch.setattr(lag_collector, "pause", pause)
    monkeypatch.setattr(collector, "look", slow_look)
    with pytest.raises(Enough):
        world.run(collector.run())

    assert waits == [10_000, 20_000]


def test_failure_of_a_look_is_kept_until_one_succeeds(world, collector, monkeypatch):
    """The groups are those of an earlier look until then."""

    async def look() -> None:
        if not seen:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "no broker answers")

    async def pause(*_) -> None:
        seen.append(collector.failure and collector.failure.message)
        if len(seen) == 2:
            raise Enough

    seen = []
    monkeypatch.setattr(lag_collector, "pause", pause)
    monkeypatch.setattr(collector, "look", look)
    with pytest.raises(Enough):
        world.run(collector.run())

    assert seen == ["no broker answers", None]


UNKNOWN = TopicPartition("unknown", 0)


def test_topic_that_does_not_exist_is_left_out_of_a_look(world):
    """Its offset is known, its log is not."""
    (there,) = world.add_topic("there")
    world.admin.alter_group_offsets("half-there", {there: 0})
    seen = world.look("half-there")

    assert list(seen.logs) == [there]
    assert seen.lag(UNKNOWN) is None


@pytest.mark.parametrize(("leaders", "named"), [((0, 1), ""), ((-1, 1), "0"), ((-1, -1), "0, 1")])
def test_groups_without_a_coordinator_are_named(leaders, named):
    """No broker lists them, so that they seemed not to be there."""
    parts = {
        number: PartitionInfo(OFFSETS_TOPIC, number, leader, 0, (0,), (), ())
        for number, leader in enumerate(leaders)
    }
    topic = TopicInfo(OFFSETS_TOPIC, NO_UUID, True, parts)

    found = without_coordinator(Cluster(topics={OFFSETS_TOPIC: topic}))

    assert without_coordinator(Cluster()) == {}
    expected = [f"the groups of partitions {named} of {OFFSETS_TOPIC}"] if named else []
    assert list(found) == expected
