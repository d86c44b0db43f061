"""`ottla console-consumer`."""

import os
import signal

import pytest

from ottla.cli.terminal import Terminal
from ottla.clients.metadata import PartitionInfo
from ottla.errors import ErrorCode, KafkaError
from ottla.record.consumer_record import ConsumerRecord, TimestampType
from ottla.structs import TopicPartition


def record(offset: int, value: bytes = b"v", partition: int = 0) -> ConsumerRecord:
    return ConsumerRecord("t", partition, offset, 1000, TimestampType.CREATE_TIME, b"k", value)


class FakeConsumer:
    """Hands out what `polls` holds, then nothing; keeps how it was positioned."""

    def __init__(self) -> None:
        self.polls: list[object] = []
        self.calls: list[tuple[object, ...]] = []
        self.counts = {"t": 3, "u": 1, "__consumer_offsets": 1}
        self.assigned = {TopicPartition("t", 0)}

    def __enter__(self) -> "FakeConsumer":
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.append(("close",))

    def subscribe(self, topics=(), *, pattern=None) -> None:
        self.calls.append(("subscribe", topics or pattern))

    def assign(self, partitions) -> None:
        self.assigned = set(partitions)
        self.calls.append(("assign", partitions))

    def assignment(self):
        return self.assigned

    def partitions_for(self, topic):
        if topic not in self.counts:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic}")
        return self.list_topics()[topic]

    def list_topics(self):
        return {
            topic: [PartitionInfo(topic, number, 0, 0, (0,), (0,), ()) for number in range(count)]
            for topic, count in self.counts.items()
        }

    def beginning_offsets(self, partitions):
        return dict.fromkeys(partitions, 10)

    def end_offsets(self, partitions):
        return dict.fromkeys(partitions, 57)

    def seek(self, partition, offset) -> None:
        self.calls.append(("seek", partition, offset))

    def seek_to_beginning(self, partitions) -> None:
        self.calls.append(("seek_to_beginning", partitions))

    def seek_to_end(self, partitions) -> None:
        self.calls.append(("seek_to_end", partitions))

    def poll(self, timeout_ms):
        found = self.polls.pop(0) if self.polls else []
        if isinstance(found, Exception):
            raise found
        if callable(found):
            return found()
        return found


@pytest.fixture
def consumer(clients, monkeypatch):
    """The consumer that the command gets; each look at the clock is 100 ms later."""
    now_ms = iter(range(0, 1_000_000, 100))
    monkeypatch.setattr(Terminal, "now_ms", lambda _: next(now_ms))
    clients.client = FakeConsumer()
    return clients.client


def test_values_are_printed_until_enough_are_there(tool, consumer):
    """A line per record, and the count on stderr."""
    consumer.polls = [[record(0, b"a")], [record(1, b"b"), record(2, b"c")]]

    outcome = tool("console-consumer", "--topic", "t", "--from-beginning", "--max-messages", 2)

    assert (outcome.status, outcome.out) == (0, "a\nb\n")
    assert outcome.err == "Processed a total of 2 messages\n"
    assert consumer.calls[0] == ("assign", [TopicPartition("t", number) for number in range(3)])


def test_records_that_were_not_wanted_are_given_back(tool, consumer):
    """Nobody commits unwanted records as read; partitions that were lost are left alone."""
    consumer.polls = [[record(5), record(6), record(7), record(9, partition=1)]]

    tool("console-consumer", "--topic", "t", "--group", "g", "--max-messages", 1)

    assert consumer.calls[1:] == [("seek", TopicPartition("t", 0), 6), ("close",)]


def test_no_messages_at_all_may_be_wanted(tool, consumer):
    """--max-messages 0 polls nothing."""
    assert tool("console-consumer", "--topic", "t", "--max-messages", 0).out == ""


@pytest.mark.parametrize("option", ["--max-messages", "--timeout-ms"])
def test_limit_below_zero_is_none(tool, consumer, option):
    """Kafka's tool has -1 for none."""
    consumer.polls = [[record(0, b"a")], [], [], [record(1, b"b")]]
    other = ("--timeout-ms", 1000) if option == "--max-messages" else ("--max-messages", 2)

    assert tool("console-consumer", "--topic", "t", option, -1, *other).out == "a\nb\n"


def test_quiet_topic_is_left_after_the_timeout(tool, consumer):
    """The time counts from the last record."""
    consumer.polls = [[], [record(0)], [], []]

    outcome = tool("console-consumer", "--topic", "t", "--timeout-ms", 300)

    assert (outcome.status, outcome.out) == (0, "v\n")


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_it_with_the_count(tool, consumer, stop):
    """What has come is printed, then the consumer is closed and the signal means what it did."""
    handler = signal.getsignal(stop)

    def interrupted() -> list[ConsumerRecord]:
        os.kill(os.getpid(), stop)
        return [record(0)]

    consumer.polls = [interrupted]

    outcome = tool("console-consumer", "--topic", "t")

    assert (outcome.status, outcome.out) == (0, "v\n")
    assert outcome.err == "Processed a total of 1 messages\n"
    assert consumer.calls[-1] == ("close",)
    assert signal.getsignal(stop) is handler


