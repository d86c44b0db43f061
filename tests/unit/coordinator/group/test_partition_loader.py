"""Reading the offsets topic back: last value wins, transactions, damage."""

import struct
from uuid import UUID

import pytest

from ottla.coordinator.coordinator_partitions import RECORDS_PER_STEP
from ottla.coordinator.group import partition_loader
from ottla.coordinator.group.classic_group import group_key
from ottla.coordinator.group.consumer.assigned_partitions import AssignedPartitions
from ottla.coordinator.group.consumer.cluster_topics import SubscribedTopic
from ottla.coordinator.group.consumer.consumer_group_records import (
    current_assignment_key,
    current_assignment_value,
    group_epoch_key,
    group_epoch_value,
    member_key,
    member_value,
    partition_metadata_key,
    partition_metadata_value,
    target_member_key,
    target_member_value,
)
from ottla.coordinator.group.consumer.consumer_member import CurrentAssignment, MemberDetails
from ottla.coordinator.group.consumer.heartbeat_checks import MAX_TOPICS
from ottla.coordinator.group.group_records import offset_key, offset_value
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.coordinator.group.partition_loader import PartitionLoader
from ottla.protocol.codegen import SLICE_ELEMENTS
from ottla.record.batch_builder import build_batch
from ottla.record.memory_records import batches
from ottla.record.record_batch import assign_offset
from ottla.runtime.scheduler import at_once
from ottla.structs import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
COMMIT = struct.pack(">hh", 0, 1)
ABORT = struct.pack(">hh", 0, 0)


def commit(partition, offset, group="g"):
    """A record of a committed offset; without an offset, of a deleted one."""
    value = None if offset is None else offset_value(CommittedOffset(offset))
    return (0, offset_key(group, partition), value, ())


def batch(*records, **header):
    """A batch in a buffer of its own."""
    return memoryview(bytearray(build_batch(records, **header)))


def transaction(*records):
    """Records of the producer 7 in its transaction."""
    header = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
    return batch(*records, **header)


def marker(key):
    """The end of the transaction of producer 7."""
    header = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True, "is_control": True}
    return batch((0, key, struct.pack(">hi", 0, 0), ()), **header)


def loader_of(*buffers):
    """A loader that has read everything; the buffers follow each other, as in a log."""
    end = 0
    for buffer in buffers:
        position = 0
        for each in list(batches(buffer)):
            assign_offset(buffer, position, end, 0)
            position += each.size_in_bytes
            end += each.last_offset_delta + 1
    loader = PartitionLoader(0, iter(buffers))
    while loader.step():
        pass
    return loader


def load(*buffers):
    """The offsets by group after everything is read."""
    loader = loader_of(*buffers)
    return {
        group.group_id: {key: value.offset for key, value in group.offsets.all().items()}
        for group in loader.groups(now_ms=0)
    }


def test_last_value_of_a_key_wins():
    """Older commits that compaction has not removed yet do not count."""
    assert load(batch(commit(T0, 1), commit(T1, 2)), batch(commit(T0, 3))) == {"g": {T0: 3, T1: 2}}


def test_deleted_offsets_are_gone():
    """A record without a value takes back those before it, and only those."""
    assert load(batch(commit(T0, 1)), batch(commit(T0, None))) == {}
    assert load(batch(commit(T0, None)), batch(commit(T0, 1))) == {"g": {T0: 1}}


def test_deleted_group_keeps_later_offsets():
    """A group may be deleted and used again."""
    deleted = (0, group_key("g"), None, ())

    assert load(batch(commit(T0, 1), commit(T0, None), deleted, commit(T1, 4))) == {"g": {T1: 4}}


def test_offsets_of_a_transaction_count_when_it_commits():
    """At the place where they were written: what was committed after that stays."""
    pending = transaction(commit(T0, 9))
    earlier, later = batch(commit(T0, 5)), batch(commit(T0, 7))

    assert load(pending) == {"g": {}}
    assert load(pending, marker(ABORT)) == {}
    assert load(earlier, pending, marker(COMMIT)) == {"g": {T0: 9}}
    assert load(earlier, pending, later, marker(COMMIT)) == {"g": {T0: 7}}


def test_offsets_of_an_open_transaction_wait_for_its_end():
    """The coordinator that comes after learns of the end and knows what it is about."""
    loader = loader_of(batch(commit(T0, 5)), transaction(commit(T0, 9)))
    (group,) = loader.groups(now_ms=0)

    assert group.offsets.is_unstable(T0)
    assert group.offsets.get(T0).offset == 5
    group.offsets.end_transaction(2, 7, commit=True)
    assert group.offsets.get(T0).offset == 9
    assert not group.offsets.is_unstable(T0)


def test_deletion_takes_what_was_staged_before_it():
    """A tombstone counts for open transactions as well, and only for what stands before it."""
    staged, deleted = transaction(commit(T0, 9)), batch(commit(T0, None))

    assert load(staged, deleted) == {}
    assert load(staged, deleted, marker(COMMIT)) == {}
    assert load(deleted, staged, marker(COMMIT)) == {"g": {T0: 9}}


def test_strange_error_in_a_record_leaves_the_others(monkeypatch, caplog):
    """A bug in reading one kind of record must not cost a broker all its groups."""

    def broken(key, value):
        raise struct.error("not enough bytes")

    monkeypatch.setattr(partition_loader, "read_group_value", broken)
    group = (0, group_key("h"), b"\x00\x03", ())

    assert load(batch(group, commit(T0, 1))) == {"g": {T0: 1}, "h": {}}
    assert "group h is left out" in caplog.text


