"""Batches of one pipeline, of which the broker refuses the first and could take the others.

librdkafka has five of them in flight, and after a gap sends again whatever is not acknowledged in
any partition, under a new epoch: what was appended under the old one is there twice.
"""

from __future__ import annotations

import errno

import pytest
from replica_world import T0, ReplicaWorld

from ottla.config.topic_config import TopicConfig
from ottla.errors import ErrorCode
from ottla.record.batch_builder import build_batch
from ottla.replication.absences import DOUBT_MS
from ottla.replication.partition_leader import PIPELINE_MS
from ottla.structs import TopicPartition

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def produce(world, broker_id, sequence, epoch=0):
    """Send one batch of producer 7 with acks=all; returns its answer, once there is one."""
    value = b"%d" % sequence
    header = {"producer_id": 7, "producer_epoch": epoch, "base_sequence": sequence}
    answers = world.append(broker_id, value, **header)
    world.advance(500)
    return answers[0].error


@pytest.fixture
def world():
    """Broker 1 leads, and producer 7 has written sequence 0."""
    world = ReplicaWorld()
    world.create()
    assert produce(world, 1, 0) is ErrorCode.NONE
    yield world
    world.close()


def test_batch_that_overtakes_one_from_before_the_broker_led_is_sent_again_in_order(world):
    """Two are in flight to the next leader, and it begins to lead between them."""
    assert produce(world, 2, 1) is NOT_LEADER
    world.elect(2)

    assert produce(world, 2, 2) is NOT_LEADER
    assert [produce(world, 2, sequence) for sequence in (1, 2)] == [ErrorCode.NONE] * 2
    assert world.values(2) == [(0, b"0"), (1, b"1"), (2, b"2")]


def test_first_batches_of_a_producer_do_not_overtake_each_other(world):
    """A new leader knows nothing of the producer: its second batch must not be taken first."""
    world.elect(2)
    header = {"producer_id": 8, "producer_epoch": 0}

    def error_of(sequence):
        answers = world.append(2, b"new", base_sequence=sequence, **header)
        world.advance(500)
        return answers[0].error

    assert [error_of(sequence) for sequence in (1, 0, 1)] == [
        NOT_LEADER,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]


def test_lost_record_is_found_out_once_the_producer_has_written_to_the_new_leader(world):
    """What is missing behind a batch of this leader epoch, this leader has not refused."""
    world.elect(2)
    assert produce(world, 2, 1) is ErrorCode.NONE

    assert produce(world, 2, 3) is OUT_OF_ORDER


@pytest.mark.parametrize("epoch", [0, 1])
def test_lost_record_is_found_out_when_a_pipeline_can_have_no_more_batches(world, epoch):
    """A gap that lasts is a lost record, in the producer's epoch and after it was raised."""
    world.elect(2)
    assert produce(world, 2, 3, epoch) is NOT_LEADER
    world.advance(PIPELINE_MS)

    assert produce(world, 2, 3, epoch) is OUT_OF_ORDER


def test_gap_is_not_kept_open_by_the_batches_that_come_behind_it(world):
    """They are sent again all the time, and each of them is refused because of the gap alone.

    Nobody was told of it then: the producer sent its batch again until it gave the records up.
    """
    world.elect(2)
    answers = [produce(world, 2, 3) for _ in range(PIPELINE_MS // 500 + 2)]

    assert answers[0] is NOT_LEADER
    assert answers[-1] is OUT_OF_ORDER


def test_gap_at_a_leader_that_did_not_run_is_for_its_successor(world):
    """The producer has written there meanwhile, as where a process was stopped; it goes back."""
    world.advance(PIPELINE_MS + 1_000)
    before = produce(world, 1, 5)
    world.runtime.clock.advance(13_000)
    after = [produce(world, 1, 5) for _ in range(DOUBT_MS // 500 + 3)]

    assert before is OUT_OF_ORDER
    assert after[0] is NOT_LEADER
    assert after[-1] is OUT_OF_ORDER


def test_batch_that_overtakes_one_from_before_there_were_enough_replicas_is_sent_again(world):
    """There are enough in-sync replicas for acks=all from one batch of a pipeline to the next."""
    world.advance(PIPELINE_MS + 1_000)
    broker = world.brokers[1]

    def require_in_sync(count):
        settings = {"min.insync.replicas": str(count)}
        broker.log().update_config(TopicConfig.of(broker.config, settings))

    require_in_sync(4)
    assert produce(world, 1, 1) is ErrorCode.NOT_ENOUGH_REPLICAS
    require_in_sync(3)

    assert produce(world, 1, 2) is NOT_LEADER
    assert [produce(world, 1, sequence) for sequence in (1, 2, 4)] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        OUT_OF_ORDER,
    ]


@pytest.mark.parametrize("operation", ["pwrite", "open"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_batch_behind_one_that_the_disk_refused_is_sent_again_in_order(world, operation, error):
    """Its write or the roll of its segment: the next one in flight is not out of order."""
    log = world.brokers[1].log()
    if operation == "open":
        log.update_config(TopicConfig.of(world.brokers[1].config, {"segment.bytes": "100"}))
    world.disks[1].fail(operation, "*.log", error=error)

    assert produce(world, 1, 1) is ErrorCode.KAFKA_STORAGE_ERROR
    assert produce(world, 1, 2) is NOT_LEADER
    assert [produce(world, 1, sequence) for sequence in (1, 2)] == [ErrorCode.NONE] * 2
    assert world.values(1) == [(0, b"0"), (1, b"1"), (2, b"2")]


def test_batch_behind_one_that_was_damaged_on_its_way_is_sent_again_in_order(world):
    """A retriable refusal of any kind: the client sends that one again."""
    header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 1}
    data = bytearray(build_batch([(1_000, None, b"1", ())], **header))
    data[-1] ^= 1
    answers = []
    manager = world.brokers[1].manager
    manager.append_records(1000, -1, {T0: memoryview(data)}, answers.append)
    world.advance(100)

    assert answers[0][T0].error is ErrorCode.CORRUPT_MESSAGE
    assert produce(world, 1, 2) is NOT_LEADER
    assert [produce(world, 1, sequence) for sequence in (1, 2)] == [ErrorCode.NONE] * 2


def test_topic_that_was_just_made_takes_a_producer_that_lives_on(world):
    """No broker led it before, so that none can have refused what comes before in its pipeline."""
    other = TopicPartition("t", 1)
    world.create(topic_partition=other)
    header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 41}
    answers = world.append(1, b"x", topic_partition=other, **header)
    world.advance(500)

    assert answers[0].error is ErrorCode.NONE


@pytest.mark.parametrize("is_new", [False, True])
def test_leader_of_records_that_are_there_may_have_refused_some(world, is_new):
    """Whether the controller calls the partition new or not."""
    other = TopicPartition("t", 1)
    world.create(topic_partition=other)
    world.append(1, b"x", topic_partition=other)
    world.advance(500)
    world.elect(2, topic_partition=other)
    state = world.states[other]
    epoch = state.leader_epoch + 1
    elected = state.leader_and_isr._replace(leader=1, leader_epoch=epoch, version=9)
    world.states[other] = state._replace(leader_and_isr=elected, is_new=is_new)
    world.tell(other)
    header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 41}
    answers = world.append(1, b"y", topic_partition=other, **header)
    world.advance(500)

    assert answers[0].error is NOT_LEADER
