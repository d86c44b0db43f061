"""What replication costs is measured by what is new, not by how many partitions there are."""

from __future__ import annotations

from collections import Counter

import pytest
import replica_world
from replica_world import LAG_MS, ReplicaWorld

from ottla.errors import ErrorCode
from ottla.log.offset_checkpoint import OffsetCheckpoint
from ottla.protocol.api_keys import ApiKey
from ottla.record.batch_builder import build_batch
from ottla.replication import fetcher, follower_session
from ottla.replication.append_results import ACKS_ALL, ACKS_LEADER, PartitionAppendResult
from ottla.replication.delayed_produce import DelayedProduce
from ottla.replication.fetcher import ReplicaFetcher
from ottla.replication.follower_partition import FollowerPartition
from ottla.replication.follower_session import FollowerSession
from ottla.replication.partition import Partition
from ottla.replication.replica_requests import NOTE_AS_CAUGHT_UP_MS
from ottla.server.fetch_session import FetchSessionCache
from ottla.structs import LeaderAndIsr, StopReplicaPartition, TopicPartition

COUNT = 40
PARTITIONS = [TopicPartition("t", index) for index in range(COUNT)]


@pytest.fixture
def settings():
    return {}


@pytest.fixture
def world(settings):
    """Three brokers with copies of all partitions; broker 1 leads them."""
    world = ReplicaWorld(settings=settings)
    for topic_partition in PARTITIONS:
        world.create(topic_partition=topic_partition)
    world.advance(1_000)
    yield world
    world.close()


@pytest.fixture
def calls(monkeypatch, core_source):
    """How often methods of partitions were called, by name."""
    counts = Counter()

    def count(name):
        method = getattr(Partition, name)

        def counted(*arguments):
            counts[name] += 1
            return method(*arguments)

        monkeypatch.setattr(Partition, name, counted)

    count("read_records")
    count("on_follower_fetch")
    return counts


@pytest.fixture
def recovery_points(monkeypatch):
    """The paths of recovery point checkpoints, as often as they are written."""
    paths = []
    write = OffsetCheckpoint.write

    def written(self, offsets):
        if "recovery-point" in self.path:
            paths.append(self.path)
        write(self, offsets)

    monkeypatch.setattr(OffsetCheckpoint, "write", written)
    return paths


def batch(value):
    return build_batch([(1_000, None, value, ())])


def elect_all(world, leader):
    """LeaderAndIsr for all partitions at once, as the controller sends it."""
    states = []
    for topic_partition in PARTITIONS:
        state = world.states[topic_partition]
        known = state.leader_and_isr
        changed = LeaderAndIsr(leader, known.leader_epoch + 1, known.isr, known.version + 1)
        states.append(state._replace(leader_and_isr=changed, is_new=False))
    world.states.update((state.topic_partition, state) for state in states)
    for broker in world.brokers.values():
        broker.manager.become_leader_or_follower(states, world.live_brokers())
    world.run()


def test_produce_to_one_of_many_partitions_reads_no_others(world, calls):
    """Each record was followed by reads of all partitions: 1,000 took as long as 7 s of work."""
    answers = world.append(1, b"x", topic_partition=PARTITIONS[5])

    assert answers[0].error is ErrorCode.NONE
    assert world.brokers[2].log(PARTITIONS[5]).log_end_offset == 1
    # Two followers: what they get, their next offset, and the high watermark.
    assert calls["read_records"] < COUNT
    assert calls["on_follower_fetch"] < COUNT


def without_room(runtime, max_sessions, *others):
    return FetchSessionCache(runtime, 0, *others)


@pytest.mark.parametrize("has_sessions", [True, False])
def test_followers_of_more_partitions_than_a_request_may_name_copy_all(
    settings, monkeypatch, has_sessions
):
    """After a start, after an election, when they ask where epochs end, and after a broken
    connection, when they name all of them again.
    """
    for module in (fetcher, follower_session):
        monkeypatch.setattr(module, "NAMED_AT_ONCE", 7)
    if not has_sessions:
        monkeypatch.setattr(replica_world, "FetchSessionCache", without_room)
    world = ReplicaWorld(settings=settings)
    try:
        for topic_partition in PARTITIONS:
            world.create(topic_partition=topic_partition)
        world.advance(1_000)
        elect_all(world, 2)
        for topic_partition in PARTITIONS:
            world.append(2, b"x", topic_partition=topic_partition)
        world.advance(1_000)
        ends = [world.brokers[3].log(each).log_end_offset for each in PARTITIONS]
        assert ends == [1] * COUNT
        for connection in world.brokers[3].connections:
            connection.drop("it is broken")
        world.append(2, b"y", topic_partition=PARTITIONS[-1])
        world.advance(2_000)
        assert world.brokers[3].log(PARTITIONS[-1]).log_end_offset == 2
    finally:
        world.close()