def test_second_interrupt_does_not_wait(tool, consumer):
    """For someone who is in a hurry."""

    def interrupted_twice() -> list[ConsumerRecord]:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        return []

    consumer.polls = [interrupted_twice]

    assert tool("console-consumer", "--topic", "t").status == 130


def test_error_of_the_cluster_is_one_line_after_the_count(tool, consumer):
    """The consumer is closed all the same."""
    consumer.polls = [[record(0)], KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")]

    outcome = tool("console-consumer", "--topic", "t")

    assert outcome.status == 1
    assert outcome.err.splitlines() == [
        "Processed a total of 1 messages",
        "ottla console-consumer: no (TOPIC_AUTHORIZATION_FAILED)",
    ]


def test_record_that_cannot_be_printed_ends_it(tool, consumer):
    """The record is given back, as nobody has seen it."""
    consumer.polls = [[record(0, bytes(8)), record(1, b"no long")]]

    outcome = tool("console-consumer", "--topic", "t", "--value-deserializer", "long")

    assert (outcome.status, outcome.out) == (1, "0\n")
    assert "t-0 at offset 1: a long has 8 bytes, this record has 7" in outcome.err
    assert "--skip-message-on-error" in outcome.err
    assert ("seek", TopicPartition("t", 0), 1) in consumer.calls


def test_record_that_cannot_be_printed_can_be_skipped(tool, consumer):
    """--skip-message-on-error logs it and reads the next one."""
    consumer.polls = [[record(0, b"no long"), record(1, bytes(8))]]
    words = ("--value-deserializer", "long", "--skip-message-on-error", "--max-messages", 2)

    outcome = tool("console-consumer", "--topic", "t", *words)

    assert (outcome.status, outcome.out) == (0, "0\n")
    assert "ERROR t-0 at offset 0: the record is left out: a long has 8 bytes" in outcome.err


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ((), ("seek_to_end", [TopicPartition("t", 1)])),
        (("--offset", "latest"), ("seek_to_end", [TopicPartition("t", 1)])),
        (("--offset", "Earliest"), ("seek_to_beginning", [TopicPartition("t", 1)])),
        (("--from-beginning",), ("seek_to_beginning", [TopicPartition("t", 1)])),
        (("--offset", "17"), ("seek", TopicPartition("t", 1), 17)),
    ],
)
def test_one_partition_is_read_from_where_it_is_said(tool, consumer, words, call):
    """Outside any group; the end is the default."""
    tool("console-consumer", "--topic", "t", "--partition", 1, "--max-messages", 0, *words)

    assert consumer.calls[:2] == [("assign", [TopicPartition("t", 1)]), call]


def test_partition_that_is_not_there_is_named(tool, consumer):
    """Instead of waiting for its records."""
    outcome = tool("console-consumer", "--topic", "t", "--partition", 3)

    assert outcome.status == 1
    assert "topic 't' has no partition 3" in outcome.err


@pytest.mark.parametrize("option", ["--include", "--whitelist"])
def test_topics_can_be_chosen_by_a_pattern(tool, consumer, option):
    """The older spelling means the same; internal topics have to be named."""
    tool("console-consumer", option, "u|__.*", "--max-messages", 0)

    assert consumer.calls[0] == ("assign", [TopicPartition("u", 0)])


def test_group_subscribes_to_the_topic_or_the_pattern(tool, consumer):
    """Its partitions are shared among the members."""
    for words in (("--topic", "t"), ("--include", "t.*")):
        tool("console-consumer", *words, "--group", "g", "--max-messages", 0)

    subscribed = [call for call in consumer.calls if call[0] == "subscribe"]
    assert subscribed == [("subscribe", ["t"]), ("subscribe", "t.*")]


def test_reader_without_a_group_needs_none(tool, consumer, clients):
    """No rebalance is waited for, no throw-away group is left behind, no topic is created."""
    tool("console-consumer", "--topic", "t", "--max-messages", 0)

    assert clients.asked[0][2] == {
        "enable.auto.commit": "false",
        "auto.offset.reset": "latest",
        "client.id": "console-consumer",
        "max.poll.records": "5000",
        "allow.auto.create.topics": "false",
    }


def test_partitions_that_are_added_are_read_from_their_beginning(tool, consumer):
    """A consumer without a group looks for new partitions itself."""

    def grow() -> list[ConsumerRecord]:
        consumer.counts["u"] = 2
        return []

    consumer.polls = [grow, *[[]] * 400, [record(0)]]

    tool("console-consumer", "--topic", "u", "--max-messages", 1)

    both = [TopicPartition("u", 0), TopicPartition("u", 1)]
    assert consumer.calls[:3] == [
        ("assign", both[:1]), ("assign", both), ("seek_to_beginning", both[1:])
    ]  # fmt: skip


@pytest.mark.parametrize("words", [(), ("--group", "g"), ("--partition", 0)])
def test_topic_that_was_typed_wrong_is_an_error_with_a_hint(tool, consumer, words):
    """A reader must not make a topic of it."""
    consumer.counts["orders"] = 1

    outcome = tool("console-consumer", "--topic", "ordres", *words)

    assert outcome.status == 1
    line = "ottla console-consumer: topic 'ordres' does not exist; did you mean orders?"
    assert outcome.err.splitlines()[-1] == line


