"""The stream reader: starts, limits, new and lost partitions; no Spark and no broker."""

from __future__ import annotations

import logging
import pickle
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ottla.errors import ErrorCode, KafkaError
from ottla.spark.data_loss import DataLossError
from ottla.spark.options import SourceOptions
from ottla.spark.readers import OttlaStreamReader
from ottla.structs import TopicPartition


def reader(**options):
    given = {"kafka.bootstrap.servers": "x:1", "subscribe": "a", "startingOffsets": "earliest"}
    return OttlaStreamReader(SourceOptions.for_stream(given | options))


def ranges(partitions):
    return [
        (piece.topic_partition.partition, piece.start, piece.end)
        for task in partitions
        for piece in task.ranges
    ]


def test_start_does_not_move_between_two_questions(admin):
    """Spark asks twice where a stream begins; both times it hears the same."""
    admin.log("a", (0, 5))
    stream = reader(startingOffsets="latest")
    first = stream.initialOffset()
    admin.log("a", (0, 9))

    assert first == stream.initialOffset() == {"a": {"0": 5}}


def test_read_limit_is_max_offsets_per_trigger(admin):
    """Spark hands the limit back with every question for the latest offset."""
    admin.log("a", (0, 90), (0, 10))
    stream = reader(maxOffsetsPerTrigger="20")

    assert stream.getDefaultReadLimit() == ReadMaxRows(20)
    assert reader().getDefaultReadLimit() == ReadAllAvailable()
    start = stream.initialOffset()
    assert stream.latestOffset(start, ReadMaxRows(20)) == {"a": {"0": 18, "1": 2}}
    assert stream.latestOffset(start, ReadAllAvailable()) == {"a": {"0": 90, "1": 10}}
    assert stream.reportLatestOffset() == {"a": {"0": 90, "1": 10}}


def test_available_now_ends_where_it_was_prepared(admin):
    """What comes later, new partitions included, is left to the next run."""
    admin.log("a", (0, 5))
    stream = reader()
    stream.prepareForTriggerAvailableNow()
    admin.log("a", (0, 9), (0, 3))

    end = stream.latestOffset({"a": {"0": 0}}, ReadAllAvailable())

    assert end == {"a": {"0": 5}}
    assert stream.latestOffset(end, ReadAllAvailable()) == end


def test_new_partitions_are_read_from_their_beginning(admin):
    """A partition that the start does not know begins at offset 0."""
    admin.log("a", (0, 5), (0, 3))
    stream = reader()

    assert ranges(stream.partitions({"a": {"0": 4}}, {"a": {"0": 5, "1": 3}})) == [
        (0, 4, 5),
        (1, 0, 3),
    ]


@pytest.mark.parametrize(
    ("log", "start", "end", "said", "kept"),
    [
        ([(7, 9)], {"0": 4}, {"0": 9}, "offsets 4 to 6 of a-0 are gone", [(0, 7, 9)]),
        ([(9, 9)], {"0": 4}, {"0": 6}, "offsets 4 to 5 of a-0 are gone", []),
        ([(0, 2)], {"0": 4}, {"0": 2}, "a-0 went back from offset 4 to 2", []),
        ([(0, 5)], {"0": 1, "1": 4}, {"0": 5}, "a-1: deleted, maybe with unread", [(0, 1, 5)]),
        ([(0, 5)], {"0": 1, "1": 4}, {"0": 5, "1": 6}, "offsets 4 to 5 of a-1", [(0, 1, 5)]),
        ([(0, 5), (2, 3)], {"0": 5}, {"0": 5, "1": 3}, "offsets 0 to 1 of a-1", [(1, 2, 3)]),
    ],
)
def test_lost_data_is_an_error_or_a_warning(admin, caplog, log, start, end, said, kept):
    """Whatever way records went: named in an error, or in a warning and the rest is read."""
    admin.log("a", *log)

    with pytest.raises(DataLossError, match=said):
        reader().partitions({"a": start}, {"a": end})
    with caplog.at_level(logging.WARNING):
        found = reader(failOnDataLoss="false").partitions({"a": start}, {"a": end})

    assert said in caplog.text
    assert ranges(found) == kept


