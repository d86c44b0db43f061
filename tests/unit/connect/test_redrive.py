"""Dead letters of several libraries go back to the topics that they are from."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import pytest

from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition
from ottla.clients.letter_families import FAMILIES, HeaderFamily
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.connect.dead_letter_queue import DeadLetterQueue
from ottla.connect.redrive import (
    METADATA_CHARACTERS,
    PASSES,
    Choice,
    DeadLetter,
    Left,
    Redrive,
    SentOffsets,
    group_of,
)
from ottla.connect.tolerance import Operation, RecordFailure
from ottla.errors import KafkaError
from ottla.record.consumer_record import ConsumerRecord, TimestampType

FROM = "__connect.errors.topic"
INT, LONG = struct.Struct(">i").pack, struct.Struct(">q").pack
LETTERS = {
    "connect": {
        FROM: b"orders",
        "__connect.errors.partition": b"2",
        "__connect.errors.offset": b"41",
        "__connect.errors.connector.name": b"sink",
        "__connect.errors.task.id": b"0",
        "__connect.errors.stage": b"VALUE_CONVERTER",
        "__connect.errors.class.name": b"org.apache.kafka.connect.json.JsonConverter",
        "__connect.errors.exception.class.name": b"org.apache.kafka.connect.errors.DataException",
        "__connect.errors.exception.message": b"no JSON",
        "__connect.errors.exception.stacktrace": b"at ...",
    },
    "streams": {
        "__streams.errors.exception": b"java.lang.RuntimeException: no JSON",
        "__streams.errors.message": b"no JSON",
        "__streams.errors.stacktrace": b"at ...",
        "__streams.errors.topic": b"orders",
        "__streams.errors.partition": b"2",
        "__streams.errors.offset": b"41",
    },
    "spring": {
        "kafka_dlt-original-topic": b"orders",
        "kafka_dlt-original-partition": INT(2),
        "kafka_dlt-original-offset": LONG(41),
        "kafka_dlt-original-timestamp": LONG(1_700_000_000_000),
        "kafka_dlt-original-timestamp-type": b"CREATE_TIME",
        "kafka_dlt-original-consumer-group": b"sink",
        "kafka_dlt-exception-fqcn": b"o.s.k.listener.ListenerExecutionFailedException",
        "kafka_dlt-exception-cause-fqcn": b"java.lang.RuntimeException",
        "kafka_dlt-exception-message": b"no JSON",
        "kafka_dlt-exception-stacktrace": b"at ...",
        "springDeserializerExceptionValue": b"\xac\xed",
    },
    "spring-retry": {
        "kafka_original-topic": b"orders",
        "kafka_original-partition": INT(2),
        "kafka_original-offset": LONG(41),
        "kafka_original-timestamp": LONG(1_700_000_000_000),
        "kafka_original-timestamp-type": b"CREATE_TIME",
        "kafka_dlt-original-consumer-group": b"sink",
        "kafka_exception-fqcn": b"o.s.k.listener.ListenerExecutionFailedException",
        "kafka_exception-cause-fqcn": b"java.lang.RuntimeException",
        "kafka_exception-message": b"no JSON",
        "retry_topic-attempts": INT(4),
        "retry_topic-original-timestamp": LONG(1_700_000_000_000),
        "retry_topic-backoff-timestamp": LONG(1_700_000_000_000),
    },
    "share-groups": {
        "__dlq.errors.topic": b"orders",
        "__dlq.errors.partition": b"2",
        "__dlq.errors.offset": b"41",
        "__dlq.errors.group": b"sink",
        "__dlq.errors.delivery.count": b"5",
        "__dlq.errors.message": b"no JSON",
    },
    "smallrye": {
        "dead-letter-exception-class-name": b"java.lang.RuntimeException",
        "dead-letter-reason": b"no JSON",
        "dead-letter-topic": b"orders",
        "dead-letter-partition": b"2",
        "dead-letter-offset": b"41",
    },
    "x": {
        "x-original-topic": b"orders",
        "x-original-partition": b"2",
        "x-original-offset": b"41",
        "x-original-timestamp": b"1700000000000",
        "x-exception-fqcn": b"builtins.ValueError",
        "x-exception-message": b"no JSON",
    },
    "pipelines": {
        "source.topic": b"orders",
        "source.partition": b"2",
        "source.offset": b"41",
        "reason": b"no JSON",
    },
}
"""What each library writes on a record of orders-2 at offset 41 whose value was no JSON."""
ERRORS = {
    "connect": "org.apache.kafka.connect.errors.DataException",
    "streams": "java.lang.RuntimeException",
    "spring": "java.lang.RuntimeException",
    "spring-retry": "java.lang.RuntimeException",
    "smallrye": "java.lang.RuntimeException",
    "x": "builtins.ValueError",
}
WITH_READER = ("connect", "spring", "spring-retry", "share-groups")
FASTSTREAM = {"content-type": b"application/json", "correlation_id": b"c1"}
"""What FastStream puts on each record itself, which no tool takes off."""


class World:
    """A broker with the topics `orders` and `dead`, and runs of the tool."""

    def __init__(self, broker):
        self.broker = broker
        self.servers = broker.bootstrap_servers
        with Admin(self.servers) as admin:
            admin.create_topics([NewTopic("orders", 3), NewTopic("dead", 1)])

    def bury(self, *letters):
        """Put letters into the queue: each a value, and its headers."""
        with Producer(self.servers) as producer:
            for value, headers in letters:
                producer.send("dead", value, key=b"k", headers=headers, timestamp_ms=1_000)

    def run(self, *, dry=False, **choice):
        """What was told of each letter: a topic, or why it stays."""
        told = []
        settings = {
            "group.id": group_of("dead"),
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
        with Consumer(self.servers, settings) as consumer:
            redrive = Redrive(
                consumer, "dead", Choice(**choice), lambda _, verdict, error: told.append(verdict)
            )
            if dry:
                redrive.preview()
            else:
                with Producer(self.servers, {"transactional.id": group_of("dead")}) as producer:
                    redrive.send(producer)
        return told

    def orders(self):
        with Consumer(self.servers, {"isolation.level": "read_committed"}) as consumer:
            places = [TopicPartition("orders", number) for number in range(3)]
            consumer.assign(places)
            consumer.seek_to_beginning()
            ends = consumer.end_offsets(places)
            found = []
            while any(consumer.position(place) < ends[place] for place in places):
                found += consumer.poll(100)
        return found

    def values(self):
        return sorted(record.value for record in self.orders())


@pytest.fixture
def world(ottla_fresh_broker):
    return World(ottla_fresh_broker)


def wants(*values):
    return lambda letter: letter.record.value in values


def test_letters_of_each_library_go_back(world):
    """Key, value and own headers are as they were; what failed is not repeated."""
    for name, headers in LETTERS.items():
        world.bury((name.encode(), {"h": b"v", **headers, **FASTSTREAM}))

    assert world.run() == ["orders"] * len(LETTERS)
    found = {record.value.decode(): record for record in world.orders()}
    assert set(found) == set(LETTERS)
    for record in found.values():
        assert record.key == b"k"
        assert dict(record.headers) == {"h": b"v", **FASTSTREAM, PASSES: b"1"}


def test_place_time_and_error_of_each_library_are_read():
    """Numbers may be text, or four or eight bytes."""
    assert {family.name for family in FAMILIES} == set(LETTERS)
    for name, headers in LETTERS.items():
        letter = DeadLetter(record_with(*headers.items()))
        assert (letter.family.name, letter.topic, letter.partition, letter.offset) == (
            name,
            "orders",
            2,
            41,
        )
        assert (letter.error, letter.message) == (ERRORS.get(name, ""), "no JSON")
        assert letter.connector == ("sink" if name in WITH_READER else "")
        assert letter.timestamp_ms in (1, 1_700_000_000_000)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (b"0", 0),
        (b"-1", -1),
        (b"1234", 1234),
        (b"12345678", 12345678),
        (INT(0), 0),
        (INT(2**31 - 1), 2**31 - 1),
        (LONG(2**62), 2**62),
        (LONG(-1), -1),
        (b"", None),
        (b"x", None),
        (b"\xff" * 5, None),
        (b"9" * 5000, None),
        (None, None),
    ],
)
def test_numbers_are_text_or_those_of_java(value, number):
    """Bytes that are neither are no number, and end nothing."""
    letter = DeadLetter(record_with((FROM, b"orders"), ("__connect.errors.offset", value)))
    assert letter.offset == number


def test_what_was_sent_is_not_sent_again(world):
    """Letters are sent once, also those chosen from the middle, in any order; `again` sends all."""
    world.bury(*[(b"%d" % number, {FROM: b"orders"}) for number in range(5)])

    assert world.run(is_wanted=wants(b"1", b"3")).count("orders") == 2
    assert world.run(is_wanted=wants(b"3", b"4")).count("orders") == 1
    assert world.run(dry=True).count("orders") == 2
    assert world.run().count("orders") == 2
    assert world.run() == []
    assert world.values() == [b"0", b"1", b"2", b"3", b"4"]
    assert world.run(again=True) == ["orders"] * 5
    assert world.run() == []


def test_queue_that_was_made_again_begins_anew(world):
    """Its letters have the offsets of others that were sent."""
    world.bury((b"1", {FROM: b"orders"}), (b"2", {FROM: b"orders"}))
    world.run(is_wanted=wants(b"2"))
    with Admin(world.servers) as admin:
        admin.delete_topics(["dead"])
        admin.create_topics([NewTopic("dead", 1)])
    world.bury((b"3", {FROM: b"orders"}), (b"4", {FROM: b"orders"}))

    assert world.run() == ["orders", "orders"]
    assert world.values() == [b"2", b"3", b"4"]


def test_only_so_many_are_sent(world):
    """The next run sends the next ones."""
    world.bury(*[(b"%d" % number, {FROM: b"orders"}) for number in range(3)])

    assert world.run(at_most=2) == ["orders"] * 2
    assert world.run(at_most=2) == ["orders"]
    assert world.values() == [b"0", b"1", b"2"]


def test_letter_that_its_topic_refuses_stays_alone(world):
    """All others of its step go, and it goes once its topic takes it."""
    with Admin(world.servers) as admin:
        admin.create_topics([NewTopic("small", 1, configs={"max.message.bytes": "1000"})])
    letters = [(b"%d" % number, {FROM: b"orders"}) for number in range(7)]
    letters[3] = (b"x" * 5000, {FROM: b"small"})
    world.bury(*letters)

    assert sorted(world.run()) == sorted([Left.REFUSED, *["orders"] * 6])
    assert world.values() == [b"0", b"1", b"2", b"4", b"5", b"6"]
    assert world.run().count(Left.REFUSED) == 1
    assert world.run(to="orders").count("orders") == 1


def test_later_of_two_runs_ends_the_earlier(world):
    """Both have chosen the same letters, which go once."""
    world.bury((b"1", {FROM: b"orders"}), (b"2", {FROM: b"orders"}))
    runs = []

    def is_wanted(letter):
        if not runs:
            runs.append(world.run())
        return True

    with pytest.raises(KafkaError, match=r"fenced|newer"):
        world.run(is_wanted=is_wanted)
    assert runs == [["orders", "orders"]]
    assert world.values() == [b"1", b"2"]


def test_letters_of_an_aborted_transaction_are_none(world):
    """A queue may be written by a producer with transactions."""
    with Producer(world.servers, {"transactional.id": "app"}) as producer:
        producer.init_transactions()
        for value in (b"1", b"2"):
            producer.begin_transaction()
            producer.send("dead", value, headers={FROM: b"orders"})
            producer.flush()
            (producer.abort_transaction if value == b"1" else producer.commit_transaction)()

    assert world.run() == ["orders"]
    assert world.values() == [b"2"]


def test_why_letters_stay(world):
    """Each reason is told, and nothing of it counts as sent."""
    letters = {
        Left.NO_TOPIC: {},
        Left.ABSENT: {FROM: b"gone"},
        Left.FORBIDDEN: {FROM: b"__consumer_offsets"},
        Left.AMBIGUOUS: {FROM: b"orders", "kafka_dlt-original-topic": b"payments"},
        Left.TRIES: {FROM: b"orders", PASSES: b"3"},
        Left.PARTIAL: {"source.topic": b"orders", "reason": b"?", "length": b"9000000"},
        Left.NO_PARTITION: {FROM: b"orders", "__connect.errors.partition": b"7"},
    }
    world.bury(*[(b"1", headers) for headers in letters.values()])

    assert world.run(max_tries=3, keeps_partition=True) == list(letters)
    assert world.values() == []
    assert world.run(dry=True, is_wanted=lambda letter: False) == [Left.NOT_WANTED] * len(letters)
    assert world.run(dry=True, to="dead") == [
        Left.PARTIAL if reason is Left.PARTIAL else Left.FORBIDDEN for reason in letters
    ]


def test_letters_without_an_origin_go_where_they_are_told(world):
    """To the topic for those that say none, by a header of one's own, or all to one topic."""
    world.bury((b"1", {}), (b"2", {"failed_in": b"orders"}), (b"3", {FROM: b"gone"}))

    own = HeaderFamily("failed_in", (), topic="failed_in", reserved=False)
    assert world.run(families=[own], dry=True).count("orders") == 1
    assert world.run(families=[own]) == [Left.NO_TOPIC, Left.NO_TOPIC, "orders"]
    assert world.run(otherwise="orders") == [Left.SENT_BEFORE, Left.ABSENT, "orders"]
    assert world.run(to="orders") == ["orders"]


