"""What waits for other replicas is answered as soon as its outcome is known, and not later."""

from __future__ import annotations

import pytest
from replica_world import LAG_MS, T0, TOPIC_ID, ReplicaWorld

from ottla.errors import ErrorCode
from ottla.record.batch_builder import build_batch
from ottla.replication.append_results import ACKS_ALL, ACKS_LEADER
from ottla.replication.delayed_fetch import DelayedFetch
from ottla.replication.partition_leader import RETRY_BACKOFF_MS
from ottla.replication.replica_requests import FetchParams, FetchPartitionResult, PartitionFetch
from ottla.structs import IsolationLevel, StopReplicaPartition, TopicPartition

T1, T2 = TopicPartition("t", 1), TopicPartition("t", 2)


def errors(answers):
    return [answer.error for answer in answers]


def delete(world, offset, timeout_ms=60_000):
    answers = []
    world.brokers[1].manager.delete_records(timeout_ms, {T0: offset}, answers.append)
    world.run()
    return answers


def test_produce_whose_time_is_over_is_not_acknowledged(world):
    """The batch stays in the log, and may be committed later or lost."""
    world.cut_off(3)
    answers = world.append(1, b"a", timeout_ms=1_000)
    world.advance(900)
    before = list(answers)
    world.advance(200)

    assert before == []
    assert errors(answers) == [ErrorCode.REQUEST_TIMED_OUT]
    assert world.values(1) == [(0, b"a")]


def test_batch_that_is_cut_off_while_another_of_the_request_waits_is_not_acknowledged(world):
    """Another led meanwhile; the log is as long again when the other partition is through."""
    world.create((1, 2), T1)
    world.create((1, 3), T2)
    world.advance(1_200)
    world.cut_off(1)
    answers, data = [], build_batch([(1_000, None, b"lost", ())])
    entries = {each: memoryview(bytearray(data)) for each in (T1, T2)}
    world.brokers[1].manager.append_records(60_000, ACKS_ALL, entries, answers.append)
    world.elect(2, isr=(2,), topic_partition=T1)
    world.append(2, b"other", topic_partition=T1)
    world.heal()
    world.cut_off(3)
    world.advance(2_000)
    world.elect(1, isr=(1, 2), topic_partition=T1)
    world.append(1, b"more", topic_partition=T1)
    world.advance(500)
    assert answers == []
    world.advance(2 * LAG_MS)

    assert world.values(1, T1) == [(0, b"other"), (1, b"more")]
    assert errors(answers[0].values()) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE]


def test_fetch_is_answered_with_what_has_ended_its_wait():
    """The log is not read once more for the answer."""
    few, enough = (
        {("t", 0): FetchPartitionResult(ErrorCode.NONE, is_cut=is_cut)} for is_cut in (False, True)
    )
    reads, answers = iter([few, enough]), []
    params = FetchParams(2, 60_000, 1, 1 << 20, IsolationLevel.READ_UNCOMMITTED)
    fetch = DelayedFetch(params, lambda: next(reads), answers.append, frozenset())

    assert not fetch.try_complete()
    assert fetch.try_complete()
    assert answers == [enough]


def test_shutdown_answers_every_kind_of_request_that_waits(world):
    """None of them holds the end of the broker up, and none is told of a success."""
    world.append(1, b"a")
    world.advance(1_200)
    for broker_id in (2, 3):
        world.cut_off(broker_id)
    produced = world.append(1, b"b", timeout_ms=60_000)
    deleted, fetched = delete(world, 1), []
    manager = world.brokers[1].manager
    params = FetchParams(2, 60_000, 1, 1 << 20, IsolationLevel.READ_UNCOMMITTED)
    manager.fetch_records(params, [PartitionFetch(T0, TOPIC_ID, 2, 1 << 20)], fetched.append)
    answered_before = [*produced, *deleted, *fetched]
    manager.shutdown()

    assert answered_before == []
    assert errors(produced) == [ErrorCode.REQUEST_TIMED_OUT]
    assert deleted == [{T0: (-1, ErrorCode.REQUEST_TIMED_OUT)}]
    assert len(fetched) == 1