def test_reader_travels_to_the_tasks(admin):
    """Spark pickles the reader and its partitions."""
    admin.log("a", (0, 5))
    stream = reader(minPartitions="2")
    pieces = stream.partitions(stream.initialOffset(), {"a": {"0": 5}})

    assert ranges(pickle.loads(pickle.dumps(pieces))) == [(0, 0, 2), (0, 2, 5)]
    assert pickle.loads(pickle.dumps(stream)).initialOffset() == {"a": {"0": 0}}


def test_small_batches_wait_for_more(admin, monkeypatch):
    """The first one does not; then so many offsets must be there, or the delay be over."""
    admin.log("a", (0, 5))
    stream = reader(minOffsetsPerTrigger="10", maxTriggerDelay="20s")
    now = [1000]
    monkeypatch.setattr(stream._clock.__class__, "monotonic_ms", lambda clock: now[0])
    first = stream.latestOffset({"a": {"0": 0}}, ReadAllAvailable())
    assert first == {"a": {"0": 5}}

    admin.log("a", (0, 14))
    assert stream.latestOffset(first, ReadAllAvailable()) == first
    admin.log("a", (0, 15))
    second = stream.latestOffset(first, ReadAllAvailable())
    assert second == {"a": {"0": 15}}

    admin.log("a", (0, 16))
    now[0] += 19_999
    assert stream.latestOffset(second, ReadAllAvailable()) == second
    now[0] += 1
    assert stream.latestOffset(second, ReadAllAvailable()) == {"a": {"0": 16}}


def test_available_now_waits_for_nothing(admin):
    """What is there is all there will be."""
    admin.log("a", (0, 5))
    stream = reader(minOffsetsPerTrigger="3", maxOffsetsPerTrigger="4")
    stream.prepareForTriggerAvailableNow()

    middle = stream.latestOffset({"a": {"0": 0}}, ReadMaxRows(4))
    assert middle == {"a": {"0": 4}}
    assert stream.latestOffset(middle, ReadMaxRows(4)) == {"a": {"0": 5}}


def test_no_task_has_more_records_than_asked_for(admin):
    """Ranges are cut into equal pieces."""
    admin.log("a", (0, 10))
    tasks = reader(maxRecordsPerPartition="4").partitions({"a": {"0": 0}}, {"a": {"0": 10}})

    assert ranges(tasks) == [(0, 0, 3), (0, 3, 6), (0, 6, 10)]
    assert len(tasks) == 3


@pytest.mark.parametrize(
    ("options", "group"),
    [
        ({"groupIdPrefix": "reports"}, "reports-ab95342e"),
        ({"kafka.group.id": "mine", "groupIdPrefix": "reports"}, "mine"),
    ],
)
def test_group_is_told_how_far_the_query_is(admin, options, group):
    """What has been processed when Spark asks for more, and nothing twice."""
    admin.log("a", (0, 5))
    stream = reader(**options)

    for start in ({"a": {"0": 0}}, {"a": {"0": 0}}, {"a": {"0": 5}}):
        stream.latestOffset(start, ReadAllAvailable())

    where = TopicPartition("a", 0)
    assert admin.told == [(group, {where: 0}), (group, {where: 5})]


def test_group_that_cannot_be_told_is_a_warning(admin, caplog):
    """The query goes by its checkpoint."""
    admin.log("a", (0, 5))
    admin.refusal = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "reports")

    with caplog.at_level(logging.WARNING):
        end = reader(**{"kafka.group.id": "mine"}).latestOffset({"a": {"0": 0}}, ReadAllAvailable())

    assert end == {"a": {"0": 5}}
    assert "group mine is not told of the progress: GROUP_AUTHORIZATION_FAILED" in caplog.text