def test_passes_are_counted_and_the_rest_may_be_kept(world):
    """A record that comes back again and again says so."""
    world.bury((b"1", {**LETTERS["spring"], PASSES: b"4"}))
    world.run(keeps_headers=True, keeps_timestamp=True, keeps_partition=True)

    (record,) = world.orders()
    assert dict(record.headers) == {**LETTERS["spring"], PASSES: b"5"}
    assert (record.partition, record.timestamp_ms) == (2, 1_700_000_000_000)


def test_share_group_that_copies_no_records_writes_no_tombstones():
    """Such letters have neither key nor value."""
    letter = DeadLetter(record_with(*LETTERS["share-groups"].items()))
    empty = DeadLetter(letter.record._replace(key=None, value=None))
    assert (letter.is_partial, empty.is_partial) == (False, True)


@pytest.mark.parametrize("seed", range(20))
def test_what_a_group_remembers_is_a_set_of_offsets(seed):
    """Whatever was sent in whatever order, also after it was committed and read."""
    from random import Random

    random = Random(seed)
    begin = random.randrange(1000)
    sent, expected = SentOffsets(begin), set()
    for _ in range(60):
        start = begin + random.randrange(200)
        end = start + random.randrange(1, 5)
        sent.add(start, end)
        expected |= set(range(start, end))
        if random.random() < 0.2:
            sent = SentOffsets.read(sent.to_commit("id"), begin, begin + 1000, "id")
        assert {at for at in range(begin, begin + 210) if at in sent} == expected
        first = next(at for at in range(begin, begin + 1000) if at not in expected)
        assert sent.first_unsent == first