@pytest.mark.parametrize(
    ("offset", "line"),
    [
        (999, "offset 999 is beyond the end (57) of t-0"),
        (9, "offset 9 is before the start (10) of t-0"),
    ],
)
def test_offset_outside_the_log_is_an_error(tool, consumer, offset, line):
    """Silence would look like an empty topic."""
    outcome = tool("console-consumer", "--topic", "t", "--partition", 0, "--offset", offset)

    assert (outcome.status, outcome.err.splitlines()[-1]) == (1, f"ottla console-consumer: {line}")


def test_group_that_gives_out_nothing_in_time_is_told_from_an_empty_topic(tool, consumer):
    """A join may take longer than --timeout-ms."""
    consumer.assigned = set()

    outcome = tool("console-consumer", "--topic", "t", "--group", "g", "--timeout-ms", 1500)

    assert outcome.err.splitlines()[0] == "no partition was assigned within 1500 ms"


def test_bytes_of_a_record_give_no_orders_to_a_terminal(tool, consumer):
    """Escapes and bytes that are no text are written out; a pipe gets them as they are."""
    polls = [[record(0, "a\tb\033[31mRED\033]0;x\007\u202e".encode()), record(1, b"\xff\x00")]]
    words = ("--topic", "t", "--max-messages", 2)
    consumer.polls = list(polls)
    screen = tool("console-consumer", *words, tty=True)
    consumer.polls = list(polls)
    pipe = tool("console-consumer", "--topic", "t", "--max-messages", 1)

    assert screen.out == "a\tb\\x1b[31mRED\\x1b]0;x\\x07\\u202e\n0xff00\n"
    assert pipe.out == "a\tb\033[31mRED\033]0;x\007\u202e\n"


@pytest.mark.parametrize("where", ["option", "property", "file"])
def test_group_can_be_given_in_three_places(tool, consumer, clients, tmp_path, where):
    """It then commits as usual."""
    path = tmp_path / "consumer.properties"
    path.write_text("group.id=g\nvalue.deserializer=org.apache.X\n")
    words = {
        "option": ("--group", "g"),
        "property": ("--consumer-property", "group.id=g"),
        "file": ("--consumer.config", path),
    }

    tool("console-consumer", "--topic", "t", "--max-messages", 0, *words[where])

    settings = clients.asked[0][2]
    assert settings["group.id"] == "g"
    assert "enable.auto.commit" not in settings
    assert "value.deserializer" not in settings


def test_settings_of_the_consumer_are_passed_on(tool, consumer, clients):
    """Settings of the consumer are passed on, also those that have options of their own."""
    words = ("--isolation-level", "read_committed", "--consumer-property", "fetch.min.bytes=7")

    tool("console-consumer", "--topic", "t", "--from-beginning", "--max-messages", 0, *words)

    settings = clients.asked[0][2]
    assert settings["isolation.level"] == "read_committed"
    assert settings["fetch.min.bytes"] == "7"
    assert settings["auto.offset.reset"] == "earliest"


def test_end_can_be_announced_to_system_tests(tool, consumer):
    """--enable-systest-events prints a last line."""
    words = ("--max-messages", 0, "--enable-systest-events")

    assert tool("console-consumer", "--topic", "t", *words).out == "shutdown_complete\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ((), "exactly one of --topic, --include is needed"),
        (("--topic", "t", "--include", "u"), "exactly one of --topic, --include"),
        (("--topic", ""), "--topic needs a name, not ''"),
        (("--include", ""), "--include needs a name, not ''"),
        (("--include", "t", "--partition", 0), "missing required option --topic"),
        (("--topic", "t", "--offset", 1), "--offset needs --partition"),
        (("--topic", "t", "--partition", 0, "--group", "g"), "cannot be used together"),
        (
            ("--topic", "t", "--partition", 0, "--offset", 1, "--from-beginning"),
            "cannot be used together",
        ),
        (("--topic", "t", "--partition", 0, "--offset", "x"), "not 'x'"),
        (("--topic", "t", "--formatter", "x"), "no formatter 'x'"),
        (("--topic", "t", "--key-deserializer", "x"), "no deserializer 'x'"),
        (("--topic", "t", "--group", "g", "--consumer-property", "group.id=h"), "several groups"),
        (
            ("--topic", "t", "--from-beginning", "--consumer-property", "auto.offset.reset=none"),
            "contradicts",
        ),
        (
            ("--topic", "t", "--isolation-level", "x"),
            "--isolation-level may be read_committed, read_uncommitted, not 'x'",
        ),
    ],
)
def test_options_that_do_not_fit_are_one_line(tool, consumer, words, line):
    """What is wrong is named."""
    outcome = tool("console-consumer", *words)

    assert outcome.status == 1
    assert line in outcome.err.splitlines()[-1]
    assert "(see 'ottla console-consumer --help')" in outcome.err
