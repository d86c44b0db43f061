"""Commits that complete in any order, and which offsets expire."""

from ottla.coordinator.group.offsets import CommittedOffset, GroupOffsets
from ottla.structs import TopicPartition

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def committed_at(timestamp_ms, expire_timestamp_ms=None):
    """An offset with this commit time."""
    return CommittedOffset(
        1, commit_timestamp_ms=timestamp_ms, expire_timestamp_ms=expire_timestamp_ms
    )


def expired(offsets, now_ms, subscribed=()):
    """What has expired after 100 ms without a commit."""
    return offsets.expired(now_ms, 100, lambda value: value.commit_timestamp_ms, subscribed)


def test_offset_is_not_seen_before_it_is_complete():
    """What is on its way into the log could still be lost."""
    offsets = GroupOffsets()
    sequence = offsets.prepare([T0])
    assert offsets.get(T0) is None
    assert offsets.has_pending
    offsets.complete(sequence, {T0: CommittedOffset(5)})

    assert offsets.get(T0) == CommittedOffset(5)
    assert not offsets.has_pending


def test_later_written_commit_stays_whichever_completes_first():
    """The log is read in the order of writing, so memory must agree with that."""
    offsets = GroupOffsets()
    first, second = offsets.prepare([T0]), offsets.prepare([T0])
    offsets.complete(second, {T0: CommittedOffset(20)})
    offsets.complete(first, {T0: CommittedOffset(10)})

    assert offsets.get(T0) == CommittedOffset(20)


def test_commit_that_was_given_up_leaves_the_one_before():
    """A failed write changes nothing."""
    offsets = GroupOffsets()
    offsets.complete(offsets.prepare([T0]), {T0: CommittedOffset(5)})
    offsets.give_up(offsets.prepare([T0]), [T0])

    assert offsets.get(T0) == CommittedOffset(5)
    assert not offsets.has_pending


def test_loaded_offset_gives_way_to_a_commit():
    """What was read at the start is older than anything that follows."""
    offsets = GroupOffsets()
    offsets.load({T0: CommittedOffset(5)})
    offsets.complete(offsets.prepare([T0]), {T0: CommittedOffset(6)})

    assert offsets.all() == {T0: CommittedOffset(6)}


def test_offsets_expire_by_age():
    """An offset is gone when the retention time has passed, not before."""
    offsets = GroupOffsets()
    offsets.load({T0: committed_at(0), T1: committed_at(50)})

    assert expired(offsets, 99) == []
    assert expired(offsets, 100) == [T0]
    assert expired(offsets, 150) == [T0, T1]


def test_own_retention_time_of_a_client_counts_alone():
    """An expiry time that came with the commit overrules the broker's."""
    offsets = GroupOffsets()
    offsets.load({T0: committed_at(0, expire_timestamp_ms=10), T1: committed_at(0, 500)})

    assert expired(offsets, 10) == [T0]
    assert expired(offsets, 499) == [T0]


def test_offsets_in_use_do_not_expire():
    """Topics that members read and partitions with a commit under way are left alone."""
    offsets = GroupOffsets()
    offsets.load({T0: committed_at(0), T1: committed_at(0), U0: committed_at(0)})
    offsets.prepare([U0])

    assert expired(offsets, 200, {"t"}) == []
    assert expired(offsets, 200) == [T0, T1]


def test_offsets_of_a_transaction_count_when_it_commits():
    """And not at all when it aborts."""
    for commit in (True, False):
        offsets = GroupOffsets()
        offsets.load({T0: CommittedOffset(1)})
        offsets.prepare_in_transaction(7, {T0: CommittedOffset(5)})
        assert offsets.is_unstable(T0)
        assert offsets.has_pending
        assert offsets.get(T0).offset == 1
        offsets.end_transaction(7, commit)

        assert not offsets.is_unstable(T0)
        assert offsets.get(T0).offset == (5 if commit else 1)


def test_plain_commit_after_that_of_a_transaction_stays():
    """The later written one counts, whichever is completed first."""
    offsets = GroupOffsets()
    offsets.prepare_in_transaction(7, {T0: CommittedOffset(5)})
    offsets.complete(offsets.prepare([T0]), {T0: CommittedOffset(6)})
    offsets.end_transaction(7, commit=True)

    assert offsets.get(T0).offset == 6


def test_transactions_of_two_producers_end_apart():
    """A partition is unstable while any of them is open."""
    offsets = GroupOffsets()
    for producer_id in (7, 8):
        offsets.prepare_in_transaction(producer_id, {T0: CommittedOffset(producer_id)})
    offsets.end_transaction(8, commit=True)

    assert offsets.is_unstable(T0)
    assert list(offsets.open_transactions) == [7]
    assert offsets.get(T0).offset == 8


def test_commit_that_did_not_get_into_the_log_is_not_in_the_transaction():
    """Nothing is left of it."""
    offsets = GroupOffsets()
    sequence = offsets.prepare_in_transaction(7, {T0: CommittedOffset(5)})
    offsets.give_up_in_transaction(7, sequence, [T0])

    assert not offsets.has_pending
    offsets.end_transaction(7, commit=True)
    assert offsets.get(T0) is None


def test_connections_are_compared_for_one_producer_and_epoch_only():
    """A producer that has taken over may be connected for longer."""
    offsets = GroupOffsets()

    assert offsets.admit(7, 0, 5)
    assert not offsets.admit(7, 0, 4)
    assert offsets.admit(8, 0, 1)
    assert offsets.admit(7, 1, 3)
    assert offsets.admit(7, 1, 6)
    assert not offsets.admit(7, 1, 5)


def test_offsets_of_deleted_topics_go_from_transactions_as_well():
    """Else they would come back with the commit."""
    offsets = GroupOffsets()
    offsets.load({T0: CommittedOffset(1)})
    offsets.prepare_in_transaction(7, {T0: CommittedOffset(5)})

    assert offsets.remove_topics({"t"}) == [T0]
    offsets.end_transaction(7, commit=True)
    assert offsets.get(T0) is None
