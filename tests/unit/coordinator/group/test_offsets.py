"""Commits, deletions and ends of transactions in any order, and which offsets expire."""

from uuid import UUID

import pytest

from ottla.coordinator.group.offsets import (
    CommittedOffset,
    GroupOffsets,
    OffsetsWrite,
)
from ottla.structs import NO_OFFSET, TopicPartition, TxnProducer

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def committed_at(timestamp_ms, expire_timestamp_ms=None):
    """An offset with this commit time."""
    return CommittedOffset(
        1, commit_timestamp_ms=timestamp_ms, expire_timestamp_ms=expire_timestamp_ms
    )


def expired(offsets, now_ms, subscribed=()):
    """What has expired after 100 ms without a commit."""
    partitions = offsets.known()
    return offsets.expired(
        now_ms, 100, lambda value: value.commit_timestamp_ms, partitions, subscribed
    )


def producer(producer_id=7, epoch=0, session=5):
    """A producer with a transaction."""
    return TxnProducer("x", producer_id, epoch, session)


def holding(values):
    """A group with these offsets, in the order of the log."""
    offsets = GroupOffsets()
    for place, (partition, value) in enumerate(values.items()):
        offsets.put(place, partition, value)
    return offsets


def test_offset_is_not_seen_before_it_is_in_the_log():
    """What is on its way could still be lost."""
    offsets = GroupOffsets()
    write = offsets.begin(OffsetsWrite({T0: CommittedOffset(5)}))
    assert offsets.get(T0) is None
    assert offsets.has_pending
    assert list(offsets.known()) == [T0]
    offsets.settle(write, 0)

    assert offsets.get(T0) == CommittedOffset(5)
    assert not offsets.has_pending


def test_later_written_commit_stays_whichever_is_acknowledged_first():
    """The log is read in the order of writing, so memory must agree with that."""
    offsets = GroupOffsets()
    first = offsets.begin(OffsetsWrite({T0: CommittedOffset(10)}))
    second = offsets.begin(OffsetsWrite({T0: CommittedOffset(20)}))
    offsets.settle(second, 1)
    offsets.settle(first, 0)

    assert offsets.get(T0) == CommittedOffset(20)


def test_records_of_one_batch_have_places_of_their_own():
    """A batch begins at its offset; each record in it is one further."""
    offsets = GroupOffsets()
    write = offsets.begin(OffsetsWrite({T0: CommittedOffset(1), T1: CommittedOffset(2)}))
    offsets.settle(write, 8)
    offsets.delete(8, T0)
    offsets.delete(9, T1)
    assert offsets.all() == {T0: CommittedOffset(1), T1: CommittedOffset(2)}

    offsets.delete(9, T0)
    offsets.delete(10, T1)
    assert offsets.all() == {}


def test_commit_that_did_not_get_into_the_log_leaves_the_one_before():
    """A failed write changes nothing."""
    offsets = holding({T0: CommittedOffset(5)})
    offsets.settle(offsets.begin(OffsetsWrite({T0: CommittedOffset(6)})), NO_OFFSET)

    assert offsets.get(T0) == CommittedOffset(5)
    assert not offsets.has_pending


@pytest.mark.parametrize("deletion_first", [True, False])
def test_deletion_takes_the_commit_before_it_whichever_is_acknowledged_first(deletion_first):
    """A commit on its way once came back to life when it was acknowledged after its deletion."""
    offsets = holding({T0: CommittedOffset(1)})
    write = offsets.begin(OffsetsWrite({T0: CommittedOffset(5)}))
    if deletion_first:
        offsets.delete(8, T0)
        offsets.settle(write, 7)
    else:
        offsets.settle(write, 7)
        offsets.delete(8, T0)

    assert offsets.get(T0) is None
    assert offsets.has_nothing_but(())


def test_commit_after_a_deletion_stays():
    """Whichever is acknowledged first."""
    offsets = holding({T0: CommittedOffset(1)})
    write = offsets.begin(OffsetsWrite({T0: CommittedOffset(5)}))
    offsets.settle(write, 8)
    offsets.delete(7, T0)

    assert offsets.get(T0) == CommittedOffset(5)


