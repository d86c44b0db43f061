"""The partitions of a transaction: what an addition shares, and how they are shown and read."""

from ottla.coordinator.transaction.transaction_partitions import (
    NO_PARTITIONS,
    TOPICS_IN_A_SLICE,
    TransactionPartitions,
)
from ottla.structs import TopicPartition


def test_addition_leaves_all_other_topics_as_they_are():
    """A hundred thousand partitions are not made again for each that is added."""
    known = TransactionPartitions.of(TopicPartition(f"t{n}", n) for n in range(100))
    more = known.with_added([TopicPartition("t7", 0), TopicPartition("new", 0)])

    assert more.topics["t7"] == (0, 7)
    assert all(more.topics[name] is known.topics[name] for name in known.topics if name != "t7")


def test_partition_is_in_it_by_its_topic_and_number():
    """Whatever else is asked for is not."""
    known = TransactionPartitions.of([TopicPartition("a", 0), TopicPartition("b", 2)])
    asked = [*known, TopicPartition("a", 2), TopicPartition("c", 0), "a", None]

    assert [each in known for each in asked] == [True, True, False, False, False, False]
    assert known == {TopicPartition("b", 2), TopicPartition("a", 0)}
    assert known != {TopicPartition("a", 0), None}


def test_very_many_topics_are_read_in_slices():
    """Each slice has so many."""
    topics = [(f"t{n}", [0]) for n in range(2 * TOPICS_IN_A_SLICE)]

    assert len(list(NO_PARTITIONS.with_topics(topics))) == 2


def test_text_of_very_many_is_short():
    """It stands in lines of logs."""
    few, many = (
        TransactionPartitions.of(TopicPartition("t", n) for n in range(count))
        for count in (2, 5000)
    )

    assert repr(few) == "{t-0, t-1}"
    assert repr(many).endswith("t-9, and 4990 more}")
