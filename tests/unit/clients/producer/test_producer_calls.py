"""The calls of `ottla.Producer` in virtual time: how long they wait, and what ends with them."""

from __future__ import annotations

from functools import partial

import pytest
from transaction_world import TransactionWorld
from virtual_thread import virtual_threads

from ottla import KafkaError, Producer, TopicPartition
from ottla.clients.producer.producer_batch import RECORD_OVERHEAD, ProducerBatch
from ottla.errors import ConfigError, ErrorCode
from ottla.protocol.produce import ProduceRequest
from ottla.record.record_batch import BATCH_OVERHEAD, RecordBatch
from ottla.record.rows import EncodedRecords

SHORT = {"max_block_ms": 1000, "request_timeout_ms": 1000, "delivery_timeout_ms": 2000}
OFFSETS = {TopicPartition("pages", 0): 7}


@pytest.fixture
def world(runtime, cluster) -> TransactionWorld:
    """Brokers that agree to all; its own producer sends nothing."""
    return TransactionWorld(runtime, cluster)


@pytest.fixture
def producer_of(runtime, world, monkeypatch):
    """Makes producers whose calls run in virtual time, without linger."""
    virtual_threads(monkeypatch, runtime, "ottla.clients.producer.producer")
    return partial(Producer, world.cluster.bootstrap_servers, linger_ms=0)


@pytest.fixture
def waits(runtime, monkeypatch) -> list[float | None]:
    """How long a thread would wait for each batch, which takes a second and is never done."""
    found: list[float | None] = []

    def wait(batch: ProducerBatch, timeout: float | None) -> bool:
        found.append(timeout)
        runtime.advance(1000)
        return True

    monkeypatch.setattr(ProducerBatch, "wait", wait)
    return found


def test_calls_have_time_although_their_limits_are_short(producer_of, world, runtime):
    """The thread waits somewhat longer than each call, so that errors are those of the calls."""
    with producer_of(transactional_id="till", **SHORT) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        assert len(producer.partitions_for("pages")) == 2
        future = producer.send("pages", b"a", partition=0)
        runtime.advance(10)
        assert future.result(0).offset == 0
        producer.send_offsets_to_transaction(OFFSETS, "copiers")
        producer.commit_transaction()
        producer.begin_transaction()
        world.cluster.topics["pages"] = 3
        producer.send("pages", b"b", partition=2)
        runtime.advance(10)
        assert producer.metrics()["producer-metrics"]["record-send-total"] == 2
        producer.prepare_transaction()
        producer.take_id("desk")
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("pages", b"c", partition=1)
        runtime.advance(10)

    assert world.conversation() == [
        *("init -1", "add", "produce", "offsets", "commit offsets", "commit"),
        *("add", "produce", "init -1", "add", "produce", "abort"),
    ]


@pytest.mark.parametrize("call", ["flush", "commit_transaction", "prepare_transaction"])
@pytest.mark.parametrize(("timeout", "expected"), [(None, 3.0), (7, 7.0)])
def test_batches_are_waited_for_as_long_as_the_limit_lasts(
    producer_of, runtime, waits, call, timeout, expected
):
    """The limit without a timeout is delivery.timeout.ms and a little, for all batches together."""
    is_transactional = call.endswith("transaction")
    producer = producer_of(transactional_id="till" if is_transactional else None, **SHORT)
    if is_transactional:
        producer.init_transactions()
        producer.begin_transaction()
    runtime.advance(5000)
    for partition in (0, 1):
        producer.send("pages", b"a", partition=partition)
    getattr(producer, call)(timeout)

    assert waits == [expected, expected - 1]


@pytest.mark.parametrize(("timeout", "expected_ms"), [(None, 3000), (7, 7000), (0, 0)])
def test_close_waits_for_records_as_long_as_its_limit_lasts(
    producer_of, world, runtime, timeout, expected_ms
):
    """A leader that does not answer in time; the records fail then."""
    settings = SHORT | {"delivery_timeout_ms": 20_000 if timeout else 2000}
    producer = producer_of(**settings, retries=0, enable_idempotence=False)
    runtime.advance(5000)
    world.cluster[0].on(ProduceRequest, None)
    future = producer.send("pages", b"a", partition=0)
    began_ms = runtime.clock.monotonic_ms()
    producer.close(timeout)

    assert runtime.clock.monotonic_ms() - began_ms <= expected_ms
    assert future.exception(0) is not None