def test_offsets_expire_by_age():
    """An offset is gone when the retention time has passed, not before."""
    offsets = holding({T0: committed_at(0), T1: committed_at(50)})

    assert expired(offsets, 99) == []
    assert expired(offsets, 100) == [T0]
    assert expired(offsets, 150) == [T0, T1]


def test_own_retention_time_of_a_client_counts_alone():
    """An expiry time that came with the commit overrules the broker's."""
    offsets = holding({T0: committed_at(0, expire_timestamp_ms=10), T1: committed_at(0, 500)})

    assert expired(offsets, 10) == [T0]
    assert expired(offsets, 499) == [T0]


def test_offsets_in_use_do_not_expire():
    """Topics that members read and partitions with a commit under way are left alone."""
    offsets = holding({T0: committed_at(0), T1: committed_at(0), U0: committed_at(0)})
    offsets.begin(OffsetsWrite({U0: committed_at(0)}))

    assert expired(offsets, 200, {"t"}) == []
    assert expired(offsets, 200) == [T0, T1]


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_transaction_count_when_it_commits(commit):
    """Offsets of a transaction count when it commits, and not at all when it aborts."""
    offsets = holding({T0: CommittedOffset(1)})
    write = offsets.begin_in_transaction(producer(), {T0: CommittedOffset(5)})
    assert offsets.is_unstable(T0)
    offsets.settle(write, 1)
    assert offsets.is_unstable(T0)
    assert offsets.has_pending
    assert offsets.get(T0).offset == 1
    offsets.end_transaction(2, 7, commit)

    assert not offsets.is_unstable(T0)
    assert not offsets.has_pending
    assert offsets.get(T0).offset == (5 if commit else 1)


@pytest.mark.parametrize("commit", [True, False])
def test_end_that_is_known_before_what_it_ends_counts_for_it(commit):
    """A marker stands behind the offsets of its transaction, whenever they are acknowledged."""
    offsets = holding({T0: CommittedOffset(1)})
    write = offsets.begin_in_transaction(producer(), {T0: CommittedOffset(5)})
    offsets.end_transaction(2, 7, commit)
    offsets.settle(write, 1)

    assert offsets.get(T0).offset == (5 if commit else 1)
    assert not offsets.has_pending


def test_end_does_not_count_for_the_next_transaction():
    """Its offsets stand behind the marker."""
    offsets = GroupOffsets()
    write = offsets.begin_in_transaction(producer(), {T0: CommittedOffset(5)})
    offsets.end_transaction(2, 7, commit=True)
    offsets.settle(write, 3)

    assert offsets.get(T0) is None
    assert offsets.staged() == {7: {T0: CommittedOffset(5)}}


def test_plain_commit_after_that_of_a_transaction_stays():
    """The later written one counts, whichever is completed first."""
    offsets = GroupOffsets()
    offsets.stage(0, 7, T0, CommittedOffset(5))
    offsets.put(1, T0, CommittedOffset(6))
    offsets.end_transaction(2, 7, commit=True)

    assert offsets.get(T0).offset == 6


def test_deletion_takes_what_a_transaction_has_staged_before_it():
    """Else it would come back with the commit."""
    offsets = holding({T0: CommittedOffset(1)})
    offsets.stage(1, 7, T0, CommittedOffset(5))
    offsets.stage(1, 8, T1, CommittedOffset(6))
    offsets.delete(2, T0)
    assert not offsets.is_unstable(T0)
    assert offsets.is_unstable(T1)
    offsets.end_transaction(3, 7, commit=True)

    assert offsets.get(T0) is None


def test_transactions_of_two_producers_end_apart():
    """A partition is unstable while any of them is open."""
    offsets = GroupOffsets()
    for producer_id in (7, 8):
        offsets.stage(producer_id, producer_id, T0, CommittedOffset(producer_id))
    offsets.end_transaction(9, 8, commit=True)

    assert offsets.is_unstable(T0)
    assert list(offsets.open_transactions) == [7]
    assert offsets.get(T0).offset == 8


