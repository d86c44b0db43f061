"""`ottla.Producer` against a real broker."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import threading
from typing import ClassVar

import pytest
from records import CODECS, PARTITIONS, Sent, assert_same, records

from ottla import Admin, Consumer, KafkaError, NewTopic, Producer, RecordMetadata, TopicPartition
from ottla.clients.producer.producer_batch import RECORD_OVERHEAD
from ottla.clients.serialization import JsonDeserializer, JsonSerializer
from ottla.config.client_config import ProducerConfig
from ottla.errors import ErrorCode, KafkaTimeoutError
from ottla.record.record_batch import BATCH_OVERHEAD

LIMIT_SECONDS = 100


@pytest.fixture
def topic(broker, unique) -> str:
    """A new topic with three partitions."""
    return create(broker, unique("ottla-producer"))


def create(broker, name, partitions=PARTITIONS, **configs) -> str:
    with Admin(broker.bootstrap_servers) as admin:
        configs = {key.replace("_", "."): str(value) for key, value in configs.items()}
        admin.create_topics([NewTopic(name, partitions, 1, configs=configs)])
    return name


def read_all(broker, topic, count) -> list:
    """The first `count` records of all partitions."""
    found = []
    with Consumer(broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(TopicPartition(topic, p.partition) for p in consumer.partitions_for(topic))
        for record in consumer.records(idle_timeout_ms=LIMIT_SECONDS * 1000):
            found.append(record)
            if len(found) == count:
                return found
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_producer_writes_records_with_keys_and_headers(broker, topic, codec):
    """A thousand records per codec come back whole, in order per key."""
    sent = records(codec)
    with Producer(broker.bootstrap_servers, compression_type=codec) as producer:
        futures = [producer.send(topic, r.value, key=r.key, headers=list(r.headers)) for r in sent]
    found = read_all(broker, topic, len(sent))

    assert all(future.done() for future in futures)
    assert_same(sent, [Sent(r.key, r.value, r.headers) for r in found])


def test_send_tells_where_the_record_went(broker, topic):
    """The future has topic, partition, offset, timestamp and sizes."""
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"a", partition=1).result(LIMIT_SECONDS)
        future = producer.send(topic, b"value", key=b"k", partition=1, timestamp_ms=1234)

        assert future.result(LIMIT_SECONDS) == RecordMetadata(topic, 1, 1, 1234, 1, 5)


def test_send_tells_the_time_of_the_broker_where_it_decides(broker, unique):
    """The timestamp is the broker's where the topic has LogAppendTime."""
    name = create(broker, unique("append-time"), 1, message_timestamp_type="LogAppendTime")
    with Producer(broker.bootstrap_servers) as producer:
        metadata = producer.send(name, b"a", timestamp_ms=1234).result(LIMIT_SECONDS)

    assert metadata.timestamp_ms > 1_600_000_000_000


def test_delivery_callbacks_come_in_order(broker, topic):
    """Each record's callback is called once, in the order of sending to its partition."""
    seen = []
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(500):
            producer.send(
                topic,
                str(number),
                partition=0,
                on_delivery=lambda metadata, error: seen.append((metadata.offset, error)),
            )

    assert seen == [(offset, None) for offset in range(500)]


WRONG = [
    ({"topic": ["t"]}, r"\['t'\] cannot be a topic's name"),
    ({"topic": {}}, "{} cannot be a topic's name"),
    ({"partition": [1]}, r"partition=\[1\]: must be the number of a partition"),
    ({"partition": "1"}, "partition='1'"),
    ({"headers": 5}, "headers=5: must be a mapping, or pairs"),
    ({"headers": object()}, "must be a mapping, or pairs"),
    ({"on_delivery": 5}, "on_delivery=5: must be a function"),
]


CALLS = [
    (call, *each)
    for call, taken in [
        ("send", {"topic", "partition", "headers", "on_delivery"}),
        ("send_values", {"topic", "partition"}),
        ("send_arrow", {"topic"}),
    ]
    for each in WRONG
    if each[0].keys() <= taken
]


