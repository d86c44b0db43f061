"""`ottla.Consumer` against a real broker: reading, by itself."""

from __future__ import annotations

import math
import sys
import threading
from itertools import islice

import pytest
from consumers import (
    LIMIT_SECONDS,
    PARTITIONS,
    consumer_of,
    fill,
    partitions_of,
    poll_until,
    read,
)

from ottla import (
    KafkaError,
    Producer,
    TopicPartition,
)
from ottla.clients.consumer.consumer import WakeupError
from ottla.clients.serialization import SerializationError, StringDeserializer


@pytest.fixture
def topic(broker, unique) -> str:
    """A topic with three partitions of a hundred records, `partition number` each."""
    return fill(broker, unique("ottla-consumer"))


@pytest.fixture
def group(unique) -> str:
    return unique("ottla-group")


def test_assigned_consumer_reads_everything_in_order(broker, topic):
    """All fields are there, and the offsets of a partition are consecutive."""
    with consumer_of(broker) as consumer:
        consumer.assign(partitions_of(topic))
        records = read(consumer, 300)

    for partition in range(PARTITIONS):
        own = [record for record in records if record.partition == partition]
        assert [record.offset for record in own] == list(range(100))
        assert [record.value for record in own] == [b"%d %d" % (partition, n) for n in range(100)]
        assert [record.timestamp_ms for record in own] == [1000 + n for n in range(100)]


def test_poll_returns_at_most_max_poll_records(broker, topic):
    """max.poll.records bounds each poll, whatever has been fetched."""
    with consumer_of(broker, max_poll_records=7) as consumer:
        consumer.assign(partitions_of(topic))
        assert len(read(consumer, 1)) <= 7
        assert len(consumer.poll(60_000)) == 7  # it returns what there is at once


def test_iteration_gives_records_one_by_one(broker, topic):
    """`for record in consumer` goes on until the loop is left; records() can end by itself."""
    with consumer_of(broker) as consumer:
        consumer.assign(partitions_of(topic, 0))
        for record in consumer:
            if record.offset == 9:
                break
        assert consumer.position(TopicPartition(topic, 0)) == 10
        assert len(list(islice(consumer.records(), 90))) == 90
        assert list(consumer.records(idle_timeout_ms=100)) == []


def test_consumer_knows_how_far_it_is_behind(broker, topic):
    """High watermark and lag come with each fetch; the end of the log is asked for."""
    partition = TopicPartition(topic, 0)
    with consumer_of(broker, max_poll_records=7) as consumer:
        consumer.assign([partition])
        assert consumer.high_watermark(partition) is None
        assert consumer.current_lag(partition) is None
        count = len(read(consumer, 1))
        assert consumer.high_watermark(partition) == 100
        assert consumer.current_lag(partition) == 100 - count
        consumer.seek_to_end([partition])
        assert consumer.position(partition) == 100
        assert consumer.current_lag(partition) == 0
        assert consumer.log_end_offsets([partition]) == {partition: 100}


def test_open_transaction_is_in_the_log_and_not_in_what_may_be_read(broker, topic, unique):
    """A reader of committed records lags behind the last stable offset, not behind the log."""
    partition = TopicPartition(topic, 0)
    with (
        Producer(broker.bootstrap_servers, transactional_id=unique("open")) as producer,
        consumer_of(broker, isolation_level="read_committed") as consumer,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0).result(LIMIT_SECONDS)
        consumer.assign([partition])
        read(consumer, 100)

        assert consumer.high_watermark(partition) == 101
        assert consumer.current_lag(partition) == 0
        assert consumer.end_offsets([partition]) == {partition: 100}
        assert consumer.log_end_offsets([partition]) == {partition: 101}
        producer.abort_transaction()


def test_seek_moves_the_position(broker, topic):
    """The position may be an offset, the beginning or the end; fetched records are forgotten."""
    (partition,) = partitions_of(topic, 0)
    with consumer_of(broker) as consumer:
        consumer.assign([partition])
        read(consumer, 1)
        consumer.seek(partition, 90)
        assert [record.offset for record in read(consumer, 10)] == list(range(90, 100))
        consumer.seek_to_beginning()
        assert read(consumer, 1)[0].offset == 0
        consumer.seek_to_end([partition])
        assert consumer.position(partition) == 100
        assert consumer.poll(50) == []


def test_paused_partition_returns_nothing(broker, topic):
    """Until resume, records come from the other partitions only."""
    quiet, loud = partitions_of(topic, 0, 1)
    with consumer_of(broker, max_poll_records=10) as consumer:
        consumer.assign([quiet, loud])
        assert consumer.poll(60_000)
        consumer.pause([quiet])
        position = consumer.position(quiet)
        poll_until([consumer], lambda: consumer.position(loud) == 100, "the end")
        assert consumer.position(quiet) == position
        assert consumer.paused() == {quiet}
        consumer.resume([quiet])
        poll_until([consumer], lambda: consumer.position(quiet) == 100, "the end")


def test_offsets_belong_to_times(broker, topic):
    """The first record at or after a time, None behind the last; both ends of the log."""
    first, second = partitions_of(topic, 0, 1)
    with consumer_of(broker) as consumer:
        found = consumer.offsets_for_times({first: 1050, second: 99_999})

        assert found[first].offset == 50
        assert found[second] is None
        assert consumer.beginning_offsets([first]) == {first: 0}
        assert consumer.end_offsets([first, second]) == {first: 100, second: 100}


