"""`ottla console-producer`."""

import pytest

from ottla.errors import ErrorCode, KafkaError, KafkaTimeoutError


class FakeFuture:
    """A future whose outcome is known."""

    def __init__(self, producer: "FakeProducer", error: KafkaError | None) -> None:
        self.producer = producer
        self.error = error

    def exception(self) -> KafkaError | None:
        self.producer.log.append("wait")
        return self.error


class FakeProducer:
    """Keeps what is sent; values in `refused` fail, some at once and some later."""

    def __init__(self) -> None:
        self.sent: list[tuple[object, ...]] = []
        self.timestamps: list[int | None] = []
        self.refused: dict[bytes, KafkaError] = {}
        self.too_large: set[bytes] = set()
        self.log: list[str] = []

    def __enter__(self) -> "FakeProducer":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send(self, topic, value, *, key, headers, timestamp_ms, on_delivery):
        if value in self.too_large:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(value)} bytes")
        self.sent.append((topic, key, value, headers))
        self.timestamps.append(timestamp_ms)
        self.log.append("send")
        error = self.refused.get(value)
        if on_delivery is not None:
            on_delivery(None if error else object(), error)
        return FakeFuture(self, error)

    def flush(self) -> None:
        self.log.append("flush")


@pytest.fixture
def producer(clients):
    """The producer that the command gets."""
    clients.client = FakeProducer()
    return clients.client


def test_each_line_is_sent(tool, producer):
    """One record per line, and nothing is printed."""
    outcome = tool("console-producer", "--topic", "t", stdin=b"This is a message\nAnother\n")

    assert (outcome.status, outcome.out, outcome.err) == (0, "", "")
    assert producer.sent == [("t", None, b"This is a message", ()), ("t", None, b"Another", ())]
    assert producer.log == ["send", "send", "flush"]


def test_reason_of_a_record_that_is_too_late_is_shown(tool, producer):
    """Below min.insync.replicas the line names NOT_ENOUGH_REPLICAS, not only the time limit."""
    text = "t-0 was not delivered (after 9 attempts; the last error was NOT_ENOUGH_REPLICAS: few)"
    producer.refused = {b"v": KafkaTimeoutError(text)}
    outcome = tool("console-producer", "--topic", "t", stdin=b"v\n")

    assert outcome.status == 1
    assert "the last error was NOT_ENOUGH_REPLICAS" in outcome.err


def test_keys_and_headers_are_read_from_lines(tool, producer):
    """The properties say how."""
    words = ("--property", "parse.key=true", "--property", "parse.headers=true")

    tool("console-producer", "--topic", "t", *words, stdin=b"h:x\tk\tv\n")

    assert producer.sent == [("t", b"k", b"v", (("h", b"x"),))]


def test_lines_may_be_json(tool, producer):
    """What `ottla tail --format json` prints is sent as it was read, with its time."""
    line = b'{"key": "k", "value": "v", "headers": [{"key": "h", "value": "x"}], "timestamp": 5}'
    outcome = tool("console-producer", "--topic", "t", "--format", "json", stdin=line)

    assert outcome.status == 0
    assert producer.sent == [("t", b"k", b"v", (("h", b"x"),))]
    assert producer.timestamps == [5]


def test_json_has_no_separators(tool, producer):
    """--property says how text is read."""
    words = ("--format", "json", "--property", "parse.key=true")
    outcome = tool("console-producer", "--topic", "t", *words)

    assert "option --property cannot be used with --format json" in outcome.err


def test_broker_list_is_known(ottla, producer, clients):
    """Kafka's older scripts call the servers so."""
    assert ottla("console-producer", "--broker-list", "localhost:9092", "--topic", "t").status == 0
    assert clients.asked[0][:2] == ("producer", "localhost:9092")


def test_options_become_settings_of_the_producer(tool, producer, clients, tmp_path):
    """An option wins over --producer-property, which wins over the file."""
    path = tmp_path / "producer.properties"
    path.write_text("acks=1\nlinger.ms=1\nbatch.size=1\nkey.serializer=org.apache.X\n")
    words = ("--producer.config", path, "--producer-property", "linger.ms=2")

    tool("console-producer", "--topic", "t", *words, "--request-required-acks", "-1")

    assert clients.asked[0][2] == {
        "acks": "-1",
        "linger.ms": "2",
        "batch.size": "1",
        "client.id": "console-producer",
    }