def test_commit_that_did_not_get_into_the_log_is_not_in_the_transaction():
    """Nothing is left of it."""
    offsets = GroupOffsets()
    write = offsets.begin_in_transaction(producer(), {T0: CommittedOffset(5)})
    assert list(offsets.open_transactions) == [7]
    offsets.settle(write, NO_OFFSET)

    assert not offsets.has_pending
    offsets.end_transaction(1, 7, commit=True)
    assert offsets.get(T0) is None


def test_connections_are_compared_for_one_producer_and_epoch_only():
    """A producer that has taken over may be connected for longer."""
    offsets = GroupOffsets()

    for known in (producer(session=5), producer(8, session=1)):
        assert not offsets.is_late(known)
        offsets.settle(offsets.begin_in_transaction(known, {T0: CommittedOffset(1)}), 1)
    assert offsets.is_late(producer(session=4))
    assert not offsets.is_late(producer(session=5))
    assert not offsets.is_late(producer(8, session=2))
    assert not offsets.is_late(producer(epoch=1, session=3))


@pytest.mark.parametrize("ending", ["commit", "abort", "refused", "deleted"])
def test_nothing_is_remembered_of_a_producer_without_a_transaction(ending):
    """A group once grew with each producer id that ever committed to it."""
    offsets = GroupOffsets()
    write = offsets.begin_in_transaction(producer(), {T0: CommittedOffset(5)})
    if ending == "refused":
        offsets.settle(write, NO_OFFSET)
    else:
        offsets.settle(write, 1)
    if ending == "deleted":
        offsets.delete(2, T0)
    if ending in ("commit", "abort"):
        offsets.end_transaction(3, 7, ending == "commit")

    assert remembered(offsets) == remembered(GroupOffsets())


def remembered(offsets):
    """Everything that a group knows, but for its committed offsets."""
    return {name: value for name, value in vars(offsets).items() if name != "_applied"}


def test_nothing_is_remembered_of_deletions_and_ends_when_no_write_is_under_way():
    """They are kept for what may yet turn out to stand before them, and no longer."""
    offsets = GroupOffsets()
    plain = offsets.begin(OffsetsWrite({T0: CommittedOffset(1)}))
    write = offsets.begin_in_transaction(producer(), {T1: CommittedOffset(5)})
    offsets.delete(8, T0)
    offsets.end_transaction(9, 7, commit=True)
    assert remembered(offsets) != remembered(GroupOffsets())
    offsets.settle(plain, 1)
    offsets.settle(write, NO_OFFSET)

    assert remembered(offsets) == remembered(GroupOffsets())
    assert offsets.all() == {}


@pytest.mark.parametrize("tombstone", [1, 5])
def test_offsets_of_deleted_topics_are_gone_at_once_and_owed_to_the_log(tombstone):
    """Committed, staged and on their way: none comes back, whatever is acknowledged afterwards.

    A commit that gets into the log only behind the tombstone needs another one.
    """
    offsets = holding({T1: CommittedOffset(1), U0: CommittedOffset(2)})
    offsets.stage(2, 7, T1, CommittedOffset(5))
    write = offsets.begin(OffsetsWrite({T0: CommittedOffset(6)}))
    offsets.remove_deleted(offsets.in_topics({"t"}))
    assert offsets.all() == {U0: CommittedOffset(2)}
    assert list(offsets.payable_tombstones()) == [T1, T0]
    offsets.delete(tombstone, T0)
    offsets.settle(write, 3)
    offsets.end_transaction(4, 7, commit=True)

    assert offsets.all() == {U0: CommittedOffset(2)}
    assert list(offsets.payable_tombstones()) == ([T1, T0] if tombstone < 3 else [T1])
    for partition in (T0, T1):
        offsets.delete(6, partition)
    assert not offsets.owed_tombstones


def test_no_tombstone_is_owed_where_a_new_topic_has_an_offset():
    """It stands behind that of the old topic; a tombstone now would delete it."""
    offsets = holding({T0: CommittedOffset(1), T1: CommittedOffset(1)})
    offsets.remove_deleted(offsets.in_topics({"t"}))
    offsets.put(5, T0, CommittedOffset(0))
    offsets.stage(6, 7, T1, CommittedOffset(0))
    assert list(offsets.payable_tombstones()) == []
    assert list(offsets.owed_tombstones) == [T1]

    offsets.end_transaction(7, 7, commit=False)
    assert list(offsets.payable_tombstones()) == [T1]


