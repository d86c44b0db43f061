"""What a completed fetch gives: records or batches, in order, up to where it cannot be read."""

from __future__ import annotations

import random
import struct

import pytest
from message_sets import message, wrapper

from ottla import KafkaError, TopicPartition
from ottla.clients.consumer.completed_fetch import (
    LEAST_TO_DECOMPRESS_AHEAD,
    AbortedTransactions,
    CompletedFetch,
    Decoding,
    split_batches,
)
from ottla.clients.consumer.subscription_state import TopicPartitionState
from ottla.errors import ErrorCode
from ottla.record.batch_builder import build_batch, build_end_transaction_marker
from ottla.record.compression import CompressionType
from ottla.record.control_record import ControlRecordType, EndTransactionMarker
from ottla.record.record_batch import assign_offset

PARTITION = TopicPartition("pages", 0)
PRODUCER_ID = 7


def stored(offset: int, *values: bytes, epoch: int = 3, **header) -> bytearray:
    """A batch as a leader stores it."""
    batch = bytearray(build_batch([(1000, None, value, ()) for value in values], **header))
    assign_offset(batch, 0, offset, epoch)
    return batch


def in_transaction(offset: int, *values: bytes) -> bytearray:
    return stored(
        offset,
        *values,
        is_transactional=True,
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=0,
    )


def marker(offset: int, kind: ControlRecordType) -> bytearray:
    end = EndTransactionMarker(kind, coordinator_epoch=0)
    batch = bytearray(build_end_transaction_marker(end, 1000, PRODUCER_ID, 0))
    assign_offset(batch, 0, offset, 3)
    return batch


def damaged(batch: bytearray) -> bytearray:
    batch[-1] ^= 1
    return batch


def fetch(
    *parts, position: int = 0, aborted=None, check_crcs: bool = True, **decoding
) -> CompletedFetch:
    """A fetch of these bytes, at a position."""
    state = TopicPartitionState(PARTITION)
    state.position = position
    hidden = None if aborted is None else AbortedTransactions(aborted)
    how = Decoding(check_crcs, **decoding)
    return CompletedFetch(state, split_batches(b"".join(parts)), how, hidden)


def offsets(batches) -> list[int]:
    return [batch.base_offset for batch in batches]


def test_batches_are_taken_whole_and_the_position_moves_behind_them():
    """A first batch that begins before the position is taken as well; then nothing is left."""
    found = fetch(stored(0, b"a", b"b"), stored(2, b"c", epoch=4), position=1)

    assert offsets(found.take_batches()) == [0, 2]
    assert (found.state.position, found.state.leader_epoch) == (3, 4)
    assert found.is_empty
    assert found.take_batches() == []


def test_batches_before_the_position_are_left_out():
    """The position does not move back for them."""
    found = fetch(stored(0, b"a", b"b"), position=9)

    assert found.take_batches() == []
    assert found.state.position == 9


def test_batches_without_records_for_the_reader_are_passed():
    """Markers, and what was aborted."""
    found = fetch(
        in_transaction(0, b"aborted"),
        marker(1, ControlRecordType.ABORT),
        in_transaction(2, b"committed"),
        marker(3, ControlRecordType.COMMIT),
        stored(4, b"outside of transactions"),
        aborted=[(PRODUCER_ID, 0)],
    )

    assert offsets(found.take_batches()) == [2, 4]
    assert found.state.position == 5


def test_damaged_batch_comes_after_those_before_it():
    """What is good is returned first; then it raises, and the position stays at the damage."""
    found = fetch(stored(0, b"a"), damaged(stored(1, b"b")))

    assert offsets(found.take_batches()) == [0]
    assert not found.is_empty
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            found.take_batches()
        assert caught.value.error is ErrorCode.CORRUPT_MESSAGE
    assert found.state.position == 1


def test_bytes_that_are_no_batch_are_an_error_after_the_batches():
    """Such bytes are treated as a damaged batch."""
    broken = stored(1, b"b")
    broken[8:12] = bytes(4)  # its length
    found = fetch(stored(0, b"a"), broken)

    assert offsets(found.take_batches()) == [0]
    assert not found.is_empty
    with pytest.raises(KafkaError):
        found.take_batches()
    assert not found.is_empty


def test_records_are_taken_in_portions_from_the_position_on():
    """All fields are there; an error comes after the records before it."""
    found = fetch(stored(0, b"a", b"b", b"c"), damaged(stored(3, b"d")), position=1)

    (first,) = found.take(1)
    assert first == ("pages", 0, 1, 1000, 0, None, b"b", (), 3)
    assert found.state.position == 2
    assert [record.value for record in found.take(10)] == [b"c"]
    with pytest.raises(KafkaError):
        found.take(10)
    assert found.state.position == 3
    assert not found.is_empty


def test_portion_may_span_batches():
    """It has as many records as were asked for, and no more."""
    found = fetch(stored(0, b"a", b"b"), stored(2, b"c", b"d"))

    assert [record.offset for record in found.take(3)] == [0, 1, 2]
    assert found.state.position == 3
    assert [record.offset for record in found.take(3)] == [3]