@pytest.mark.parametrize("named", [2, 7, COUNT - 1, COUNT])
def test_answer_counts_for_what_was_last_asked(world, monkeypatch, core_source, named):
    """With news of more partitions than a request names, the leader sends those of the others once
    more, from where they were: the follower took these for damaged ones, and its copy paused.
    """
    for module in (fetcher, follower_session):
        monkeypatch.setattr(module, "NAMED_AT_ONCE", named)
    refused = []
    monkeypatch.setattr(
        ReplicaFetcher, "_delay", lambda self, followers, reason: refused.append(reason)
    )
    rounds, fill = list(range(20)), FollowerSession.fill

    def append_to_all():
        batches = {each: memoryview(bytearray(batch(b"x"))) for each in PARTITIONS}
        world.brokers[1].manager.append_records(5_000, ACKS_ALL, batches, lambda results: None)

    def fill_while_others_write(self, *arguments):
        left = fill(self, *arguments)
        if rounds:
            rounds.pop()
            append_to_all()
        return left

    monkeypatch.setattr(FollowerSession, "fill", fill_while_others_write)
    append_to_all()
    world.advance(10_000)
    for broker_id in (2, 3):
        logs = [world.brokers[broker_id].log(each) for each in PARTITIONS]
        assert {(log.log_end_offset, log.high_watermark) for log in logs} == {(21, 21)}
    assert refused == []


def test_followers_hear_of_a_high_watermark_that_rises_alone(world):
    """A partition without new records is in the answer if it is committed further."""
    world.append(1, b"x", topic_partition=PARTITIONS[5])
    world.append(1, b"y", topic_partition=PARTITIONS[6])

    for broker_id in (2, 3):
        assert world.brokers[broker_id].log(PARTITIONS[5]).high_watermark == 1


def test_follower_without_news_counts_as_caught_up(world):
    """What is not read with each fetch is noted every now and then: it does not look stuck."""
    partition = world.brokers[1].manager.partitions[PARTITIONS[5]]
    world.advance(60_000)

    now_ms = world.runtime.clock.monotonic_ms()
    for replica in partition.leadership.followers.values():
        assert now_ms - replica.last_caught_up_ms <= NOTE_AS_CAUGHT_UP_MS + 600


@pytest.mark.parametrize("settings", [{"replica.fetch.wait.max.ms": "501"}])
def test_idle_partition_is_read_once_when_it_is_noted_that_it_has_caught_up(world, calls):
    """It was read again as the fetch ended, where timers are a little late: half of the reads."""
    world.advance(2_000)
    calls.clear()
    world.advance(10_000)

    assert 0 < calls["read_records"] <= calls["on_follower_fetch"]


def test_copied_batch_takes_no_turn_where_nobody_waits(world):
    """With every batch a follower's loop took one more, to look for fetches that wait."""
    delayed = world.brokers[2].manager.delayed
    delayed.note_progress(PARTITIONS[5])

    assert not delayed.committed


def test_change_of_all_leaders_is_told_to_a_waiting_follower_once(world, monkeypatch, core_source):
    """Each partition of a LeaderAndIsr request woke and read all fetches that waited."""
    manager = world.brokers[1].manager
    tries = []
    purgatory = manager.delayed.follower_fetches
    try_one = type(purgatory)._try

    def tried(self, operation):
        if self is purgatory:
            tries.append(operation)
        return try_one(self, operation)

    monkeypatch.setattr(type(purgatory), "_try", tried)
    elect_all(world, 2)

    assert 0 < len(tries) < COUNT / 4
    assert world.append(2, b"x", topic_partition=PARTITIONS[7])[0].error is ErrorCode.NONE