@pytest.mark.parametrize("exists", [True, False])
def test_replica_that_is_given_up_answers_whoever_waits_for_it(world, exists):
    """With the error that tells the client whether to look for the partition elsewhere."""
    world.append(1, b"a")
    world.advance(1_200)
    world.cut_off(3)
    produced, deleted = world.append(1, b"b", timeout_ms=60_000), delete(world, 1)
    if not exists:
        del world.states[T0]
    world.brokers[1].manager.stop_replica([StopReplicaPartition(T0, 0, False)])
    error = ErrorCode.NOT_LEADER_OR_FOLLOWER if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    assert errors(produced) == [error]
    assert deleted == [{T0: (-1, error)}]


def test_what_the_controllers_answers_commit_is_acknowledged_without_another_request(world):
    """Each time: nobody may come to the broker for a while."""
    for value in (b"a", b"b"):
        world.answers_isr_changes = False
        world.cut_off(3)
        answers = world.append(1, value, timeout_ms=60_000)
        world.advance(2 * LAG_MS)
        assert answers == []
        world.answer_isr_changes()
        world.runtime.scheduler.run_ready()

        assert errors(answers) == [ErrorCode.NONE]
        world.answers_isr_changes = True
        world.heal()
        world.advance(3_000)
        assert set(world.states[T0].leader_and_isr.isr) == {1, 2, 3}


@pytest.mark.parametrize("is_out_of_sync", [False, True])
def test_deletion_does_not_wait_for_a_replica_whose_broker_is_gone(world, is_out_of_sync):
    """The controller may shrink the in-sync replicas before it says which brokers live, or not."""
    world.append(1, b"a", b"b")
    world.cut_off(3)
    answers = delete(world, 1)
    world.advance(1_000)
    assert answers == []
    world.kill(3)
    assert answers == []
    if is_out_of_sync:
        world.elect(1, isr=(1, 2))
    world.brokers[1].manager.on_brokers_changed()

    assert answers == [{T0: (1, ErrorCode.NONE)}]


def test_produce_does_not_wait_for_a_replica_that_will_not_get_in_sync(world):
    """It had caught up with the others, and is gone; no other request comes along."""
    world.answers_isr_changes = False
    world.elect(1, isr=(1,))
    world.kill(2)
    world.advance(500)
    *_, (_, _, _, refuse) = world.isr_changes
    refuse(ErrorCode.INELIGIBLE_REPLICA)
    world.cut_off(3)
    world.advance(RETRY_BACKOFF_MS)
    answers = world.append(1, b"a", timeout_ms=60_000)
    world.advance(1_000)
    assert answers == []
    world.kill(3)
    world.brokers[1].manager.on_brokers_changed()
    world.run()

    assert errors(answers) == [ErrorCode.NONE]


def test_followers_hear_with_their_next_fetch_that_records_are_deleted(world):
    """Whatever it is that ends their long poll: here it is another partition."""
    world.create(topic_partition=T1)
    world.append(1, b"a", b"b")
    world.advance(1_200)
    delete(world, 1)
    world.append(1, b"x", topic_partition=T1)

    assert [world.brokers[broker_id].log().log_start_offset for broker_id in (1, 2, 3)] == [1] * 3


def test_followers_hear_with_their_next_fetch_of_what_was_committed_without_one(world):
    """The controller has taken the replica out that was waited for."""
    world.create(topic_partition=T1)
    world.answers_isr_changes = False
    world.cut_off(3)
    world.append(1, b"a", timeout_ms=60_000)
    world.advance(2 * LAG_MS)
    before = world.brokers[2].log().high_watermark
    world.answer_isr_changes()
    world.append(1, b"x", topic_partition=T1, acks=ACKS_LEADER)

    assert before == 0
    assert world.brokers[2].log().high_watermark == 1


def test_follower_whose_fetch_commits_something_is_told_so_in_the_answer():
    """Its readers get the records one round earlier."""
    world = ReplicaWorld(count=2)
    world.create(replicas=(1, 2))
    world.cut_off(2)
    world.append(1, b"a", acks=ACKS_LEADER)
    params = FetchParams(2, 0, 1, 1 << 20, IsolationLevel.READ_UNCOMMITTED)
    request = PartitionFetch(T0, TOPIC_ID, 1, 1 << 20)
    answers = []
    manager = world.brokers[1].manager
    for _ in range(2):
        manager.fetch_records(params, [request], lambda results: answers.append(dict(results)))
    first, second = answers
    request.told_high_watermark, request.told_log_start_offset = 1, 0
    manager.fetch_records(params, [request], answers.append)

    assert first[request.key].high_watermark == 1
    assert second[request.key].high_watermark == 1
    assert answers[2] == {}, "it has been told all there is"
    world.close()
