"""`Producer.send_values`: many records at once, and one future for all of them."""

from __future__ import annotations

import re
from threading import Event

import pytest

from ottla import Admin, KafkaError, Producer
from ottla.clients.admin.descriptions import AlterConfigOp, ConfigResource
from ottla.clients.producer.bulk import (
    BYTES_AT_ONCE,
    ROWS_AT_ONCE,
    BulkFuture,
    RowSender,
    WrittenRange,
    rows_of_values,
)
from ottla.clients.producer.partitioner import partition_for_key
from ottla.clients.serialization import SerializationError
from ottla.errors import ErrorCode
from ottla.record import kernel
from ottla.testing import InProcessBroker

LIMIT_S = 60


@pytest.fixture(scope="module")
def broker():
    with InProcessBroker() as broker:
        yield broker


@pytest.fixture
def topic(broker, request):
    """A topic of three partitions."""
    name = re.sub(r"\W", "-", request.node.name)
    broker.create_topic(name, partitions=3)
    return name


@pytest.fixture
def producer(broker):
    with Producer(broker.bootstrap_servers) as producer:
        yield producer


def records(broker, topic):
    return [(r.partition, r.key, r.value) for r in broker.records(topic)]


def test_each_value_becomes_a_record_in_order(broker, topic, producer):
    """Bytes, text, and none at all; in as many slices as it takes."""
    values = [None, "text", b"bytes", bytearray(b"more"), *map(str, range(2 * ROWS_AT_ONCE))]
    written = producer.send_values(topic, values, partition=1).result(LIMIT_S)

    assert [each.offset for each in written] == [
        sum(other.record_count for other in written[:n]) for n in range(len(written))
    ]
    found = [value for _, _, value in records(broker, topic)]
    assert found == [None, b"text", b"bytes", b"more", *(str(n).encode() for n in range(20_000))]


def test_keys_choose_partitions_as_those_of_send_do(broker, topic, producer):
    """A null key leaves the choice."""
    keys = [f"k{number}" for number in range(50)]
    producer.send_values(topic, range_of_texts(50), keys=keys).result(LIMIT_S)
    assert {(p, k) for p, k, _ in records(broker, topic)} == {
        (partition_for_key(key.encode(), 3), key.encode()) for key in keys
    }
    (written,) = producer.send_values(topic, ["x"], keys=[None]).result(LIMIT_S)
    assert written.record_count == 1


def range_of_texts(count):
    return map(str, range(count))


def test_they_stand_behind_what_was_sent_before(broker, topic, producer):
    """Also behind a record that would have lingered."""
    producer.send(topic, "first", partition=0)
    written = producer.send_values(topic, ["second"], partition=0).result(LIMIT_S)
    assert written == [WrittenRange(topic, 0, 1, 1)]


def test_timestamp_counts_for_all(broker, topic, producer):
    """Without one it is the time of the call."""
    producer.send_values(topic, ["a", "b"], timestamp_ms=5).result(LIMIT_S)
    assert {each.timestamp_ms for each in broker.records(topic)} == {5}
    with pytest.raises(KafkaError, match="timestamp_ms=-1"):
        producer.send_values(topic, ["a"], timestamp_ms=-1)


def test_serializers_are_asked(broker, topic):
    """As by `send`."""
    with Producer(
        broker.bootstrap_servers,
        value_serializer=lambda value: str(value).encode(),
        key_serializer=lambda key: bytes([key]),
    ) as producer:
        producer.send_values(topic, [1.5, 2], keys=[7, 7]).result(LIMIT_S)
    assert [(key, value) for _, key, value in records(broker, topic)] == [
        (b"\x07", b"1.5"),
        (b"\x07", b"2"),
    ]


@pytest.mark.parametrize("own", ["interceptor", "partitioner", "keys ignored"])
def test_somebody_with_a_say_in_each_record_has_it(broker, topic, own):
    """The records are sent one by one, and the future is the same."""

    class Upper:
        def on_send(self, record):
            return record._replace(value=record.value.upper())

    settings = {
        "interceptor": {"interceptor_classes": [Upper()]},
        "partitioner": {"partitioner_class": lambda *of: 2},
        "keys ignored": {"partitioner_ignore_keys": True},
    }[own]
    with Producer(broker.bootstrap_servers, **settings) as producer:
        future = producer.send_values(topic, ["a", "b"], keys=["k", "k"])
        written = future.result(LIMIT_S)
    assert sum(each.record_count for each in written) == 2
    assert future.done()
    found = records(broker, topic)
    if own == "interceptor":
        assert [value for _, _, value in found] == [b"A", b"B"]
    elif own == "partitioner":
        assert {partition for partition, _, _ in found} == {2}


