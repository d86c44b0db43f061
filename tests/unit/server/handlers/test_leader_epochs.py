"""OffsetForLeaderEpoch in all its versions."""

import pytest
from transaction_broker import TransactionBroker

from ottla.errors import ErrorCode
from ottla.protocol.leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.message import decode, encode
from ottla.record.batch_builder import build_batch
from ottla.server.handlers.leader_epochs import LeaderEpochHandler


@pytest.fixture
def broker():
    """A broker whose log has offsets 0-1 of epoch 0 and offset 2 of epoch 3, in which it leads."""
    broker = TransactionBroker()
    for epoch in (0, 0, 3):
        batch = memoryview(bytearray(build_batch([(0, None, b"v", ())])))
        broker.log().append_as_leader(batch, epoch, now_ms=0)
    broker.replica_manager.partitions[("t", 0)].leader_epoch = 3
    return broker


def ask(broker, epoch, version=4, **fields):
    """Error, epoch and end offset, as the client reads them."""
    values = {"partition": 0, "leader_epoch": epoch, **fields}
    topic = OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(**values)])
    handler = LeaderEpochHandler(broker.replica_manager)
    answer = handler.handle_offset_for_leader_epoch(
        None, OffsetForLeaderEpochRequest(topics=[topic])
    )
    (end,) = decode(type(answer), version, encode(answer, version)).topics[0].partitions
    return end.error_code, end.leader_epoch, end.end_offset


@pytest.mark.parametrize("version", range(5))
def test_epoch_ends_where_the_next_one_begins(broker, version):
    """Version 0 does not say which epoch it is about."""
    known = version > 0
    assert ask(broker, 0, version) == (0, 0 if known else -1, 2)
    assert ask(broker, 3, version) == (0, 3 if known else -1, 3)


def test_epoch_without_records_is_answered_with_the_one_before(broker):
    """The follower goes on asking from there (KIP-279)."""
    assert ask(broker, 2) == (0, 0, 2)
    assert ask(broker, 4) == (0, -1, -1)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"current_leader_epoch": 3}, ErrorCode.NONE),
        ({"current_leader_epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 4}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"partition": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_asker_must_know_the_present_leader(broker, fields, error):
    """If it says whom it takes for it (KIP-320)."""
    assert ask(broker, 0, **fields)[0] == error