def test_followers_that_cut_many_logs_write_one_checkpoint(world, recovery_points):
    """One checkpoint with fsync for each log that was cut held the others up."""
    world.cut_off(1)
    for topic_partition in PARTITIONS:
        world.append(1, b"lost", topic_partition=topic_partition, timeout_ms=1)
    recovery_points.clear()
    del world.brokers[1].connections[:]
    world.heal()
    elect_all(world, 2)
    for topic_partition in PARTITIONS:
        world.append(2, b"kept", topic_partition=topic_partition)
    world.advance(300)

    logs = [world.brokers[1].log(each) for each in PARTITIONS]
    assert [log.log_end_offset for log in logs] == [1] * COUNT
    assert [log.leader_epoch_cache.latest_epoch for log in logs] == [1] * COUNT
    assert 1 <= len(recovery_points) < COUNT / 4


def test_followers_that_begin_many_logs_anew_write_one_checkpoint(world, recovery_points):
    """One by one: a broker whose logs retention had overtaken was in sync 2 s later than others."""
    world.cut_off(3)
    for topic_partition in PARTITIONS:
        world.append(1, b"deleted", acks=ACKS_LEADER, topic_partition=topic_partition)
    world.advance(2 * LAG_MS)
    world.brokers[1].manager.delete_records(1, dict.fromkeys(PARTITIONS, 1), list)
    recovery_points.clear()
    world.heal()
    world.advance(3_000)

    logs = [world.brokers[3].log(each) for each in PARTITIONS]
    assert [log.log_start_offset for log in logs] == [1] * COUNT
    assert 1 <= len(recovery_points) < COUNT / 4


def test_partitions_that_sit_out_are_logged_in_one_line(world, caplog):
    """A line for each of 1,000 partitions at each election took as long as the election."""
    caplog.set_level("INFO")
    world.cut_off(3)
    elect_all(world, 2)
    world.heal()
    states = [world.states[each] for each in PARTITIONS]
    behind = [
        state._replace(leader_and_isr=state.leader_and_isr._replace(leader_epoch=2))
        for state in states
    ]
    world.brokers[3].manager.become_leader_or_follower(behind, world.live_brokers())
    world.advance(100)

    lines = [each.message for each in caplog.records if "sits out" in each.message]
    assert any(f"and {COUNT - 1} more" in line for line in lines)
    assert len(lines) < COUNT / 4


def test_produce_to_many_partitions_asks_about_each_until_it_is_done():
    """Each partition that was committed had the fate of all others looked up again."""
    committed, asked = set(), Counter()

    def is_pending(topic_partition, result):
        asked[topic_partition] += 1
        return topic_partition not in committed

    results = {each: PartitionAppendResult(ErrorCode.NONE) for each in PARTITIONS}
    answers = []
    operation = DelayedProduce(1_000, results, is_pending, answers.append)
    for topic_partition in PARTITIONS:
        committed.add(topic_partition)
        operation.try_complete()

    assert answers == [results]
    assert sum(asked.values()) <= 2 * COUNT


def test_partitions_without_news_are_not_even_looked_at(world, monkeypatch, core_source):
    """Each fetch went through all partitions, on both sides: slower the more there are."""
    looked_at = Counter()
    for owner, name in ((Partition, "has_news_for"), (FollowerPartition, "wanted")):
        method = getattr(owner, name)

        def counted(*arguments, name=name, method=method):
            looked_at[name] += 1
            return method(*arguments)

        monkeypatch.setattr(owner, name, counted)
    world.append(1, b"x", topic_partition=PARTITIONS[5])

    assert 0 < looked_at["has_news_for"] < COUNT
    assert 0 < looked_at["wanted"] < COUNT


def test_follower_that_asks_for_nothing_for_a_while_has_the_leader_forget_what_is_gone(world):
    """What was given up while every partition sat out is not in the session afterwards."""
    manager = world.brokers[2].manager
    (fetcher,) = manager.fetchers._fetchers.values()
    fetcher._delay(fetcher.followers.values(), "the test says so")
    for follower in fetcher.followers.values():
        follower.retry_at_ms = world.runtime.clock.monotonic_ms() + 3_000
    world.advance(600)
    manager.stop_replica([StopReplicaPartition(each, 0, False) for each in PARTITIONS[:-1]])
    world.advance(1_500)
    world.append(1, b"x", topic_partition=PARTITIONS[-1])
    world.advance(2_000)

    sessions = world.brokers[1].handlers[ApiKey.FETCH].__self__.sessions._sessions.values()
    assert min(len(session.partitions) for session in sessions) == 1
    assert world.brokers[2].log(PARTITIONS[-1]).log_end_offset == 1
