"""Deletions of many offsets: several batches of tombstones, and what happens between them."""

from __future__ import annotations

import pytest
from group_world import Reply, World

from ottla.coordinator.group import deletion
from ottla.coordinator.group.classic_group import ClassicGroup
from ottla.coordinator.group.consumer.consumer_group import ConsumerGroup
from ottla.coordinator.group.deletion import TOMBSTONE_BYTES_PER_BATCH, Deletion
from ottla.coordinator.group.group import NOBODY
from ottla.coordinator.group.offsets import CommittedOffset, OffsetsWrite
from ottla.errors import ErrorCode
from ottla.protocol.group import DeleteGroupsRequest
from ottla.runtime.scheduler import at_once
from ottla.structs import TopicPartition

IN_A_BATCH = 3
COUNT = 2 * IN_A_BATCH + 1
PARTITIONS = [TopicPartition("t", number) for number in range(COUNT)]
IN_THE_LOG = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


@pytest.fixture
def world(monkeypatch):
    """A coordinator whose deletions take three batches."""
    monkeypatch.setattr(deletion, "TOMBSTONES_PER_BATCH", IN_A_BATCH)
    return World()


def fill(world, expire_ms=None):
    """The group has an offset in each partition, and one in another topic."""
    now_ms = world.runtime.clock.now_ms()
    end_ms = None if expire_ms is None else now_ms + expire_ms
    value = CommittedOffset(1, commit_timestamp_ms=now_ms, expire_timestamp_ms=end_ms)
    world.coordinator.commit_offsets("g", NOBODY, dict.fromkeys(PARTITIONS, value), lambda e: None)
    world.commit(1, topic="kept")


def expire(world):
    world.advance(2000)
    at_once(world.coordinator.expire_offsets())


def make_again(world):
    world.coordinator.manager.drop_topics({"t"})


@pytest.mark.parametrize("delete", [expire, make_again], ids=lambda each: each.__name__)
@pytest.mark.parametrize("partition", [0, IN_A_BATCH, COUNT - 1])
def test_offset_that_is_committed_between_two_batches_stays(world, delete, partition):
    """It was acknowledged, and the tombstones that come later are those of the one before."""
    fill(world, expire_ms=1000)
    world.log.hold = True
    delete(world)
    reply = world.commit(77, partition=partition)
    world.log.hold = False
    world.log.release()
    world.advance(100)

    assert reply.value is ErrorCode.NONE
    after = World(log=world.log)
    for each in (world, after):
        left = [number for number in range(COUNT) if each.committed(partition=number) is not None]
        assert (left, each.committed(partition=partition)) == ([partition], 77)
    assert world.coordinator.manager.differences(0) == []


@pytest.mark.parametrize("error", IN_THE_LOG, ids=lambda error: error.name)
@pytest.mark.parametrize("count", [IN_A_BATCH, COUNT])
def test_group_whose_deletion_was_not_stored_in_time_is_served_again(world, error, count):
    """Its first batch met one slow follower once: the group was said to be loading for ever."""
    values = dict.fromkeys(PARTITIONS[:count], CommittedOffset(1))
    world.coordinator.commit_offsets("g", NOBODY, values, lambda e: None)
    world.log.error = error
    reply = Reply()
    world.coordinator.delete_groups(DeleteGroupsRequest(groups_names=["g"]), reply)
    world.advance(10)
    world.log.error = ErrorCode.NONE
    world.advance(60_000)

    assert [each.error_code for each in reply.value.results] != [ErrorCode.NONE]
    assert world.commit(5, topic="other").value is ErrorCode.NONE
    assert world.delete("g") == {"g": ErrorCode.NONE}
    world.advance(1000)
    assert world.listed() == World(log=world.log).listed() == []


def test_batches_of_a_group_with_a_long_id_are_small():
    """A thousand keys with an id of 32,000 letters would be 32 MB."""
    group = ClassicGroup("g" * 32_000, 0)
    doomed = [TopicPartition("t", number) for number in range(30)]
    ended: list[bool] = []
    written = Deletion(group, list(doomed), lambda error: None, ended.append)
    batches = []
    while not written.is_written_out:
        batches.append(written.next_batch(0))
    written.end(is_written=True)
    written.end(is_written=False)

    assert [each for batch, _ in batches for each in batch] == doomed
    assert all(len(records) < 1.1 * TOMBSTONE_BYTES_PER_BATCH for _, records in batches)
    assert ended == [True]


def test_deletion_that_spares_an_offset_does_not_end_its_group():
    """The group has something left."""
    group = ClassicGroup("g", 0)
    ended: list[bool] = []
    written = Deletion(group, list(PARTITIONS), lambda error: None, ended.append)
    write = group.offsets.begin(OffsetsWrite({PARTITIONS[0]: CommittedOffset(1)}))
    group.offsets.settle(write, 5)
    batch, _ = written.next_batch(0)
    written.end(is_written=True)

    assert batch == PARTITIONS[1:]
    assert ended == [False]


def test_group_that_has_another_protocol_meanwhile_keeps_its_records(world):
    """What was left of the one before is not written over what the next one wrote."""
    fill(world)
    manager = world.coordinator.manager
    world.log.hold = True
    answers: list[ErrorCode] = []
    manager.delete_offsets(manager.group("g"), PARTITIONS, answers.append)
    manager.add_consumer_group(ConsumerGroup("g"))
    count = len(world.log.records())
    world.log.hold = False
    world.log.release()
    world.advance(1000)

    assert answers == [ErrorCode.NOT_COORDINATOR]
    assert len(world.log.records()) == count