def test_offset_is_unstable_from_the_write_of_its_transaction_on():
    """A commit without a transaction makes none so, and others are not concerned."""
    offsets = holding({T0: CommittedOffset(1), T1: CommittedOffset(1)})
    plain = offsets.begin(OffsetsWrite({T0: CommittedOffset(2)}))
    assert not offsets.is_unstable(T0)
    offsets.settle(plain, 5)
    write = offsets.begin_in_transaction(producer(), {T0: CommittedOffset(3)})
    assert [offsets.is_unstable(each) for each in (T0, T1)] == [True, False]
    offsets.settle(write, 6)
    assert [offsets.is_unstable(each) for each in (T0, T1)] == [True, False]
    offsets.end_transaction(7, 7, commit=True)

    assert not offsets.is_unstable(T0)
    assert offsets.get(T0) == CommittedOffset(3)


def test_record_that_is_known_by_its_place_changes_nothing():
    """A deletion or an end takes what stands before it, and a place has one record."""
    offsets = GroupOffsets()
    for value in (1, 2):
        offsets.put(5, T0, CommittedOffset(value))
        offsets.stage(6, 7, T1, CommittedOffset(value))
    assert offsets.all() == {T0: CommittedOffset(1)}
    offsets.delete(6, T1)
    offsets.end_transaction(6, 7, commit=True)
    assert offsets.staged() == {7: {T1: CommittedOffset(1)}}
    write = offsets.begin_in_transaction(producer(8), {U0: CommittedOffset(3)})
    offsets.end_transaction(9, 8, commit=True)
    offsets.settle(write, 9)

    assert offsets.staged()[8] == {U0: CommittedOffset(3)}
    assert (T0 in offsets, T1 in offsets, len(offsets)) == (True, False, 1)


def test_tombstone_that_stands_at_or_behind_an_orphan_is_enough():
    """None is owed for it then."""
    offsets = GroupOffsets()
    write = offsets.begin(OffsetsWrite({U0: CommittedOffset(1)}))
    offsets.remove_deleted(offsets.in_topics({"u"}))
    offsets.delete(12, U0)
    offsets.settle(write, 12)

    assert offsets.owed_tombstones == {}


def test_offsets_of_deleted_topics_do_not_count_for_new_ones():
    """All of the group, or some partitions; one without an offset is left out."""
    old, new = CommittedOffset(1, topic_id=UUID(int=1)), CommittedOffset(2, topic_id=UUID(int=2))
    offsets = holding({T0: old, U0: new})

    def is_deleted(partition, topic_id):
        return topic_id == UUID(int=1)

    assert offsets.current(is_deleted) == {U0: new}
    assert offsets.current(is_deleted, [T0, T1, U0]) == {U0: new}
    assert offsets.current(is_deleted, [T0]) == offsets.current(is_deleted, []) == {}
    assert offsets.current(lambda *_: False, [T0, T1]) == {T0: old}


def test_group_with_a_commit_under_way_is_not_over():
    """Whatever partitions are about to be deleted: the log may get another one."""
    offsets = GroupOffsets()
    write = offsets.begin(OffsetsWrite({T0: CommittedOffset(1)}))
    assert not offsets.has_nothing_but(())
    assert not offsets.has_nothing_but((T0, T1))
    offsets.settle(write, 1)

    assert not offsets.has_nothing_but(())
    assert offsets.has_nothing_but((T0,))
    assert offsets.has_nothing_but((T0, T1))


def test_connection_is_forgotten_with_the_topics_of_its_transaction():
    """The transaction has nothing of this group any more."""
    offsets = GroupOffsets()
    write = offsets.begin_in_transaction(producer(session=5), {T0: CommittedOffset(1)})
    offsets.settle(write, 1)
    assert offsets.is_late(producer(session=4))
    offsets.remove_deleted(offsets.in_topics({"t"}))

    assert not offsets.is_late(producer(session=4))