def test_what_a_group_cannot_remember_is_an_error():
    """It is raised before anything is sent."""
    from random import Random

    random = Random(1)
    sent = SentOffsets(0)
    for offset in range(1, 50_000):
        if random.random() < 0.5:
            sent.add(offset, offset + 1)
    with pytest.raises(KafkaError, match="have to be sent first"):
        sent.to_commit("id")
    few = SentOffsets(0, [(2 * number + 1, 2 * number + 2) for number in range(5_000)])
    assert len(few.to_commit("id").metadata) < METADATA_CHARACTERS


def test_offsets_of_older_versions_and_other_tools_count():
    """They have no ranges beside them; an offset behind the end is that of another topic."""
    assert SentOffsets.read(OffsetAndMetadata(5), 2, 9, "id").first_unsent == 5
    assert SentOffsets.read(OffsetAndMetadata(5, "by hand"), 2, 9, "id").first_unsent == 5
    assert SentOffsets.read(OffsetAndMetadata(5, "other:"), 2, 9, "id").first_unsent == 2
    assert SentOffsets.read(OffsetAndMetadata(10), 2, 9, "id").first_unsent == 2
    assert SentOffsets.read(OffsetAndMetadata(1), 2, 9, "id").first_unsent == 2


# Whose headers count.


def record_with(*headers):
    return ConsumerRecord("dead", 0, 0, 1, TimestampType.CREATE_TIME, b"k", b"v", headers)