def test_records_linger_again_after_a_flush(producer_of, world, runtime, waits):
    """It hurries only what was queued before."""
    producer = producer_of(linger_ms=2000)
    producer.send("pages", b"a", partition=0)
    producer.flush()
    assert world.log == [b"a"]
    producer.send("pages", b"b", partition=0)
    runtime.advance(1999)
    assert world.log == [b"a"]


def test_call_that_needs_transactions_is_refused_before_anything_is_waited_for(producer_of, waits):
    """The setting is missing, and no record will make up for that."""
    producer = producer_of()
    producer.send("pages", b"a")
    for call in (producer.commit_transaction, producer.prepare_transaction):
        with pytest.raises(ConfigError, match=r"transactional\.id"):
            call()

    assert waits == []


@pytest.mark.parametrize("is_over", [False, True])
def test_block_that_raises_is_aborted_unless_its_transaction_is_over(
    producer_of, world, caplog, is_over
):
    """Its error goes on, and nothing more is said to the coordinator than there is to say."""
    producer = producer_of(transactional_id="till")
    producer.init_transactions()

    def work() -> None:
        with producer.transaction():
            producer.send_offsets_to_transaction(OFFSETS, "copiers")
            if is_over:
                producer.commit_transaction()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()

    assert world.conversation()[-1] == ("commit" if is_over else "abort")
    assert caplog.messages == []


@pytest.mark.parametrize("kind", ["record", "batch"])
def test_what_is_refused_at_once_makes_the_transaction_abortable(producer_of, runtime, kind):
    """A record or a batch of records may be too large, and outside of one both are refused."""
    with producer_of(transactional_id="till", max_request_size=1000) as producer:

        def send(size: int) -> None:
            if kind == "record":
                producer.send("pages", bytes(size))
            else:
                producer.send_encoded("pages", EncodedRecords(0, 1, bytes(size), 0, 0, None))

        producer.init_transactions()
        with pytest.raises(KafkaError, match="producer till is READY"):
            send(10)
        producer.begin_transaction()
        with pytest.raises(KafkaError, match="is larger than"):
            send(1000)
        runtime.advance(0)
        with pytest.raises(KafkaError, match="must be aborted") as caught:
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()

    assert caught.value.error is ErrorCode.MESSAGE_TOO_LARGE


def test_bad_name_of_a_topic_makes_the_transaction_abortable(producer_of, runtime):
    """As any record that was not taken."""
    with producer_of(transactional_id="till") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(KafkaError, match="b'pages' cannot be a topic's name"):
            producer.send(b"pages", b"v")
        runtime.advance(0)
        with pytest.raises(KafkaError, match="must be aborted"):
            producer.commit_transaction()


@pytest.mark.parametrize(("given", "sent"), [("text", b"text"), (b"bytes", b"bytes"), (None, None)])
@pytest.mark.parametrize("part", ["key", "value", "header"])
def test_text_is_sent_as_bytes_and_none_as_nothing(producer_of, world, runtime, part, given, sent):
    """In keys, values and headers; a number has no bytes of its own."""
    with producer_of() as producer:

        def send(content: object) -> None:
            parts = {"key": None, "value": None, "header": b"h", part: content}
            headers = {"name": parts["header"]}
            producer.send("pages", parts["value"], key=parts["key"], headers=headers)

        with pytest.raises(KafkaError, match=part):
            send(7)
        send(given)
        runtime.advance(10)

    (request,) = world.cluster[0].sent(ProduceRequest)
    (record,) = RecordBatch(request.topic_data[0].partition_data[0].records).records()
    found = {"key": record.key, "value": record.value, "header": record.headers[0][1]}
    assert found == {"key": None, "value": None, "header": b"h", part: sent}


class Letters(bytes):
    """As numpy.bytes_."""


class Name(str):
    """As numpy.str_."""


