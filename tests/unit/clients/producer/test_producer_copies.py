"""Batches that are copied as they are; and one producer for several transactional ids."""

from __future__ import annotations

import pytest

from ottla import Consumer, KafkaError, Producer, TopicPartition
from ottla.clients.consumer.completed_fetch import FetchedBatches
from ottla.errors import ErrorCode
from ottla.record.record_batch import BATCH_OVERHEAD, RecordBatch
from ottla.record.rows import EncodedRecords
from ottla.testing import wait_until

LIMIT_SECONDS = 60


@pytest.fixture
def source(broker, unique) -> str:
    """A topic with one partition: a gzip batch of three records, and one of a single record."""
    name = unique("source")
    broker.create_topic(name, 1)
    with Producer(broker.bootstrap_servers, compression_type="gzip", linger_ms=20_000) as producer:
        for count in (3, 1):
            for number in range(count):
                producer.send(name, f"{count} {number}", timestamp_ms=1000 + number)
            producer.flush(LIMIT_SECONDS)
    return name


@pytest.fixture
def target(broker, unique) -> str:
    """A topic with two partitions."""
    name = unique("target")
    broker.create_topic(name, 2)
    return name


def fetched(broker, topic, offset=0) -> list[FetchedBatches]:
    """All that is in the partition from an offset on."""
    found: list[FetchedBatches] = []
    with Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, offset)
        end = consumer.end_offsets([partition])[partition]
        wait_until(
            lambda: consumer.position(partition) >= end,
            "all batches",
            LIMIT_SECONDS,
            meanwhile=lambda: found.extend(consumer.poll_batches(50)),
        )
        assert consumer.poll_batches() == []
        assert consumer.metrics()["consumer-fetch-manager-metrics"][
            "records-consumed-total"
        ] == sum(batch.record_count for each in found for batch in each.batches)
    return found


def as_it_is(batch: RecordBatch) -> EncodedRecords:
    """The records of a batch, still compressed, for partition 0."""
    times = (batch.base_timestamp, batch.max_timestamp)
    section = batch.view[BATCH_OVERHEAD:]
    return EncodedRecords(0, batch.record_count, section, *times, batch.compression)


def batches_of(broker, topic) -> list[EncodedRecords]:
    return [as_it_is(batch) for each in fetched(broker, topic) for batch in each.batches]


def test_batches_are_copied_with_their_records_times_and_codec(broker, source, target):
    """Each is one batch again, and its partition is the one that was asked for."""
    with Producer(broker.bootstrap_servers) as producer:
        sent = [
            producer.send_encoded(target, content._replace(partition=1))
            for content in batches_of(broker, source)
        ]
        producer.flush(LIMIT_SECONDS)

        assert [batch.failure() for batch in sent] == [None, None]
        assert [batch.base_offset for batch in sent] == [0, 3]
    copies = broker.records(target, 1)
    originals = broker.records(source)
    assert [(r.value, r.timestamp_ms) for r in copies] == [
        (r.value, r.timestamp_ms) for r in originals
    ]
    assert broker.records(target, 0) == []


def test_first_batch_may_begin_before_the_position(broker, source):
    """It is whole; the position says what of it was read before."""
    found = fetched(broker, source, offset=2)

    assert found[0].topic_partition == TopicPartition(source, 0)
    assert found[0].position == 2
    assert [batch.base_offset for each in found for batch in each.batches] == [0, 3]


def test_batches_are_polled_of_partitions_that_were_assigned(broker, source, unique):
    """A group would move them in the middle."""
    settings = {"group_id": unique("copiers"), "topics": [source]}
    with (
        Consumer(broker.bootstrap_servers, **settings) as consumer,
        pytest.raises(RuntimeError, match="partitions that were assigned"),
    ):
        consumer.poll_batches()


def test_copy_is_refused_as_a_record_would_be(broker, source, target):
    """If it is too large, of a partition that there is not, or for a producer that is closed."""
    content = batches_of(broker, source)[0]
    size = BATCH_OVERHEAD + len(content.payload)
    with Producer(broker.bootstrap_servers, max_request_size=size) as producer:
        producer.send_encoded(target, content)
    with (
        Producer(broker.bootstrap_servers, max_request_size=size - 1) as producer,
        pytest.raises(KafkaError, match=f"{size} bytes for topic {target}") as caught,
    ):
        producer.send_encoded(target, content)
    assert caught.value.error is ErrorCode.MESSAGE_TOO_LARGE
    with (
        Producer(broker.bootstrap_servers) as producer,
        pytest.raises(KafkaError, match=f"partition=7: topic {target} has 2"),
    ):
        producer.send_encoded(target, content._replace(partition=7))
    producer.close()
    with pytest.raises(RuntimeError, match="closed"):
        producer.send_encoded(target, content)


def test_copy_needs_a_transaction_as_a_record_does(broker, source, target, unique):
    """It is committed with it."""
    content = batches_of(broker, source)[0]
    with Producer(broker.bootstrap_servers, transactional_id=unique("copier")) as producer:
        producer.init_transactions(LIMIT_SECONDS)
        with pytest.raises(KafkaError, match="INVALID_TXN_STATE"):
            producer.send_encoded(target, content)
        with producer.transaction():
            producer.send_encoded(target, content)
        producer.begin_transaction()
        aborted = producer.send_encoded(target, content)
        producer.flush(LIMIT_SECONDS)
        producer.abort_transaction()

    assert aborted.failure() is None
    committed = broker.records(target, isolation_level="read_committed")
    assert [record.value for record in committed] == [b"3 0", b"3 1", b"3 2"]


