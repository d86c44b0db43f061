"""The order in which records may be worked on, and how far they are finished."""

from __future__ import annotations

from ottla.clients.consumer.subscription_state import TopicPartitionState
from ottla.clients.processing.work_queue import PartitionProgress, WorkItem, WorkQueue
from ottla.record.consumer_record import ConsumerRecord, TimestampType
from ottla.structs import TopicPartition

PAGES = TopicPartition("pages", 0)


def item_of(offset: int, lane: object = None) -> WorkItem:
    record = ConsumerRecord("pages", 0, offset, 0, TimestampType.CREATE_TIME, b"k", b"v")
    return WorkItem(record, lane)


class Desk:
    """Notes the offsets that begin, and how often there was room."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.calls = 0
        self.queue = WorkQueue(lambda item: self.begun.append(item.offset), self.call)

    def call(self) -> None:
        self.calls += 1


def test_records_of_a_lane_begin_one_after_the_other():
    """Those of other lanes, and of none, begin at once."""
    desk = Desk()
    items = [item_of(0, "a"), item_of(1, "a"), item_of(2, "b"), item_of(3), item_of(4, "a")]
    desk.queue.add(items)
    assert desk.begun == [0, 2, 3]
    desk.queue.end(items[0])
    assert desk.begun == [0, 2, 3, 1]
    desk.queue.end(items[1])
    desk.queue.end(items[4])
    assert desk.begun == [0, 2, 3, 1, 4]
    desk.queue.add([item_of(5, "a")])
    assert desk.begun[-1] == 5
    assert desk.queue.unfinished == 3


def test_records_that_were_given_up_are_passed_over():
    """The lane is free when no other record of it waits."""
    desk = Desk()
    items = [item_of(0, "a"), item_of(1, "a"), item_of(2, "a"), item_of(3, "a")]
    desk.queue.add(items)
    items[1].is_given_up = items[2].is_given_up = True
    desk.queue.end(items[0])
    assert desk.begun == [0, 3]
    assert desk.queue.unfinished == 1


def test_what_waits_for_a_record_is_given_up_with_it():
    """In its partition; a record of another one, or of its later life here, begins."""
    desk = Desk()
    items = [item_of(0, "a"), item_of(1, "a"), item_of(2, "a"), item_of(3, "a")]
    here, later = (PartitionProgress(TopicPartitionState(PAGES)) for _ in range(2))
    for item, progress in zip(items, (here, here, later, here), strict=True):
        progress.add(item)
    desk.queue.add(items)
    desk.queue.give_up(items[0])
    assert desk.begun == [0, 2]
    assert [each.is_given_up for each in items] == [True, True, False, True]
    desk.queue.end(items[2])
    assert desk.queue.unfinished == 0


def test_end_counts_once():
    """A record that was given up in its pause may be ended by both sides."""
    desk = Desk()
    item = item_of(0, "a")
    desk.queue.add([item])
    desk.queue.end(item)
    desk.queue.end(item)
    assert desk.queue.unfinished == 0


def test_room_is_called_for_once():
    """When as few are unfinished as was asked for, and not if that is so already."""
    desk = Desk()
    items = [item_of(n) for n in range(4)]
    desk.queue.add(items)
    assert not desk.queue.call_at(4)
    assert desk.queue.call_at(2)
    for item, calls in zip(items, (0, 1, 1, 1), strict=True):
        desk.queue.end(item)
        assert desk.calls == calls


def test_partition_is_finished_up_to_its_first_unfinished_record():
    """Whatever is finished behind that; records that are finished are not kept in memory."""
    progress = PartitionProgress(TopicPartitionState(PAGES))
    items = [item_of(n) for n in (3, 4, 7)]
    for item in items:
        progress.add(item)
    firsts = []
    for item in (items[1], items[0], items[2]):
        item.finish()
        firsts.append(progress.first_unfinished())
    assert firsts == [3, 7, None]
    assert len(progress) == 0
    assert not hasattr(items[0], "record")