def letter(*headers):
    """A record that a sink could not handle, with these headers, as its queue keeps it."""
    sent = []

    class Queue:
        def send(self, topic, value, *, key, headers, timestamp_ms, on_delivery):
            sent.append(
                ConsumerRecord(topic, 0, 0, 1, TimestampType.CREATE_TIME, key, value, headers)
            )

    config = SimpleNamespace(
        errors_deadletterqueue_topic_name="dead",
        errors_deadletterqueue_context_headers_enable=True,
    )
    record = ConsumerRecord("orders", 0, 7, 1, TimestampType.CREATE_TIME, b"k", b"v", headers)
    operation = Operation("VALUE_CONVERTER", "JsonConverter", record)
    DeadLetterQueue(Queue(), config, ("sink", 0))(RecordFailure(operation, ValueError("bad"), 1))
    return sent[0]


def test_author_of_a_record_does_not_choose_where_it_is_sent():
    """The tool writes with the operator's rights: only what the queue itself has written counts."""
    found = letter((FROM, b"payments-approved"), ("h", b"v"))

    assert DeadLetter(found).topic == "orders"
    assert [value for name, value in found.headers if name == FROM] == [b"orders"]


def test_header_of_the_queue_counts_in_queues_that_others_have_written():
    """Most append their headers to those that the record had; SmallRye puts its own first."""
    twice = record_with((FROM, b"payments-approved"), (FROM, b"orders"))
    first = record_with(("dead-letter-topic", b"orders"), ("dead-letter-topic", b"approved"))

    assert DeadLetter(twice).topic == DeadLetter(first).topic == "orders"


def test_headers_of_another_library_do_not_choose_either():
    """Two that name two topics send the letter nowhere, and one may be named that counts."""
    found = record_with(("x-original-topic", b"payments-approved"), (FROM, b"orders"))

    assert DeadLetter(found).topic == ""
    assert DeadLetter(found, FAMILIES[:1]).topic == "orders"


@pytest.mark.parametrize("value", [b"__consumer_offsets", b"__transaction_state", b"\xff\xfe"])
def test_letter_is_sent_to_no_internal_topic(world, value):
    """A letter of an internal topic, or of one whose name is no text, is not sent."""
    world.bury((b"1", {FROM: value}))

    assert world.run() == [Left.FORBIDDEN if value.isascii() else Left.NO_TOPIC]


@pytest.mark.parametrize("value", [b"x", b"", None, b"-3", b"9" * 5000, "²".encode()])
def test_count_that_is_no_number_counts_as_none(value):
    """A record of any author does not end the tool."""
    assert DeadLetter(record_with((PASSES, value))).headers() == [(PASSES, b"1")]
