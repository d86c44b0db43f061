"""Sequence numbers, epochs, duplicates, transactions, expiry and snapshots of producers."""

from __future__ import annotations

import struct

import pytest
from log_world import NOW_MS, PARTITION, new_batch

from ottla.errors import ErrorCode, KafkaError
from ottla.log import producer_snapshot, producer_state_manager
from ottla.log.producer_state_entry import BatchMetadata, is_behind
from ottla.log.producer_state_manager import NO_SEQUENCE, ProducerStateManager
from ottla.log.transaction_index import AbortedTxn
from ottla.record.batch_builder import build_batch
from ottla.record.record_batch import RecordBatch
from ottla.runtime.scheduler import at_once
from ottla.testing import MemoryDisk

MAX_SEQUENCE = 2**31 - 1
DAY_MS = 86_400_000


def new_manager(disk: MemoryDisk | None = None) -> ProducerStateManager:
    return ProducerStateManager(disk or MemoryDisk(), PARTITION, "/", DAY_MS)


def batch(
    sequence: int, count: int = 1, epoch: int = 0, base_offset: int = 0, **header
) -> RecordBatch:
    data = new_batch(
        *[b"v"] * count,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
        base_offset=base_offset,
        **header,
    )
    return RecordBatch(data)


def append(manager: ProducerStateManager, sequence: int, count: int = 1, epoch: int = 0) -> None:
    """Append as a log does, with offset = sequence + 100."""
    sent = batch(sequence, count, epoch)
    assert manager.check(sent) is None
    manager.append(sent, 100 + sequence, NOW_MS)


def error_of(manager: ProducerStateManager, sequence: int, epoch: int = 0) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        manager.check(batch(sequence, epoch=epoch))
    return caught.value.error


def refusal(manager: ProducerStateManager, refused: RecordBatch) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        manager.check(refused)
    return caught.value.error


def marker(
    control_type: int, base_offset: int, epoch: int = 0, coordinator_epoch: int = 3
) -> RecordBatch:
    key = struct.pack(">hh", 0, control_type)
    value = struct.pack(">hi", 0, coordinator_epoch)
    return RecordBatch(
        build_batch(
            [(NOW_MS, key, value, ())],
            base_offset=base_offset,
            producer_id=7,
            producer_epoch=epoch,
            is_transactional=True,
            is_control=True,
        )
    )


@pytest.mark.parametrize("sequence", [0, 5, MAX_SEQUENCE])
def test_unknown_producer_may_begin_anywhere(sequence):
    """Its older batches may have been deleted (KIP-360)."""
    append(new_manager(), sequence)