def test_without_a_group_nobody_is_told(admin):
    """Groups do not come into being unasked."""
    admin.log("a", (0, 5))
    reader().latestOffset({"a": {"0": 0}}, ReadAllAvailable())

    assert admin.told == []


def with_epoch(offset, epoch):
    """Where a query stands in partition 0."""
    return {"a": {"0": offset}, "leader epochs": {"a": {"0": epoch}}}


def test_offsets_say_in_which_epochs_their_logs_were_read(admin):
    """The first one, and the end of each micro-batch; the display of the progress does not."""
    admin.log("a", (0, 5), (0, 3))
    admin.elect("a", 7)
    stream = reader()
    start = stream.initialOffset()

    assert start == {"a": {"0": 0, "1": 0}, "leader epochs": {"a": {"0": 7}}}
    end = {"a": {"0": 5, "1": 3}, "leader epochs": {"a": {"0": 7}}}
    assert stream.latestOffset(start, ReadAllAvailable()) == end
    assert stream.reportLatestOffset() == {"a": {"0": 5, "1": 3}}


def test_new_leader_is_a_micro_batch_without_records(admin):
    """In it what was read is compared with the leader's log; a leader of old is none."""
    admin.log("a", (0, 5))
    admin.elect("a", 7)
    stream = reader()
    assert stream.latestOffset(with_epoch(5, 7), ReadAllAvailable()) == with_epoch(5, 7)

    admin.elect("a", 6)
    assert stream.latestOffset(with_epoch(5, 7), ReadAllAvailable()) == with_epoch(5, 7)
    admin.elect("a", 8)
    assert stream.latestOffset(with_epoch(5, 7), ReadAllAvailable()) == with_epoch(5, 8)


def test_checkpoint_from_before_epochs_were_kept_goes_on(admin):
    """It is read as it is, and gets epochs with its next micro-batch."""
    admin.log("a", (0, 9))
    admin.elect("a", 7, cut=2)
    stream = reader()
    end = stream.latestOffset({"a": {"0": 5}}, ReadAllAvailable())

    assert end == with_epoch(9, 7)
    assert ranges(stream.partitions({"a": {"0": 5}}, end)) == [(0, 5, 9)]


def test_offsets_with_epochs_can_be_given(admin):
    """Offsets copied from the progress of another query have the log compared from the start."""
    admin.log("a", (0, 9))
    admin.elect("a", 7, cut=3)
    stream = reader(startingOffsets='{"a":{"0":5},"leader epochs":{"a":{"0":6}}}')

    assert stream.initialOffset() == with_epoch(5, 6)
    with pytest.raises(DataLossError, match="a-0 is no longer the log"):
        stream.partitions(stream.initialOffset(), with_epoch(9, 7))


@pytest.mark.parametrize(
    ("cut", "start", "end", "kept"),
    [
        (3, with_epoch(5, 6), with_epoch(9, 7), [(0, 3, 9)]),
        (3, with_epoch(5, 6), with_epoch(5, 7), [(0, 3, 5)]),
        (3, with_epoch(5, 6), with_epoch(4, 7), [(0, 3, 4)]),
        (5, with_epoch(5, 6), with_epoch(9, 7), [(0, 5, 9)]),
        # A batch that was planned before the election, and is run again.
        (7, with_epoch(5, 6), with_epoch(9, 6), [(0, 5, 7)]),
        (3, with_epoch(5, 6), with_epoch(9, 6), []),
    ],
)
def test_log_of_a_new_leader_is_read_from_where_it_parts(admin, cut, start, end, kept):
    """Records in the place of lost ones are read with failOnDataLoss=false."""
    admin.log("a", (0, 9))
    admin.elect("a", 7, cut=cut)

    assert ranges(reader(failOnDataLoss="false").partitions(start, end)) == kept