def test_offset_out_of_range_resets(broker, topic):
    """auto.offset.reset says where to go on."""
    (partition,) = partitions_of(topic, 0)
    with consumer_of(broker) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1_000_000)

        assert read(consumer, 1)[0].offset == 0


def test_offset_out_of_range_is_an_error_without_a_reset(broker, topic):
    """A poll with auto.offset.reset=none raises, and a seek mends it."""
    (partition,) = partitions_of(topic, 0)
    with consumer_of(broker, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1_000_000)
        with pytest.raises(KafkaError, match=r"offset 1000000 of .* in the log; seek to one"):
            read(consumer, 1)
        consumer.seek(partition, 99)
        assert read(consumer, 1)[0].offset == 99


def test_missing_commit_is_an_error_without_a_reset(broker, topic, group):
    """auto.offset.reset=none needs a committed offset."""
    with (
        consumer_of(broker, auto_offset_reset="none", group_id=group, topics=[topic]) as consumer,
        pytest.raises(KafkaError, match="no committed offset"),
    ):
        read(consumer, 1)


def test_latest_begins_behind_what_is_there(broker, topic):
    """Only records that come after the start are seen."""
    with (
        consumer_of(broker, auto_offset_reset="latest") as consumer,
        Producer(broker.bootstrap_servers) as producer,
    ):
        consumer.assign(partitions_of(topic, 0))
        assert consumer.position(TopicPartition(topic, 0)) == 100
        producer.send(topic, b"new", partition=0).result(LIMIT_SECONDS)
        assert [record.value for record in read(consumer, 1)] == [b"new"]


def test_wakeup_ends_a_waiting_poll(broker, topic):
    """Another thread ends the poll; the consumer can be used afterwards."""
    with consumer_of(broker, auto_offset_reset="latest") as consumer:
        consumer.assign(partitions_of(topic))
        timer = threading.Timer(0.1, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.poll(LIMIT_SECONDS * 1000)
        timer.join()
        assert consumer.poll(0) == []


def test_wakeup_waits_for_the_poll_that_it_ends(broker, topic):
    """A position that is looked up before is found; the lookup once waited for its time limit."""
    (partition,) = partitions_of(topic, 0)
    with consumer_of(broker, auto_offset_reset="latest") as consumer:
        consumer.assign([partition])
        consumer.wakeup()
        assert consumer.position(partition) == 100
        with pytest.raises(WakeupError):
            consumer.poll(LIMIT_SECONDS * 1000)


def test_deserializer_that_fails_stops_at_the_record(broker, topic, unique):
    """Records before it are returned, then it raises, and seeking past it goes on."""
    (partition,) = partitions_of(topic, 0)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"\xff", partition=0)
        producer.send(topic, b"fine", partition=0)
    with consumer_of(broker, value_deserializer=StringDeserializer) as consumer:
        consumer.assign([partition])
        assert read(consumer, 100)[0].value == "0 0"
        with pytest.raises(KafkaError, match=f"{partition} offset 100: cannot deserialize"):
            read(consumer, 1)
        assert consumer.position(partition) == 100
        consumer.seek(partition, 101)
        assert read(consumer, 1)[0].value == "fine"


def test_subscription_and_assignment_do_not_mix(broker, topic, group):
    """The error says what to do first."""
    with (
        consumer_of(broker, group_id=group, topics=[topic]) as consumer,
        pytest.raises(KafkaError, match="unsubscribe before"),
    ):
        consumer.assign(partitions_of(topic))


def test_closed_consumer_raises(broker):
    """After close nothing works; closing again does nothing."""
    consumer = consumer_of(broker)
    consumer.close()
    consumer.close()

    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


def test_second_thread_is_refused(broker, topic):
    """A consumer belongs to one thread at a time."""
    refused = []

    def poll() -> None:
        try:
            consumer.poll(0)
        except RuntimeError as error:
            refused.append(str(error))

    with consumer_of(broker, auto_offset_reset="latest") as consumer:
        consumer.assign(partitions_of(topic))
        thread = threading.Thread(target=poll)
        original = consumer._core.interceptors.on_consume

        def run_other_thread(records):
            thread.start()
            thread.join()
            return original(records)

        consumer._core.interceptors.on_consume = run_other_thread
        consumer.poll(0)

    assert refused == ["the consumer is being used by another thread"]


def test_serialization_error_is_a_kafka_error():
    """One class of error covers both directions."""
    assert issubclass(SerializationError, KafkaError)


@pytest.mark.parametrize("timeout_ms", [59_999.5, sys.maxsize, math.inf])
def test_time_limits_may_have_fractions_and_be_endless(broker, topic, timeout_ms):
    """As a program computes them, and as Java writes them."""
    with consumer_of(broker) as consumer:
        consumer.assign(partitions_of(topic, 0))
        assert consumer.poll(timeout_ms)
        consumer.pause(partitions_of(topic, 0))
        assert consumer.poll(0.5) == []
        (partition,) = partitions_of(topic, 0)
        assert consumer.end_offsets([partition], timeout_ms=timeout_ms) == {partition: 100}
        consumer.close(timeout_ms=timeout_ms)