def test_failure_of_a_batch_that_was_split_is_that_of_its_part(broker, unique):
    """The broker has taken the others."""
    topic = unique("narrow")
    broker.create_topic(topic, 1, max_message_bytes=1000)
    with Producer(broker.bootstrap_servers, linger_ms=20_000) as producer:
        small = producer.send(topic, b"x" * 500)
        large = producer.send(topic, b"y" * 2000)
        batch = small._batch
        assert batch.failure() is None
        producer.flush(LIMIT_SECONDS)

        assert small.result(0).offset == 0
        assert batch.failure() is large.exception(0)
        assert batch.failure().error is ErrorCode.MESSAGE_TOO_LARGE


def test_producer_goes_on_under_another_transactional_id(broker, target, unique):
    """What it writes from then on counts with the new one; the old one is another's by then."""
    first, second = unique("first"), unique("second")
    with Producer(broker.bootstrap_servers, transactional_id=first) as producer:
        producer.init_transactions(LIMIT_SECONDS)
        producer.begin_transaction()
        producer.send(target, b"one", partition=0)
        with pytest.raises(KafkaError, match="take_id"):
            producer.take_id(second)
        producer.commit_transaction()
        producer.take_id(second)
        producer.init_transactions(LIMIT_SECONDS)
        with producer.transaction():
            producer.send(target, b"two", partition=0)
        with Producer(broker.bootstrap_servers, transactional_id=first) as other:
            other.init_transactions(LIMIT_SECONDS)
        with producer.transaction():
            producer.send(target, b"three", partition=0)

    values = [r.value for r in broker.records(target, isolation_level="read_committed")]
    assert values == [b"one", b"two", b"three"]
    with pytest.raises(RuntimeError, match="closed"):
        producer.take_id(first)


@pytest.mark.parametrize("timestamp_ms", [0, 2**63 - 1])
def test_ends_of_the_range_of_timestamps_can_be_sent(broker, unique, timestamp_ms):
    """A record may have either."""
    topic = unique("times")
    limit = str(2**63 - 1)
    settings = {"message_timestamp_before_max_ms": limit, "message_timestamp_after_max_ms": limit}
    broker.create_topic(topic, 1, **settings)
    with Producer(broker.bootstrap_servers) as producer:
        sent = producer.send(topic, b"v", timestamp_ms=timestamp_ms).result(LIMIT_SECONDS)

    assert sent.timestamp_ms == timestamp_ms


@pytest.mark.parametrize("timestamp_ms", [-1, 2**63, 1.5, "now"])
def test_time_that_a_record_cannot_have_is_refused(broker, target, timestamp_ms):
    """At once, with what it must be."""
    with (
        Producer(broker.bootstrap_servers) as producer,
        pytest.raises(KafkaError, match="must be a whole number of milliseconds") as caught,
    ):
        producer.send(target, b"v", timestamp_ms=timestamp_ms)

    assert caught.value.error is ErrorCode.INVALID_TIMESTAMP


def test_record_of_just_the_limit_is_sent(broker, target):
    """One byte more is too much."""
    with Producer(broker.bootstrap_servers, max_request_size=1000) as producer:
        overhead = 21 + BATCH_OVERHEAD
        assert producer.send(target, bytes(1000 - overhead)).result(LIMIT_SECONDS)
        with pytest.raises(KafkaError, match="1001 bytes"):
            producer.send(target, bytes(1001 - overhead))


def test_callback_and_interceptors_both_hear_of_a_record(broker, target):
    """First the chain, then who has sent it; an interceptor that raises does not stop it."""
    heard: list[str] = []

    class Broken:
        """Raises before each record."""

        def on_send(self, record):
            raise ZeroDivisionError

    class Witness:
        """Takes records as they are."""

        def on_send(self, record):
            return None

        def on_acknowledgement(self, metadata, error):
            heard.append(f"chain {metadata.offset}")

    with Producer(broker.bootstrap_servers, interceptor_classes=[Broken, Witness]) as producer:
        future = producer.send(
            target,
            b"v",
            partition=0,
            on_delivery=lambda metadata, error: heard.append(f"callback {metadata.offset}"),
        )
        future.result(LIMIT_SECONDS)

    assert heard == ["chain 0", "callback 0"]


def test_future_of_a_record_that_was_delivered_calls_back_at_once(broker, target):
    """It cannot be cancelled, before or after."""
    called: list[object] = []
    with Producer(broker.bootstrap_servers, linger_ms=20_000) as producer:
        future = producer.send(target, b"v", partition=0)
        assert (future.done(), future.cancel(), future.cancelled()) == (False, False, False)
        producer.flush(LIMIT_SECONDS)
        assert future.done()
        future.add_done_callback(called.append)
        assert called == [future]
        future.add_done_callback(lambda _: 1 / 0)
        assert (future.cancel(), future.cancelled()) == (False, False)
        assert future.result(0).offset == 0