def test_log_that_does_not_know_the_epoch_is_read_from_its_beginning(admin, caplog):
    """A topic that was deleted and made anew, and has grown past the checkpoint."""
    admin.log("a", (1, 9))
    admin.elect("a", 7, cut=-1)

    with pytest.raises(DataLossError, match="knows nothing of that epoch: the topic was made anew"):
        reader().partitions(with_epoch(5, 6), with_epoch(9, 7))
    with caplog.at_level(logging.WARNING):
        found = reader(failOnDataLoss="false").partitions(with_epoch(5, 6), with_epoch(9, 7))
    assert ranges(found) == [(0, 1, 9)]
    assert "going on, as failOnDataLoss is false" in caplog.text


OLD, NEW = UUID(int=1), UUID(int=2)


def of_topic(offset, topic_id):
    """Where a query stands in partition 0 of the topic with this id, if it knows one."""
    found = {"a": {"0": offset}}
    return found if topic_id is None else {**found, "topic ids": {"a": str(topic_id)}}


@pytest.mark.parametrize("length", [0, 3, 5, 9])
@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(2)])
def test_topic_that_was_created_again_is_not_taken_for_the_former(admin, caplog, length, limit):
    """However long it is: the query fails, or reads it from its beginning, limited as ever."""
    admin.log("a", (0, 5))
    admin.ids["a"] = OLD
    assert reader().initialOffset() == of_topic(0, OLD)
    start = reader().latestOffset(of_topic(0, OLD), ReadAllAvailable())
    assert start == of_topic(5, OLD)
    admin.log("a", (0, length))
    admin.ids["a"] = NEW

    stream, said = reader(failOnDataLoss="false"), "a: was deleted and created again"
    end = stream.latestOffset(start, limit)
    assert end == of_topic(min(length, getattr(limit, "max_rows", 9)), NEW)
    with pytest.raises(DataLossError, match=said):
        reader().partitions(start, end)
    expected = [(0, 0, end["a"]["0"])] if length else []
    assert ranges(stream.partitions(start, end)) == expected
    assert said in caplog.text


def test_batch_of_a_topic_that_was_created_again_is_lost_when_it_is_run_again(admin, caplog):
    """It was planned for the former topic; what is in the other is in the next batch."""
    admin.log("a", (0, 9))
    admin.ids["a"] = NEW
    start, end = of_topic(2, OLD), of_topic(5, OLD)

    with pytest.raises(DataLossError, match="a: was deleted and created again"):
        reader().partitions(start, end)
    stream = reader(failOnDataLoss="false")
    assert ranges(stream.partitions(start, end)) == []
    following = stream.latestOffset(end, ReadAllAvailable())
    assert ranges(stream.partitions(end, following)) == [(0, 0, 9)]


@pytest.mark.parametrize(("before", "now"), [(None, OLD), (OLD, None), (OLD, OLD)])
def test_topics_without_an_id_are_read_on(admin, before, now):
    """In checkpoints from before ids were kept, and where a broker returns none."""
    admin.log("a", (0, 9))
    admin.ids |= {} if now is None else {"a": now}
    end = reader().latestOffset(of_topic(5, before), ReadAllAvailable())

    assert end == of_topic(9, OLD)
    assert ranges(reader().partitions(of_topic(5, before), end)) == [(0, 5, 9)]


def test_truncated_log_fails_the_query_with_all_that_is_known(admin):
    """Records at the old offsets are others: it was read on in silence."""
    admin.log("a", (0, 9))
    admin.elect("a", 7, cut=3)

    with pytest.raises(
        DataLossError,
        match=r"a-0 is no longer the log that was read up to offset 5 in leader epoch 6; its "
        r"leader, in epoch 7, has other records, or none, from offset 3 on.*; "
        r"set the option failOnDataLoss to false",
    ):
        reader().partitions(with_epoch(5, 6), with_epoch(9, 7))