@pytest.mark.parametrize(("call", "wrong", "said"), CALLS)
def test_wrong_argument_is_named(broker, topic, call, wrong, said):
    """With its value and the rule; nothing of the call is sent."""
    given = {"topic": topic, **wrong}
    value = [b"v"] if call == "send_values" else b"v"
    if call == "send_arrow":
        value = pytest.importorskip("pyarrow").table({"value": ["v"]})
    with Producer(broker.bootstrap_servers) as producer:
        producer.partitions_for(topic)
        with pytest.raises(KafkaError, match=said):
            getattr(producer, call)(given.pop("topic"), value, **given)
        assert producer.send(topic, b"v", partition=0).result(LIMIT_SECONDS).offset == 0


ENDS = [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit(), ValueError()]


@pytest.mark.parametrize("raised", ENDS, ids=repr)
@pytest.mark.parametrize("told_by", ["callback", "interceptor"])
def test_callback_that_raises_anything_holds_up_no_record(broker, topic, told_by, raised):
    """Neither those of the same answer nor those that come later."""

    class Ending:
        def on_acknowledgement(self, metadata, error):
            raise raised

    chain, on_delivery = [Ending], None
    if told_by == "callback":
        chain, on_delivery = [], Ending().on_acknowledgement
    heard = []
    with Producer(broker.bootstrap_servers, interceptor_classes=chain) as producer:
        for _ in range(2):
            for partition in range(PARTITIONS):
                producer.send(topic, b"v", partition=partition, on_delivery=on_delivery)
                last = producer.send(
                    topic, b"w", partition=partition, on_delivery=lambda *_: heard.append(1)
                )
            last.result(LIMIT_SECONDS)
        producer.flush(LIMIT_SECONDS)

    assert len(heard) == 2 * PARTITIONS
    assert len(read_all(broker, topic, 4 * PARTITIONS)) == 4 * PARTITIONS


def test_records_without_a_key_are_spread_over_all_partitions(broker, topic):
    """The sticky partition moves on with each batch."""
    with Producer(broker.bootstrap_servers, batch_size=1000) as producer:
        futures = [producer.send(topic, b"x" * 100) for _ in range(1000)]

    assert {future.result(0).partition for future in futures} == set(range(PARTITIONS))


def test_acks_none_and_leader_deliver_as_well(broker, topic):
    """acks=0 does not learn offsets; acks=1 does."""
    for count, acks, offset in ((1, "0", -1), (2, "1", 1)):
        with Producer(broker.bootstrap_servers, acks=acks) as producer:
            assert producer.send(topic, b"v", partition=0).result(LIMIT_SECONDS).offset == offset
        assert len(read_all(broker, topic, count)) == count


def test_flush_waits_for_everything(broker, topic):
    """After flush all futures are done, however long the linger."""
    with Producer(broker.bootstrap_servers, linger_ms=20_000) as producer:
        futures = [producer.send(topic, b"v") for _ in range(10)]
        producer.flush(LIMIT_SECONDS)

        assert all(future.done() for future in futures)