def test_batches_must_follow_each_other():
    """A gap and a step back are both out of order."""
    manager = new_manager()
    append(manager, 0, count=3)
    append(manager, 3)

    assert error_of(manager, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert error_of(manager, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_any_of_the_last_five_batches_is_recognised_as_a_duplicate():
    """It is answered with the offset of its first copy; an older one is out of order."""
    manager = new_manager()
    for sequence in range(6):
        append(manager, sequence)

    for sequence in range(1, 6):
        duplicate = manager.check(batch(sequence))
        assert duplicate is not None
        assert duplicate.first_offset == 100 + sequence
    assert error_of(manager, 0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_duplicate_has_the_same_first_and_last_sequence():
    """A batch that overlaps with an older one is no duplicate of it."""
    manager = new_manager()
    append(manager, 0, count=4)

    assert manager.check(batch(0, count=4)) == BatchMetadata(3, 103, 3, NOW_MS)
    with pytest.raises(KafkaError, match="OUT_OF_ORDER"):
        manager.check(batch(0, count=3))


def test_sequence_wraps_after_the_largest_int32():
    """0 follows 2^31-1, between batches and within one."""
    manager = new_manager()
    append(manager, MAX_SEQUENCE)
    append(manager, 0)
    other = new_manager()
    append(other, MAX_SEQUENCE - 1, count=4)
    append(other, 2)

    duplicate = other.check(batch(MAX_SEQUENCE - 1, count=4))
    assert duplicate is not None
    assert duplicate.first_sequence == MAX_SEQUENCE - 1


def test_newer_epoch_begins_with_zero():
    """It also ends what could be recognised of the older one."""
    manager = new_manager()
    append(manager, 0)

    assert error_of(manager, 1, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(manager, 0, epoch=1)
    append(manager, 1, epoch=1)


@pytest.mark.parametrize(("sequence", "epoch"), [(2, 0), (1, 1)])
def test_gap_behind_refused_batches_is_not_a_lost_record(sequence, epoch):
    """Batches were refused when the log ended at 101: those that are missing are sent again."""
    manager = new_manager()
    append(manager, 0)
    late = batch(sequence, epoch=epoch)

    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        manager.check(late, refused_end=101)
    with pytest.raises(KafkaError, match="OUT_OF_ORDER"):
        manager.check(late, refused_end=100)  # the producer has written since


def test_unknown_producer_begins_with_zero_where_batches_were_refused():
    """Its first batch may be among those: what follows must not be taken in its place."""
    manager = new_manager()

    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        manager.check(batch(1), refused_end=0)
    assert manager.check(batch(0), refused_end=0) is None


def test_step_back_is_out_of_order_also_behind_refused_batches():
    """A batch that comes before what was written was never overtaken by it."""
    manager = new_manager()
    for sequence in range(7):
        append(manager, sequence)

    with pytest.raises(KafkaError, match="OUT_OF_ORDER"):
        manager.check(batch(1), refused_end=200)


@pytest.mark.parametrize(
    ("sequence", "later", "expected"),
    [
        (0, 1, True),
        (MAX_SEQUENCE, 0, True),
        (NO_SEQUENCE, 5, True),
        (1, 0, False),
        (5, 5, False),
        (0, MAX_SEQUENCE, False),
    ],
)
def test_sequence_is_behind_the_ones_that_come_next(sequence, later, expected):
    """Numbers wrap, so half of them come after any one."""
    assert is_behind(sequence, later) is expected


def test_older_epoch_is_fenced():
    """Another producer has taken over the id."""
    manager = new_manager()
    append(manager, 0, epoch=4)

    assert error_of(manager, 1, epoch=3) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_replayed_batches_make_the_same_state_as_appended_ones():
    """The log is all that is needed."""
    appended, replayed = new_manager(), new_manager()
    for sequence in range(3):
        append(appended, sequence)
        assert replayed.replay(batch(sequence, base_offset=100 + sequence)) is None

    assert replayed.producers == appended.producers
    assert replayed.end_offset == 103


def test_open_transaction_holds_back_readers_of_committed_records():
    """Until its marker is on all replicas; a commit leaves nothing behind."""
    manager = new_manager()
    manager.replay(batch(0, base_offset=10, is_transactional=True))
    manager.replay(batch(1, base_offset=11, is_transactional=True))
    assert manager.first_unstable_offset == 10

    assert manager.replay(marker(1, 12)) is None
    assert manager.first_unstable_offset == 10
    manager.on_high_watermark(12)
    assert manager.first_unstable_offset == 10
    manager.on_high_watermark(13)
    assert manager.first_unstable_offset is None
    assert manager.producers[7].coordinator_epoch == 3


def test_transaction_begins_only_where_the_coordinator_has_confirmed_it():
    """Without that, and with another epoch, the batch is one that came late (KIP-890)."""
    manager = new_manager()
    first = batch(0, is_transactional=True)
    assert refusal(manager, first) is ErrorCode.INVALID_TXN_STATE

    verification = manager.begin_verification(7, 0, 0)
    assert refusal(manager, first) is ErrorCode.INVALID_TXN_STATE
    verification.is_confirmed = True
    assert manager.check(first) is None
    assert refusal(manager, batch(0, epoch=1, is_transactional=True)) is (
        ErrorCode.INVALID_TXN_STATE
    )
    manager.append(first, 10, NOW_MS)
    assert manager.begin_verification(7, 0, 0) is None
    assert manager.check(batch(1, is_transactional=True)) is None


def test_batch_does_not_overtake_one_that_could_not_be_confirmed():
    """An unknown producer may begin anywhere, but with the lowest that was asked for."""
    manager = new_manager()
    for sequence in (7, 8, 6):
        verification = manager.begin_verification(7, 0, sequence)
    verification.is_confirmed = True  # by the answer for the last one

    assert refusal(manager, batch(7, is_transactional=True)) is (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert manager.check(batch(6, is_transactional=True)) is None
    manager.append(batch(6, is_transactional=True), 10, NOW_MS)
    assert manager.check(batch(7, is_transactional=True)) is None


def test_newer_epoch_is_not_held_up_by_what_an_older_one_had_asked():
    """A late batch of an older epoch does not take the newer one's confirmation away."""
    manager = new_manager()
    manager.begin_verification(7, 0, 0)
    manager.begin_verification(7, 1, 5).is_confirmed = True
    manager.begin_verification(7, 0, 3).is_confirmed = True

    assert manager.check(batch(5, epoch=1, is_transactional=True)) is None
    assert refusal(manager, batch(3, is_transactional=True)) is ErrorCode.INVALID_TXN_STATE


def test_question_that_no_batch_followed_is_forgotten():
    """Its producer is not known, and cannot expire with what it has written."""
    manager = new_manager()
    manager.begin_verification(7, 0, 0)
    at_once(manager.remove_expired(NOW_MS))
    at_once(manager.remove_expired(NOW_MS + DAY_MS - 1))
    assert 7 in manager.verifications
    at_once(manager.remove_expired(NOW_MS + DAY_MS))

    assert 7 not in manager.verifications


def test_marker_takes_a_confirmation_back():
    """The transaction has ended between the question and the batch."""
    manager = new_manager()
    manager.begin_verification(7, 0, 0).is_confirmed = True
    manager.replay(marker(0, 15))

    assert refusal(manager, batch(0, is_transactional=True)) is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("is_reloaded", [False, True])
@pytest.mark.parametrize("is_commit", [False, True])
@pytest.mark.parametrize(("sequence", "count"), [(8, 1), (9, 1), (8, 2), (9, 3), (7, 2), (0, 1)])
def test_transaction_begins_with_no_number_of_one_that_has_ended(
    sequence, count, is_commit, is_reloaded
):
    """An answer as to a duplicate would let records be committed that are in no log."""
    disk = MemoryDisk()
    manager = new_manager(disk)
    manager.replay(batch(7, base_offset=10, is_transactional=True))
    manager.replay(batch(8, 2, base_offset=11, is_transactional=True))
    again = batch(sequence, count, is_transactional=True)
    manager.replay(marker(int(is_commit), 13))
    if is_reloaded:
        manager.take_snapshot(14)
        manager.load_snapshot(0, 14)
    manager.begin_verification(7, 0, sequence).is_confirmed = True

    assert refusal(manager, again) is ErrorCode.UNKNOWN_PRODUCER_ID
    assert manager.check(batch(10, is_transactional=True)) is None
    assert refusal(manager, batch(11, is_transactional=True)) is (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert manager.check(batch(0, epoch=1)) is None


def test_retry_within_its_transaction_is_a_duplicate():
    """Whatever transactions came before."""
    manager = new_manager()
    manager.replay(batch(0, base_offset=10, is_transactional=True))
    manager.replay(marker(0, 11))
    manager.replay(batch(1, base_offset=12, is_transactional=True))

    repeated = manager.check(batch(1, is_transactional=True))
    assert repeated is not None
    assert repeated.first_offset == 12


def test_plain_batch_within_an_open_transaction_is_refused():
    """It would be neither in the transaction nor outside of it."""
    manager = new_manager()
    manager.replay(batch(0, base_offset=10, is_transactional=True))

    assert refusal(manager, batch(1)) is ErrorCode.INVALID_TXN_STATE


def test_coordinator_of_an_older_epoch_is_fenced():
    """Both as to the producer's epoch and as to its own."""
    manager = new_manager()
    manager.check_coordinator(marker(1, 10, epoch=1))
    manager.replay(marker(1, 10, epoch=1))
    manager.check_coordinator(marker(1, 11, epoch=1))

    for late, error in (
        (marker(1, 11, epoch=0), ErrorCode.INVALID_PRODUCER_EPOCH),
        (marker(1, 11, epoch=1, coordinator_epoch=2), ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ):
        with pytest.raises(KafkaError) as caught:
            manager.check_coordinator(late)
        assert caught.value.error is error


def test_abort_marker_gives_the_aborted_transaction():
    """With its first and last offset and where the next open one begins."""
    manager = new_manager()
    manager.replay(batch(0, base_offset=10, is_transactional=True))

    assert manager.replay(marker(0, 15)) == AbortedTxn(7, 10, 15, 16)


def test_marker_with_a_newer_epoch_fences_the_older_one():
    """The coordinator has aborted on behalf of a producer that is gone."""
    manager = new_manager()
    append(manager, 0)
    manager.replay(marker(0, 150, epoch=1))

    assert error_of(manager, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    append(manager, 0, epoch=1)


def test_idle_producers_expire_unless_a_transaction_is_open():
    """After producer.id.expiration.ms, from the first look behind the last batch on."""
    manager = new_manager()
    append(manager, 0)

    assert [at_once(manager.remove_expired(ms)) for ms in (0, DAY_MS - 1)] == [0, 0]
    append(manager, 1)
    assert [at_once(manager.remove_expired(ms)) for ms in (DAY_MS, 2 * DAY_MS - 1)] == [0, 0]
    assert at_once(manager.remove_expired(2 * DAY_MS)) == 1
    manager.replay(batch(0, base_offset=10, is_transactional=True))
    assert [at_once(manager.remove_expired(days * DAY_MS)) for days in (2, 4)] == [0, 0]


@pytest.mark.parametrize("timestamp_ms", [-1, 0, NOW_MS - 2 * DAY_MS, NOW_MS + 2 * DAY_MS])
def test_producer_expires_by_the_brokers_clock(timestamp_ms):
    """Records of another day take nothing from a producer, and give it nothing."""
    manager = new_manager()
    sent = batch(0, timestamp_ms=timestamp_ms)
    manager.append(sent, 100, timestamp_ms)

    assert at_once(manager.remove_expired(NOW_MS)) == 0
    assert at_once(manager.remove_expired(NOW_MS + DAY_MS - 1)) == 0
    assert manager.check(sent) is not None
    assert at_once(manager.remove_expired(NOW_MS + DAY_MS)) == 1


def test_loaded_producer_counts_as_seen_when_it_was_loaded():
    """How long the broker was down does not matter: a retry that comes after that is known."""
    manager = new_manager()
    manager.replay(batch(0, base_offset=10, timestamp_ms=5))

    assert at_once(manager.remove_expired(NOW_MS)) == 0
    assert at_once(manager.remove_expired(NOW_MS + DAY_MS - 1)) == 0
    assert at_once(manager.remove_expired(NOW_MS + DAY_MS)) == 1


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("before_the_end", [0, 1, 3, 4])
def test_sequences_go_on_at_zero_behind_the_largest(before_the_end, count):
    """Wherever in a batch they do: the next is taken, a retry is known, a gap is found."""
    manager = new_manager()
    first = MAX_SEQUENCE - before_the_end
    sent = batch(first, count)
    assert manager.check(sent) is None
    manager.append(sent, 100, NOW_MS)
    following = (first + count) % (MAX_SEQUENCE + 1)
    assert manager.check(sent).first_sequence == first

    gap = batch((following + 1) % (MAX_SEQUENCE + 1))
    assert refusal(manager, gap) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    with pytest.raises(KafkaError, match="NOT_LEADER"):
        manager.check(gap, refused_end=1_000)
    next_batch = batch(following, count)
    assert manager.check(next_batch) is None
    manager.append(next_batch, 200, NOW_MS)
    assert manager.check(sent).first_sequence == first
    manager.take_snapshot(300)
    again = new_manager(manager._disk)
    again.find_snapshots(manager._disk.list_dir("/"))
    again.load_snapshot(0, 300)
    assert again.producers[7].last_sequence == manager.producers[7].last_sequence
    assert again.check(next_batch).first_sequence == following


def test_snapshot_is_loaded_back():
    """The newest one up to the offset."""
    disk = MemoryDisk()
    manager = new_manager(disk)
    append(manager, 0)
    manager.take_snapshot(101)
    append(manager, 1)
    manager.take_snapshot(102)
    loaded = new_manager(disk)
    loaded.find_snapshots(disk.list_dir("/"))
    loaded.load_snapshot(0, 101)

    assert disk.list_dir("/") == [f"{offset:020d}.snapshot" for offset in (101, 102)]
    assert loaded.end_offset == 101
    assert loaded.producers[7].last_sequence == 0


def test_marker_is_a_sign_of_life_of_its_producer():
    """The time of the transaction's end counts, and tools are told of it."""
    manager = new_manager()
    manager.replay(batch(0, base_offset=10, is_transactional=True, timestamp_ms=1_000))
    at_once(manager.remove_expired(NOW_MS))
    manager.replay(marker(1, 11))

    assert manager.producers[7].last_timestamp_ms == NOW_MS
    assert at_once(manager.remove_expired(NOW_MS + DAY_MS)) == 0
    assert at_once(manager.remove_expired(NOW_MS + 2 * DAY_MS - 1)) == 0
    assert at_once(manager.remove_expired(NOW_MS + 2 * DAY_MS)) == 1


def test_damaged_snapshot_is_dropped_for_an_older_one():
    """A damaged snapshot is dropped for an older one; without one nothing is known."""
    disk = MemoryDisk()
    manager = new_manager(disk)
    append(manager, 0)
    manager.take_snapshot(101)
    append(manager, 1)
    manager.take_snapshot(102)
    disk.open(manager.snapshot_path(102)).truncate(20)
    manager.load_snapshot(50, 200)
    assert (manager.end_offset, manager.producers[7].last_sequence) == (101, 0)

    disk.open(manager.snapshot_path(101)).truncate(20)
    manager.load_snapshot(50, 200)
    assert (manager.end_offset, manager.producers) == (50, {})
    assert disk.list_dir("/") == []


def test_open_transactions_are_in_the_snapshot():
    """They are as open after a restart."""
    disk = MemoryDisk()
    manager = new_manager(disk)
    manager.replay(batch(0, base_offset=10, is_transactional=True))
    manager.take_snapshot(11)
    manager.load_snapshot(0, 11)

    assert manager.first_unstable_offset == 10


def test_state_of_a_log_that_begins_anew_is_empty():
    """No producer, no transaction, and no answer of a coordinator is left."""
    manager = new_manager()
    assert manager.end_offset == 0
    for producer_id, base_offset in ((7, 0), (8, 5)):
        header = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        sent = RecordBatch(new_batch(b"v", is_transactional=True, **header))
        manager.append(sent, base_offset, NOW_MS)
    manager.unreplicated_txns[3] = 4
    manager.begin_verification(9, 0, 0).is_confirmed = True
    manager.clear(50)

    assert (manager.producers, manager.end_offset) == ({}, 50)
    assert manager.first_unstable_offset is None
    assert not manager.begin_verification(9, 0, 0).is_confirmed


def test_snapshot_replaces_the_state_with_its_transactions_in_order():
    """The oldest one is open first, whatever the ids; what was known beside is forgotten."""
    disk = MemoryDisk()
    manager = new_manager(disk)
    for producer_id, base_offset in ((9, 3), (7, 10), (8, 12)):
        header = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        sent = RecordBatch(new_batch(b"v", is_transactional=True, **header))
        manager.append(sent, base_offset, NOW_MS + base_offset)
    manager.producers = dict(sorted(manager.producers.items()))
    manager.take_snapshot(20)
    assert manager.end_offset == 20
    manager.unreplicated_txns[1] = 2
    manager.begin_verification(5, 0, 0).is_confirmed = True
    manager.load_snapshot(0, 20)

    assert list(manager.ongoing_txns.items()) == [(3, 9), (10, 7), (12, 8)]
    assert manager.first_unstable_offset == 3
    assert [manager.producers[each].last_timestamp_ms - NOW_MS for each in (9, 7)] == [3, 10]
    assert not manager.begin_verification(5, 0, 0).is_confirmed
    assert disk.open_files == []


def test_snapshot_that_is_taken_again_is_as_long_as_its_state():
    """A producer has expired meanwhile."""
    disk = MemoryDisk()
    manager = new_manager(disk)
    append(manager, 0)
    manager.take_snapshot(101)
    size = disk.file_size(manager.snapshot_path(101))
    manager.producers.clear()
    manager.take_snapshot(101)

    assert disk.file_size(manager.snapshot_path(101)) < size
    assert manager.snapshot_offsets == (101,)
    manager.load_snapshot(0, 101)
    assert (manager.producers, manager.end_offset) == ({}, 101)


def test_snapshots_are_found_among_the_files_of_a_log():
    """Not those that are being deleted, and no other files."""
    manager = new_manager()
    names = [f"{9:020d}.snapshot", f"{5:020d}.snapshot", f"{7:020d}.log", "partition.metadata"]
    manager.find_snapshots([*names, f"{8:020d}.snapshot.deleted"])

    assert manager.snapshot_offsets == (5, 9)


def test_duplicate_is_told_its_offsets():
    """Of its first record and of its last."""
    manager = new_manager()
    append(manager, 0, 5)
    known = manager.check(batch(0, 5))

    assert (known.first_offset, known.last_offset) == (100, 104)
    assert known.first_sequence == 0


def test_batches_of_an_older_epoch_are_no_duplicates():
    """A newer one counts from 0 again, and has no batch with the number of an old one."""
    manager = new_manager()
    for sequence in range(5):
        append(manager, sequence)
    append(manager, 0, epoch=1)

    assert error_of(manager, 3, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_coordinator_writes_within_a_confirmed_transaction_only():
    """Offsets that a transaction commits are not numbered, and checked all the same."""
    manager = new_manager()
    offsets = batch(0, is_transactional=True)
    for is_confirmed in (False, True):
        manager.begin_verification(7, 0, 0).is_confirmed = is_confirmed
        if is_confirmed:
            manager.check_coordinator(offsets)
        else:
            with pytest.raises(KafkaError) as caught:
                manager.check_coordinator(offsets)
            assert caught.value.error is ErrorCode.INVALID_TXN_STATE


def test_answer_of_the_coordinator_is_used_up():
    """By the batch that opens the transaction, or with the producer that has expired."""
    manager = new_manager()
    manager.begin_verification(7, 0, 0).is_confirmed = True
    manager.append(batch(0, is_transactional=True), 0, NOW_MS)
    assert manager.verifications == {}

    manager = new_manager()
    append(manager, 0)
    at_once(manager.remove_expired(NOW_MS))
    at_once(manager.remove_expired(NOW_MS + DAY_MS - 1))
    manager.begin_verification(7, 0, 1)
    assert at_once(manager.remove_expired(NOW_MS + DAY_MS)) == 1
    assert manager.verifications == {}


def test_expiry_pauses_among_many_producers(monkeypatch, core_source):
    """One that writes meanwhile stays, and one that is gone is no trouble."""
    monkeypatch.setattr(producer_state_manager, "PRODUCERS_IN_A_SLICE", 2)
    manager = new_manager()

    def write(producer_id: int, sequence: int) -> None:
        data = new_batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        manager.append(RecordBatch(data), 100 + producer_id + sequence, NOW_MS)

    for producer_id in range(1, 7):
        write(producer_id, 0)
    at_once(manager.remove_expired(0))
    work = manager.remove_expired(DAY_MS)
    next(work)
    assert list(manager.producers) == [2, 3, 4, 5, 6]
    write(4, 1)
    del manager.producers[5]

    assert at_once(work) == 4
    assert list(manager.producers) == [4]


def test_snapshots_of_many_producers_follow_each_change(monkeypatch, core_source):
    """Batches, the ends of transactions, expiry; also of those that another snapshot had."""
    monkeypatch.setattr(producer_state_manager, "MANY_PRODUCERS", 2)
    monkeypatch.setattr(producer_state_manager, "PRODUCERS_IN_A_SLICE", 2)
    monkeypatch.setattr(producer_snapshot, "CHANGED_AT_ONCE", 2)
    disk = MemoryDisk()
    manager = new_manager(disk)

    def write(producer_id: int, sequence: int = 0) -> None:
        data = new_batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        manager.append(RecordBatch(data), 100 + sequence, NOW_MS)

    def check(offset: int) -> None:
        manager.take_snapshot(offset)
        again = new_manager(disk)
        again.find_snapshots(disk.list_dir("/"))
        again.load_snapshot(0, offset)
        assert again.producers == manager.producers

    for producer_id in (1, 2, 3, 4, 5):
        write(producer_id)
    manager.replay(batch(0, base_offset=110, is_transactional=True))
    check(200)
    manager.replay(marker(1, 211))
    check(300)
    assert [at_once(manager.remove_expired(ms)) for ms in (0, DAY_MS, DAY_MS)] == [0, 6, 0]
    check(400)
    write(1)
    check(500)
    manager.load_snapshot(0, 300)
    write(8)
    check(600)
