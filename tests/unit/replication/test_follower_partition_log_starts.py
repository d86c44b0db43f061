"""Logs that begin late: records were deleted, perhaps from the middle of a batch."""

from __future__ import annotations

from replica_world import T0

from ottla.errors import ErrorCode
from ottla.record.batch_builder import build_batch
from ottla.runtime.scheduler import at_once
from ottla.structs import IsolationLevel


def delete_records(world, offset):
    answers = []
    world.brokers[1].manager.delete_records(5_000, {T0: offset}, answers.append)
    world.advance(1_200)
    return answers


def test_new_follower_takes_the_batch_that_the_leaders_log_begins_within(world):
    """It was sent back to before the log's start, there to its start, and so on for ever."""
    world.kill(3)
    world.elect(1, isr=(1, 2))
    world.append(1, *(b"%d" % number for number in range(10)))
    world.append(1, b"last")
    world.advance(200)
    assert delete_records(world, 5) == [{T0: (5, ErrorCode.NONE)}]

    world.start(3)
    world.tell(only=3)
    world.advance(3_000)

    log = world.brokers[3].log()
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5, 11, 11)
    assert world.values(3) == world.values(1)
    assert set(world.states[T0].leader_and_isr.isr) == {1, 2, 3}


def test_nothing_before_the_log_start_is_called_stable(world):
    """A reader of committed records was sent to where an open transaction began, and was reset."""
    partition = world.brokers[1].manager.partition(T0)
    partition.begin_verification(5, 0, 0).is_confirmed = True
    data = build_batch(
        [(0, None, b"v%d" % number, ()) for number in range(4)],
        producer_id=5,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    world.brokers[1].manager.append_records(
        1_000, -1, {T0: memoryview(bytearray(data))}, lambda results: None
    )
    world.advance(1_200)
    delete_records(world, 3)

    end = at_once(world.brokers[1].manager.fetch_offset(T0, -1, IsolationLevel.READ_COMMITTED, -1))
    assert (end.offset, partition.last_stable_offset) == (3, 3)