def test_many_threads_share_a_producer(broker, topic):
    """Nothing is lost or doubled, and each thread's own order holds."""
    with Producer(broker.bootstrap_servers) as producer:

        def send(name: str) -> None:
            for number in range(500):
                producer.send(topic, f"{name} {number}", key=name)

        threads = [threading.Thread(target=send, args=(f"t{n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    values = [record.value.decode() for record in read_all(broker, topic, 2000)]

    for n in range(4):
        own = [value for value in values if value.startswith(f"t{n} ")]
        assert own == [f"t{n} {number}" for number in range(500)]


def test_small_buffer_blocks_and_goes_on(broker, topic):
    """send() waits for room, and every record arrives."""
    with Producer(broker.bootstrap_servers, buffer_memory=50_000, batch_size=10_000) as producer:
        for _ in range(2000):
            producer.send(topic, b"x" * 200)

    assert len(read_all(broker, topic, 2000)) == 2000


def test_record_above_the_limit_is_refused_at_once(broker, topic):
    """max.request.size is the producer's own limit."""
    with (
        Producer(broker.bootstrap_servers, max_request_size=1000) as producer,
        pytest.raises(KafkaError, match=r"1083 bytes.*max\.request\.size=1000") as caught,
    ):
        producer.send(topic, b"x" * 1001)
    assert caught.value.error is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_largest_record_of_a_producer_is_taken_by_a_broker_and_read(broker, topic, codec):
    """The defaults of all three agree; codecs make more of bytes that have no pattern."""
    limit = ProducerConfig.keys["max.request.size"].default - BATCH_OVERHEAD - RECORD_OVERHEAD
    value = random.Random(1).randbytes(limit)
    with Producer(broker.bootstrap_servers, compression_type=codec) as producer:
        producer.send(topic, value).result(LIMIT_SECONDS)
        with pytest.raises(KafkaError, match=r"max\.request\.size=1048576"):
            producer.send(topic, value + b"x")

    assert [record.value for record in read_all(broker, topic, 1)] == [value]


def test_batch_above_the_topics_limit_is_split(broker, unique):
    """MESSAGE_TOO_LARGE makes smaller batches of the large one, in order and once each."""
    name = create(broker, unique("small-batches"), 1, max_message_bytes=2000)
    with Producer(broker.bootstrap_servers, batch_size=100_000, linger_ms=50) as producer:
        futures = [producer.send(name, f"{number:0100d}") for number in range(300)]
    offsets = [future.result(0).offset for future in futures]

    assert offsets == list(range(300))
    assert [int(r.value) for r in read_all(broker, name, 300)] == list(range(300))


def test_single_record_above_the_topics_limit_fails(broker, unique):
    """What cannot be split is refused, and the next records are not affected."""
    name = create(broker, unique("small-records"), 1, max_message_bytes=2000)
    with Producer(broker.bootstrap_servers) as producer:
        large = producer.send(name, b"x" * 5000)
        with pytest.raises(KafkaError, match="MESSAGE_TOO_LARGE"):
            large.result(LIMIT_SECONDS)

        assert producer.send(name, b"small").result(LIMIT_SECONDS).offset == 0


def test_unknown_topic_is_created_or_waited_for(broker, unique):
    """Where topics are created automatically, the first send makes the topic."""
    with Producer(broker.bootstrap_servers) as producer:
        assert producer.send(unique("made-by-send"), b"v").result(LIMIT_SECONDS).offset == 0


def test_send_to_nobody_ends_at_max_block(unique):
    """A send without a broker raises after max.block.ms, with the reason."""
    with (
        Producer("127.0.0.1:9", max_block_ms=200) as producer,
        pytest.raises(KafkaTimeoutError, match=r"127\.0\.0\.1:9"),
    ):
        producer.send("t", b"v")


def test_invalid_topic_name_is_refused(broker, topic):
    """By the call, be it text, bytes or nothing; topics with good names are found after it."""
    with Producer(broker.bootstrap_servers) as producer:
        for name in ("no/such topic", b"cmp", None, "orders\ud800"):
            with pytest.raises(KafkaError, match=r"INVALID_TOPIC_.*: .* cannot be a topic"):
                producer.send(name, b"v")
        assert producer.send(topic, b"v").result(timeout=10).topic == topic


def test_partition_that_does_not_exist_is_refused(broker, topic):
    """After a look at fresh metadata, the error names partition and count."""
    with (
        Producer(broker.bootstrap_servers) as producer,
        pytest.raises(KafkaError, match=f"partition=7: topic {topic} has 3"),
    ):
        producer.send(topic, b"v", partition=7)


def test_new_partition_is_found_without_a_restart(broker, topic):
    """A partition that was added since is used when it is asked for."""
    with Producer(broker.bootstrap_servers) as producer, Admin(broker.bootstrap_servers) as admin:
        producer.send(topic, b"v").result(LIMIT_SECONDS)
        admin.create_partitions({topic: PARTITIONS + 1})
        future = producer.send(topic, b"v", partition=PARTITIONS)

        assert future.result(LIMIT_SECONDS).partition == PARTITIONS


def test_serializers_partitioner_and_interceptor_take_part(broker, topic):
    """Values become JSON, a custom partitioner decides, an interceptor changes the record."""

    class Stamp:
        """Adds a field, and remembers what was acknowledged."""

        acknowledged: ClassVar[list] = []

        def on_send(self, record):
            return record._replace(value={**record.value, "stamped": True})

        def on_acknowledgement(self, metadata, error):
            self.acknowledged.append((metadata.partition, error))

    def hot_to_last(topic, key, value, partitions, available):
        return partitions[-1] if key == b"hot" else 0

    with Producer(
        broker.bootstrap_servers,
        value_serializer=JsonSerializer,
        partitioner_class=hot_to_last,
        interceptor_classes=[Stamp],
    ) as producer:
        producer.send(topic, {"n": 1}, key="hot")
    found = read_all(broker, topic, 1)[0]

    assert found.partition == PARTITIONS - 1
    assert JsonDeserializer().deserialize(topic, found.value) == {"n": 1, "stamped": True}
    assert Stamp.acknowledged == [(PARTITIONS - 1, None)]


def test_closed_producer_raises(broker, topic):
    """After close nothing is taken any more, and its thread has ended; closing twice is fine."""
    producer = Producer(broker.bootstrap_servers, client_id=topic)
    assert any(topic in thread.name for thread in threading.enumerate())
    producer.close()
    producer.close()

    with pytest.raises(RuntimeError, match="closed"):
        producer.send(topic, b"v")
    assert not any(topic in thread.name for thread in threading.enumerate())


def test_idempotent_producer_survives_a_killed_broker(ottla_fresh_broker):
    """A crash in the middle: every record is there once, in order."""
    victim = ottla_fresh_broker
    create(victim, "t", 1)
    with Producer(victim.bootstrap_servers, linger_ms=0, batch_size=2000) as producer:
        futures = [producer.send("t", str(number)) for number in range(2000)]
        futures[200].result(LIMIT_SECONDS)
        victim.kill()
        futures += [producer.send("t", str(number)) for number in range(2000, 3000)]
        victim.start()
        offsets = [future.result(LIMIT_SECONDS).offset for future in futures]

    assert [int(r.value) for r in read_all(victim, "t", 3000)] == list(range(3000))
    assert offsets == list(range(3000))


def test_record_without_a_key_is_named_by_the_broker(broker, unique):
    """Of a batch that a compacted topic refuses, each record has its own reason (KIP-467)."""
    topic = create(broker, unique("keyed"), 1, cleanup_policy="compact")
    with Producer(broker.bootstrap_servers, linger_ms=20_000) as producer:
        futures = [producer.send(topic, b"v", key=key) for key in (b"k", None)]
        producer.flush()
        errors = [future.exception() for future in futures]

    assert [error.error for error in errors] == [ErrorCode.INVALID_RECORD] * 2
    assert "it has no key" in str(errors[1])
    assert "it has no key" not in str(errors[0])


IMPATIENT = {"request_timeout_ms": 1000, "delivery_timeout_ms": 2000, "linger_ms": 0}


@pytest.mark.parametrize("call", ["flush", "close", "result", "bulk result"])
def test_callback_that_would_wait_for_its_own_thread_is_told(broker, topic, call):
    """The wait would not end; the producer works, and stays open."""
    told = []

    def wait(producer: Producer) -> object:
        if call == "result":
            return producer.send(topic, b"second", partition=0).result(LIMIT_SECONDS)
        if call == "bulk result":
            return producer.send_values(topic, [b"second"], partition=0).result(LIMIT_SECONDS)
        producer.send(topic, b"second", partition=0)
        return getattr(producer, call)()

    def on_delivery(metadata: RecordMetadata, error: KafkaError | None) -> None:
        try:
            told.append(wait(producer))
        except (RuntimeError, TimeoutError, KafkaError) as error:
            told.append(error)
        called.set()

    called = threading.Event()
    with Producer(broker.bootstrap_servers, **IMPATIENT) as producer:
        producer.send(topic, b"first", partition=0, on_delivery=on_delivery)
        assert called.wait(LIMIT_SECONDS)
        assert producer.send(topic, b"third", partition=0).result(LIMIT_SECONDS).offset == 2

    assert [type(each) for each in told] == [RuntimeError]
    assert "a callback of" in str(told[0])
    assert [r.value for r in read_all(broker, topic, 3)] == [b"first", b"second", b"third"]


def test_callback_that_finds_no_room_is_told_at_once(broker, topic):
    """Its thread alone makes room: what waits in the callback would hold up all deliveries."""
    told = []

    def on_delivery(metadata: RecordMetadata, error: KafkaError | None) -> None:
        try:
            for _ in range(3):
                producer.send(topic, bytes(40_000), partition=1)
        except KafkaError as refusal:
            told.append(refusal)
        called.set()

    called = threading.Event()
    settings = IMPATIENT | {"buffer_memory": 100_000, "max_block_ms": 600_000}
    with Producer(broker.bootstrap_servers, **settings) as producer:
        producer.send(topic, b"a", partition=0, on_delivery=on_delivery)
        assert called.wait(LIMIT_SECONDS)

    assert [each.error for each in told] == [ErrorCode.REQUEST_TIMED_OUT]
    assert "no room for 40021 bytes in buffer.memory=100000" in str(told[0])
    assert len(read_all(broker, topic, 3)) == 3


@pytest.mark.parametrize("limit_ms", [2**63 - 1, 10**15])
def test_limits_may_be_as_long_as_java_has_them(broker, topic, limit_ms):
    """Many configurations have Long.MAX_VALUE; seconds may be infinite."""
    with Producer(broker.bootstrap_servers, max_block_ms=limit_ms, linger_ms=60_000) as producer:
        future = producer.send(topic, b"a")
        producer.flush(timeout=float("inf"))
        assert future.done()
        producer.close(timeout=float("inf"))


def test_child_that_was_forked_is_told_to_make_its_own_clients(broker, topic):
    """Threads do not follow: what it sent would lie there, and what it read be read twice."""
    (place,) = [TopicPartition(topic, 0)]
    with (
        Producer(broker.bootstrap_servers, **IMPATIENT) as producer,
        Consumer(
            broker.bootstrap_servers, auto_offset_reset="earliest", max_poll_records=1
        ) as consumer,
    ):
        producer.send_values(topic, [b"a", b"b", b"c"], partition=0).result(LIMIT_SECONDS)
        consumer.assign([place])
        while not consumer.poll(1000):
            pass
        calls = {
            "send": lambda: producer.send(topic, b"x", partition=0),
            "send_values": lambda: producer.send_values(topic, [b"x"], partition=0),
            "flush": producer.flush,
            "poll": lambda: consumer.poll(0),
            "position": lambda: consumer.position(place),
        }
        fork = multiprocessing.get_context("fork")
        told = fork.SimpleQueue()

        def work() -> None:
            for name, call in calls.items():
                try:
                    told.put((name, repr(call())))
                except Exception as error:
                    told.put((name, str(error)))
            producer.close()
            consumer.close()

        child = fork.Process(target=work)
        child.start()
        child.join()
        found = dict(told.get() for _ in calls)

        assert child.exitcode == 0
        assert [name for name, text in found.items() if "in another process" not in text] == []
        producer.send(topic, b"d", partition=0).result(LIMIT_SECONDS)
        rest = [record.value for record in consumer.records(idle_timeout_ms=1000)]

    assert rest == [b"b", b"c", b"d"]


def test_close_waits_until_the_system_has_taken_what_no_broker_acknowledges(broker, topic):
    """acks=0 asks for no answer; what a full socket keeps back was lost with the process."""
    value = bytes(900_000)
    with Producer(broker.bootstrap_servers, acks="0", buffer_memory=1 << 28) as producer:
        for _ in range(60):
            producer.send(topic, value, partition=0)

    assert len(read_all(broker, topic, 60)) == 60