def test_records_are_of_plain_bytes_and_pairs(producer_of):
    """No subclass, and no list as a pair, gets into a batch, where compiled code refuses it."""
    headers = [[Name("é"), Letters(b"h")]]
    with producer_of(linger_ms=1000) as producer:
        producer.send("pages", Letters(b"v"), key=Letters(b"k"), headers=headers, partition=0)
        _, key, value, pairs = producer._topics["pages"].queues[0].open.records[0]
        assert (key, value, pairs) == (b"k", b"v", (("é", b"h"),))
        assert [type(each) for each in (key, value, pairs[0][1])] == [bytes] * 3
        assert [type(pairs[0]), type(pairs[0][0])] == [tuple, str]


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (("a",), "must be a pair"),
        (7, "must be a pair"),
        (("a\ud800", b""), "cannot be written as UTF-8"),
        ((b"a", b""), "must be a str"),
    ],
)
def test_header_that_would_fail_its_batch_is_refused(producer_of, header, reason):
    """By an error that shows it."""
    with producer_of() as producer, pytest.raises(KafkaError, match=reason):
        producer.send("pages", b"v", headers=[header])


def test_record_that_comes_while_the_producer_is_closed_is_refused(producer_of, world):
    """Another thread was on its way when `close` was called; the partitioner is closed as well."""

    class Closer:
        """Closes the producer while it chooses."""

        closed = 0

        def partition(self, topic, key, key_bytes, value, value_bytes, cluster):
            producer.close()
            return 0

        def close(self):
            Closer.closed += 1

    producer = producer_of(partitioner_class=Closer)
    with pytest.raises(RuntimeError, match="the producer is closed"):
        producer.send("pages", b"a")

    assert world.log == []
    assert Closer.closed == 1


@pytest.mark.parametrize(
    ("buffer_memory", "name"), [(1001, r"max\.request\.size=1000"), (999, r"buffer\.memory=999")]
)
def test_setting_that_a_record_is_too_large_for_is_named(producer_of, buffer_memory, name):
    """It is the smaller one of the two."""
    size = min(1000, buffer_memory) + 1 - BATCH_OVERHEAD - RECORD_OVERHEAD
    settings = {"max_request_size": 1000, "buffer_memory": buffer_memory, "batch_size": 10}
    with producer_of(**settings) as producer, pytest.raises(KafkaError, match=name):
        producer.send("pages", bytes(size))


@pytest.mark.parametrize(("ignores", "count"), [(False, 1), (True, 2)])
def test_keys_choose_the_partition_unless_they_are_ignored(producer_of, runtime, ignores, count):
    """Then records with a key are spread as those without one."""
    settings = {"partitioner_ignore_keys": ignores, "batch_size": 40}
    with producer_of(**settings) as producer:
        futures = [producer.send("pages", b"a" * 10, key=b"k") for _ in range(8)]
        runtime.advance(100)

        assert len({future.result(0).partition for future in futures}) == count


def test_partitions_without_a_leader_are_left_out_as_soon_as_the_metadata_say_so(world, runtime):
    """Records without a key go to the others."""
    world.cluster.leaders["pages", 0], world.cluster.epochs["pages", 0] = -1, 1
    assert world.queues.available == [0, 1]
    world.core.metadata.request_update()
    runtime.advance(200)

    assert world.queues.available == [1]
    del world.cluster.topics["pages"]
    world.core.metadata.request_update()
    runtime.advance(200)

    assert world.core.metadata.cluster.topics["pages"].partitions == {}
    assert world.queues.partitions == [0, 1], "an answer without partitions says nothing of them"


def test_close_that_is_interrupted_fails_what_was_not_delivered(
    producer_of, world, runtime, monkeypatch
):
    """Its futures are done, and nothing more is taken: nobody would send it."""
    producer = producer_of()
    world.cluster[0].on(ProduceRequest, None)
    futures = [producer.send("pages", b"a", partition=0)]
    runtime.advance(10)
    futures.append(producer.send("pages", b"b", partition=0))

    def interrupted(call, limit_ms=None):
        call.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(producer._io, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        producer.close()

    failed = ErrorCode.OPERATION_NOT_ATTEMPTED
    assert [future.exception(0).error for future in futures] == [failed, failed]
    with pytest.raises(RuntimeError, match="closed"):
        producer.send("pages", b"c", partition=0)