def test_records_of_other_kinds_are_passed_over():
    """Newer brokers keep groups of new kinds in the same topic."""
    other = (0, struct.pack(">h", 5) + b"whatever", b"x", ())

    assert load(batch(other, commit(T0, 1))) == {"g": {T0: 1}}


def test_damaged_records_are_left_out_and_named(caplog):
    """One record that cannot be read does not take the others with it."""
    no_key = (0, None, b"x", ())
    short_key = (0, struct.pack(">h", 1) + b"\x00", b"x", ())
    short_value = (0, offset_key("g", T1), b"\x00\x03\x00", ())
    loaded = load(batch(no_key, short_key, short_value, commit(T0, 1)))

    assert loaded == {"g": {T0: 1}}
    assert caplog.text.count("left out") == 3


def test_damaged_group_keeps_its_offsets(caplog):
    """Members can join again, but lost offsets cannot be found again."""
    bad_group = (0, group_key("g"), b"\x00\x03\x00", ())

    assert load(batch(bad_group, commit(T0, 1))) == {"g": {T0: 1}}
    assert "group g is left out" in caplog.text


def test_damaged_batch_is_left_out(caplog):
    """A batch whose records cannot be taken apart is lost, the next one is not."""
    broken = bytearray(batch(commit(T1, 1)))
    broken[61:] = b"\xff" * (len(broken) - 61)

    assert load(memoryview(broken), batch(commit(T0, 1))) == {"g": {T0: 1}}
    assert "the batch at offset 0 is left out" in caplog.text


def test_large_partitions_are_read_in_steps():
    """Other requests are served between the steps."""
    one = batch(*[commit(T0, offset) for offset in range(RECORDS_PER_STEP)])
    loader = PartitionLoader(0, iter([one, one]))

    assert [loader.step(), loader.step(), loader.step()] == [True, True, False]
    assert loader.record_count == 2 * RECORDS_PER_STEP


def test_record_of_very_many_topics_ends_its_step():
    """Each of the few records of a member that reads ten thousand takes as long as a step may."""
    ids = [UUID(int=number) for number in range(MAX_TOPICS)]
    topics = {f"t{each.int}": SubscribedTopic(each, 1) for each in ids}
    target = AssignedPartitions.of((each, [0]) for each in ids)
    values = [at_once(partition_metadata_value(topics)), target_member_value(target)]
    loader = PartitionLoader(0, iter([batch(*[(0, group_key("g"), each, ()) for each in values])]))
    applied: list[int] = []
    loader.apply = lambda record, batch: applied.append(record.offset)

    for count in range(1, len(values) + 1):
        assert loader.step()
        assert len(applied) == count


def records_of_a_member(count):
    """Of a consumer group with a member that reads so many topics, and has them since epoch 3."""
    ids = [UUID(int=number) for number in range(count)]
    topics = {f"t{each.int}": SubscribedTopic(each, 1) for each in ids}
    target = AssignedPartitions.of((each, [0]) for each in ids)
    current = CurrentAssignment(
        4, 3, assigned=target, assignment_epochs={each: {0: 3} for each in ids}
    )
    details = MemberDetails("app", "/10.0.0.1", topic_names=tuple(sorted(topics)))
    records = {
        group_epoch_key("g"): group_epoch_value(4),
        partition_metadata_key("g"): at_once(partition_metadata_value(topics)),
        member_key("g", "m"): member_value(details),
        target_member_key("g", "m"): target_member_value(target),
        current_assignment_key("g", "m"): current_assignment_value(current),
    }
    return topics, details, target, current, records


@pytest.mark.parametrize("count", [1, 2 * SLICE_ELEMENTS, MAX_TOPICS])
def test_records_of_a_member_are_read_in_slices(count):
    """As many as its topics are; it is what it was when all have been read."""
    topics, details, target, current, records = records_of_a_member(count)
    buffer = batch(*[(0, key, value, ()) for key, value in records.items()])
    loader = PartitionLoader(0, iter([buffer]))
    steps = 0
    while loader.step():
        steps += 1
    (group,) = (each for each in loader.groups(now_ms=0) if each is not None)

    assert steps >= 3 * (count // SLICE_ELEMENTS)
    assert (steps > 0) == (count > 1)
    assert (group.group_epoch, group.topics, group.target) == (4, topics, {"m": target})
    assert (group.members["m"].details, group.members["m"].current) == (details, current)


@pytest.mark.parametrize("steps", range(0, 60, 7))
def test_load_ends_in_the_middle_of_a_record(steps, caplog):
    """Another broker leads the partition now."""
    records = records_of_a_member(MAX_TOPICS)[-1]
    buffer = batch(*[(0, key, value, ()) for key, value in records.items()])
    loader = PartitionLoader(0, iter([buffer]))
    for _ in range(steps):
        assert loader.step()
    at_once(loader.give_up())

    assert not loader.step()
    assert not caplog.messages


def test_long_record_that_is_damaged_leaves_the_others(caplog):
    """What its key had before stays, as with a short one."""
    *_, current, records = records_of_a_member(MAX_TOPICS)
    key = current_assignment_key("g", "m")
    damaged = records[key][:-9]
    rows = [(0, each, value, ()) for each, value in records.items()]
    loader = loader_of(batch(*rows, (0, key, damaged, ()), commit(T0, 5)))
    (group,) = (each for each in loader.groups(now_ms=0) if each is not None)

    assert group.members["m"].current == current
    assert group.offsets.all()[T0].offset == 5
    assert "is left out" in caplog.text


def test_several_batches_in_one_buffer_are_read():
    """A log is read some megabytes at a time."""
    buffer = memoryview(bytearray(batch(commit(T0, 1))) + bytearray(batch(commit(T0, 2))))

    assert load(buffer) == {"g": {T0: 2}}