def compacted(batch: bytearray, last_offset_delta: int, *, is_empty: bool = False) -> bytearray:
    """The batch after the cleaner has taken its last records, or all of them."""
    struct.pack_into(">i", batch, 23, last_offset_delta)
    if is_empty:
        del batch[61:]
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        struct.pack_into(">i", batch, 57, 0)
    return batch


@pytest.mark.parametrize("is_empty", [False, True])
def test_position_moves_over_what_compaction_has_removed(is_empty):
    """The position moves to the end of the batch, whose last records are gone."""
    batch = compacted(stored(0, b"a"), 4, is_empty=is_empty)
    found = fetch(batch, stored(5, b"b"), check_crcs=False)

    assert [record.offset for record in found.take(1)] == ([5] if is_empty else [0])
    assert found.state.position == (6 if is_empty else 5)
    assert [record.offset for record in found.take(1)] == ([] if is_empty else [5])


def test_records_before_the_position_are_left_out():
    """The position does not move back for a batch of such records."""
    found = fetch(stored(0, b"a", b"b"), position=9)

    assert found.take(9) == []
    assert found.state.position == 9


def test_fetch_whose_records_are_taken_is_empty():
    """The fetch is not empty before more is asked for than it had."""
    found = fetch(stored(0, b"a", b"b"))

    assert [len(found.take(2)), found.is_empty] == [2, False]
    assert [found.take(2), found.is_empty] == [[], True]


def test_position_moves_over_what_is_not_read():
    """A reader of committed records passes an aborted transaction and its marker."""
    found = fetch(
        in_transaction(0, b"x", b"y"),
        marker(2, ControlRecordType.ABORT),
        aborted=[(PRODUCER_ID, 0)],
    )

    assert found.take(10) == []
    assert found.state.position == 3


def upper(topic: str, data: bytes) -> str:
    if data == b"bad":
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "cannot deserialize")
    return f"{topic} {data.decode().upper()}"


def test_values_are_deserialized_and_none_stays_none():
    """Keys and values each have their own; the topic is said."""
    batch = bytearray(build_batch([(1, b"k", b"v", ()), (1, None, None, ())]))
    found = fetch(batch, deserialize_key=upper, deserialize_value=upper)

    records = found.take(10)
    assert [(r.key, r.value) for r in records] == [("pages K", "pages V"), (None, None)]


@pytest.mark.parametrize("name", ["deserialize_key", "deserialize_value"])
def test_one_deserializer_leaves_the_other_side_bytes(name):
    """Only one of the two was set."""
    batch = bytearray(build_batch([(1, b"k", b"v", ())]))
    ((key, value),) = [(r.key, r.value) for r in fetch(batch, **{name: upper}).take(1)]

    assert (key, value) in {("pages K", b"v"), (b"k", "pages V")}
    assert isinstance(key, str) is (name == "deserialize_key")


def test_record_that_cannot_be_deserialized_is_named_after_those_before_it():
    """Its offset is in the text; the position stays at it."""
    found = fetch(stored(5, b"a", b"bad", b"c"), position=5, deserialize_value=upper)

    assert [record.value for record in found.take(10)] == ["pages A"]
    for _ in range(2):
        with pytest.raises(KafkaError, match="pages-0 offset 6: cannot deserialize; seek past it"):
            found.take(10)
    assert found.state.position == 6


def test_damage_is_not_looked_for_where_that_is_not_wanted():
    """The setting check.crcs=false leaves out the check."""
    found = fetch()
    batches = split_batches(bytes(damaged(stored(0, b"a"))))
    found = CompletedFetch(found.state, batches, Decoding(check_crcs=False), None)

    assert offsets(found.take_batches()) == [0]


LARGE = random.Random(1).randbytes(LEAST_TO_DECOMPRESS_AHEAD)


def in_gzip(*values: bytes) -> bytearray:
    batch = [(1000, None, value, ()) for value in values]
    data = bytearray(build_batch(batch, CompressionType.GZIP))
    assign_offset(data, 0, 0, 3)
    return data


@pytest.mark.parametrize(
    ("data", "is_compressed"),
    [
        (in_gzip(LARGE), True),
        (in_gzip(b"small"), False),
        (in_gzip(bytes(10 * len(LARGE))), False),
        (stored(0, LARGE), False),
        (wrapper(0, message(0, None, LARGE)), False),
        (b"", False),
    ],
    ids=["large", "small", "small when sent", "not compressed", "message set", "nothing"],
)
def test_large_batch_is_decompressed_ahead(data, is_compressed):
    """Once, and only where that is wanted; what it holds is read in the same way."""
    ahead, not_ahead = fetch(data, is_ahead=True), fetch(data)

    assert ahead.is_compressed is is_compressed
    assert not not_ahead.is_compressed
    if is_compressed:
        ahead.put_payload(ahead.next_payload()())
        assert not ahead.is_compressed
    assert ahead.take(10) == not_ahead.take(10)
    assert ahead.state.position == not_ahead.state.position == (1 if data else 0)