@pytest.mark.parametrize(
    ("words", "codec"),
    [
        ((), None),
        (("--compression-codec", "zstd"), "zstd"),
        (("--compression-codec",), "gzip"),
    ],
)
def test_codec_without_a_name_is_gzip(tool, producer, clients, words, codec):
    """The codec is gzip, as with Kafka's tool."""
    tool("console-producer", "--topic", "t", *words)

    assert clients.asked[0][2].get("compression.type") == codec


@pytest.mark.parametrize(
    ("option", "setting"),
    [
        ("--request-timeout-ms", "request.timeout.ms"),
        ("--message-send-max-retries", "retries"),
        ("--retry-backoff-ms", "retry.backoff.ms"),
        ("--timeout", "linger.ms"),
        ("--max-block-ms", "max.block.ms"),
        ("--max-memory-bytes", "buffer.memory"),
        ("--max-partition-memory-bytes", "batch.size"),
        ("--socket-buffer-size", "send.buffer.bytes"),
        ("--metadata-expiry-ms", "metadata.max.age.ms"),
    ],
)
def test_each_option_has_its_setting(tool, producer, clients, option, setting):
    """The names of older tools stand for settings of the producer."""
    tool("console-producer", "--topic", "t", option, "7")

    assert clients.asked[0][2][setting] == "7"


def test_sync_waits_for_each_record(tool, producer):
    """The next one is sent when the outcome is known."""
    tool("console-producer", "--topic", "t", "--sync", stdin=b"a\nb\n")

    assert producer.log == ["send", "wait", "send", "wait", "flush"]


def test_many_lines_are_sent_before_the_first_outcome_is_awaited(tool, producer):
    """Many lines are on their way at once, and the outcome of each is looked at in the end."""
    tool("console-producer", "--topic", "t", stdin=b"a\n" * 1000)

    assert producer.log == ["send"] * 1000 + ["flush"] + ["wait"] * 1000


def test_records_that_fail_are_counted_and_each_reason_is_logged_once(tool, producer):
    """The others are sent, and the status tells."""
    producer.refused[b"bad"] = KafkaError(ErrorCode.INVALID_RECORD, "no key")
    producer.too_large.add(b"large")

    outcome = tool("console-producer", "--topic", "t", stdin=b"bad\na\nbad\nlarge\nb\n")

    assert outcome.status == 1
    assert [sent[2] for sent in producer.sent] == [b"bad", b"a", b"bad", b"b"]
    assert outcome.err.count("INVALID_RECORD: no key") == 1
    assert outcome.err.count("MESSAGE_TOO_LARGE: 5 bytes") == 1
    assert outcome.err.splitlines()[-1] == "3 records for topic t were not sent"


def test_records_that_fail_among_many_are_counted(tool, producer):
    """A file is checked as thoroughly as a person's lines."""
    producer.refused[b"bad"] = KafkaError(ErrorCode.INVALID_RECORD, "no key")

    outcome = tool("console-producer", "--topic", "t", stdin=b"a\nbad\n" * 500)

    assert outcome.status == 1
    assert outcome.err.splitlines()[-1] == "500 records for topic t were not sent"


def test_line_that_cannot_be_read_ends_the_command(tool, producer):
    """The line is named; what came before it in other reads has been sent."""
    outcome = tool(
        "console-producer", "--topic", "t", "--property", "parse.key=true", stdin=b"no key\n"
    )

    assert outcome.status == 1
    assert "line 1 has no key" in outcome.err


@pytest.mark.parametrize("bad", [1, 4, 35_000])
def test_lines_before_a_bad_one_are_sent(tool, producer, bad):
    """Who continues at the line that is named has sent each line once."""
    lines = [b"k%d:v%d" % (number, number) for number in range(1, 40_000)]
    lines[bad - 1] = b"bad line"
    words = ("--property", "parse.key=true", "--property", "key.separator=:")
    outcome = tool("console-producer", "--topic", "t", *words, stdin=b"\n".join(lines))

    assert outcome.status == 1
    assert f"line {bad} has no key" in outcome.err
    assert f"; {bad - 1} before it were sent" in outcome.err
    assert [value for _, _, value, _ in producer.sent] == [b"v%d" % n for n in range(1, bad)]


def test_topic_is_required(tool, producer):
    """There is nowhere to send to otherwise."""
    assert "missing required option --topic" in tool("console-producer").err