@pytest.mark.parametrize(
    ("values", "more", "error", "said"),
    [
        (["a"], {"keys": ["k", "l"]}, ValueError, "2 keys for 1 values"),
        (["a"], {"partition": 3}, KafkaError, "partition=3: topic .* has 3"),
        (["a", 7], {}, SerializationError, "value 7 is a int"),
        (["a", b"x" * 2_000_000], {}, KafkaError, r"larger than max\.request\.size"),
        (["a"], {"keys": [b"x" * 2_000_000]}, KafkaError, r"larger than max\.request\.size"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_anything_is(
    broker, topic, producer, values, more, error, said
):
    """The topic stays empty."""
    with pytest.raises(error, match=said):
        producer.send_values(topic, values, **more)
    producer.flush()
    assert records(broker, topic) == []


@pytest.mark.parametrize("several", ["text", b"bytes", bytearray(b"x")])
def test_one_text_in_place_of_several_is_refused(producer, topic, several):
    """Its letters would be records."""
    with pytest.raises(TypeError, match="values is a"):
        producer.send_values(topic, several)
    with pytest.raises(TypeError, match="keys is a"):
        producer.send_values(topic, ["a"] * len(several), keys=several)


REFUSED = {
    "size": ("send_values", [b"x" * 2_000_000], {}),
    "type": ("send_values", ["a", 7], {}),
    "key": ("send_values", ["a"], {"keys": [7]}),
    "partition": ("send_values", ["a"], {"partition": 7}),
    "timestamp": ("send_values", ["a"], {"timestamp_ms": -3}),
    "row's size": ("send_arrow", {"value": [b"x" * 2_000_000]}, {}),
    "row's type": ("send_arrow", {"value": [7]}, {}),
    "row's partition": ("send_arrow", {"value": ["a"], "partition": [9]}, {}),
    "row's timestamp": ("send_arrow", {"value": ["a"]}, {"timestamp_ms": -3}),
}


@pytest.mark.parametrize("refused", REFUSED)
def test_refused_records_leave_a_transaction_to_be_aborted(broker, topic, refused):
    """A commit would have some records of a call and not the others."""
    call, data, more = REFUSED[refused]
    if call == "send_arrow":
        data = pytest.importorskip("pyarrow").table(data)
    with Producer(broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_values(topic, ["fine"])
        with pytest.raises((KafkaError, ValueError)):
            getattr(producer, call)(topic, data, **more)
        with pytest.raises(KafkaError, match="must be aborted"):
            producer.commit_transaction()
        producer.abort_transaction()


def test_callback_may_send_to_a_known_topic(topic, producer):
    """As with `send`: nothing is waited for."""
    begun = []
    sent = producer.send(topic, "a", on_delivery=lambda *_: begun.append(send_more()))

    def send_more():
        return producer.send_values(topic, ["b", "c"])

    sent.result(LIMIT_S)
    producer.flush()
    assert sum(each.record_count for each in begun[0].result(LIMIT_S)) == 2


def test_values_of_two_gibibytes_are_encoded_in_portions():
    """The offsets of a column have 32 bits."""
    values = [bytes(1 << 20)] * 2100
    first = next(rows_of_values(values, None, None))
    assert first.row_count << 20 <= BYTES_AT_ONCE
    rest = rows_of_values([b"x" * 300] * 500, [bytes(BYTES_AT_ONCE // 8)] * 500, 1)
    assert next(rest).row_count < 8


def test_one_value_is_encoded_however_large():
    """The limit of a record is checked before."""
    rows = list(rows_of_values([bytes(BYTES_AT_ONCE + 1), b"", None], None, None))
    assert [each.row_count for each in rows] == [1, 2]


@pytest.mark.parametrize(("available", "expected"), [([0, 2], {0, 2}), ([], {0, 1, 2}), ([1], {1})])
def test_records_without_key_pass_over_partitions_without_a_leader(available, expected):
    """As those of `send` do; if none has one, all are waited for."""
    batches = []
    sender = RowSender(lambda topic: (3, available), lambda _, b: batches.append(b), 100, 1000)
    for rows in rows_of_values([b"x" * 60] * 9, None, None):
        sender.send("t", rows, 1)
    sender.finish()
    assert {each.partition for each in batches} == expected


@pytest.mark.parametrize("batch_size", [0, 100, 5000])
def test_batch_size_that_is_set_holds(batch_size):
    """Even if it is small."""
    sizes = []
    sender = RowSender(
        lambda topic: (1, [0]), lambda _, b: sizes.append(len(b.payload)), batch_size, 1 << 20
    )
    for rows in rows_of_values([b"x" * 60] * 200, None, None):
        sender.send("t", rows, 1)
    sender.finish()
    assert max(sizes) <= max(batch_size, 90)


def test_nothing_is_done_at_once(producer, topic):
    """No values, no batch."""
    future = producer.send_values(topic, [])
    assert (future.done(), future.result(0), future.exception(0)) == (True, [], None)


def test_batch_that_is_split_is_found_whole(broker, topic, producer):
    """A broker with a small limit gets it in parts; each part's offsets are in the result."""
    resource = ConfigResource.topic(topic)
    with Admin(broker.bootstrap_servers) as admin:
        admin.incremental_alter_configs({resource: [AlterConfigOp("max.message.bytes", "20000")]})
    values = [b"x" * 1000] * 100
    written = producer.send_values(topic, values, partition=0).result(LIMIT_S)
    assert len(written) > 1
    assert [each.offset for each in written] == [
        sum(other.record_count for other in written[:n]) for n in range(len(written))
    ]
    assert sum(each.record_count for each in written) == len(records(broker, topic)) == 100


def test_order_holds_when_the_first_batch_of_a_producer_is_too_large(broker, topic, producer):
    """The batches behind it are queued before any is answered, and none is written before it."""
    resource = ConfigResource.topic(topic)
    with Admin(broker.bootstrap_servers) as admin:
        admin.incremental_alter_configs({resource: [AlterConfigOp("max.message.bytes", "20000")]})
    producer.send(topic, "learns of the topic", partition=1).result(LIMIT_S)
    calls = [[f"{n}".encode() + b"x" * 1000] * 100 for n in range(2)] + [[b"2"], [b"3"], [b"4"]]
    all_queued = Event()
    producer._io.post(all_queued.wait, LIMIT_S)
    queued = [producer.send_encoded(topic, each) for each in map(encoded, calls)]
    all_queued.set()
    producer.flush()
    assert [batch.failure() for batch in queued] == [None] * len(calls)
    found = [value for partition, _, value in records(broker, topic) if partition == 0]
    assert found == [value for call in calls for value in call]


def encoded(values):
    """All values as one batch of partition 0."""
    encoder = kernel.RowEncoder(1, 1 << 30, lambda: 0)
    full = [each for rows in rows_of_values(values, None, 0) for each in encoder.append(rows, 1)]
    (whole,) = [*full, *encoder.finish()]
    return whole


def test_first_error_is_raised_and_the_rest_is_written(broker, topic, producer):
    """A record that the broker refuses is alone with its error."""
    resource = ConfigResource.topic(topic)
    with Admin(broker.bootstrap_servers) as admin:
        admin.incremental_alter_configs({resource: [AlterConfigOp("max.message.bytes", "20000")]})
    future = producer.send_values(topic, [b"a", b"x" * 40_000, b"b"], partition=0)
    with pytest.raises(KafkaError, match=r"max\.message\.bytes=20000") as raised:
        future.result(LIMIT_S)
    assert raised.value.error is ErrorCode.MESSAGE_TOO_LARGE
    assert [value for _, _, value in records(broker, topic)] == [b"a", b"b"]


def test_wait_for_the_outcome_has_a_limit(runtime):
    """The time is that of all parts together."""

    class Batch:
        is_settled = False

        def wait(self, timeout):
            runtime.clock.advance(min(700, int(timeout * 1000)))
            return timeout >= 0.7

        def failure(self):
            return None

    future = BulkFuture(runtime.clock, [Batch(), Batch()])
    assert not future.done()
    assert future.exception(1.4) is None
    with pytest.raises(TimeoutError, match=r"within 1\.0 s"):
        future.exception(1.0)


def test_aborted_transaction_takes_all_of_them_back(broker, topic):
    """They belong to the transaction that is open."""
    with Producer(broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_values(topic, ["a", "b"])
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send_values(topic, ["c"])
        producer.commit_transaction()
    found = broker.records(topic, isolation_level="read_committed")
    assert [each.value for each in found] == [b"c"]
