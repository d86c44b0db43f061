"""How the console consumer writes records, and bytes as printable text."""

from __future__ import annotations

from io import BytesIO

import pytest

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.output import FORMATTERS, decoder, formatter, text_decoder
from ottla.record.consumer_record import ConsumerRecord, TimestampType

RECORD = ConsumerRecord(
    topic="t",
    partition=1,
    offset=7,
    timestamp_ms=1700000000000,
    timestamp_type=TimestampType.CREATE_TIME,
    key=b"k",
    value=b"v",
    headers=(("h1", b"x"), ("h2", None)),
)


def written(record: ConsumerRecord, name: str = "default", **properties: str) -> bytes:
    out = BytesIO()
    dotted = {key.replace("_", "."): value for key, value in properties.items()}
    formatter(name, dotted).write(record, out)
    return out.getvalue()


def test_value_alone_is_the_default():
    """A line is the value and nothing else."""
    assert written(RECORD) == b"v\n"


def test_everything_is_written_in_the_order_of_kafka():
    """Timestamp, partition, offset, headers, key, value, whatever order they were asked in."""
    names = ("value", "key", "headers", "offset", "partition", "timestamp")

    assert written(RECORD, **{f"print_{name}": "true" for name in names}) == (
        b"CreateTime:1700000000000\tPartition:1\tOffset:7\th1:x,h2:null\tk\tv\n"
    )


def test_time_of_appending_is_told_apart():
    """The broker may have set the timestamp."""
    record = RECORD._replace(timestamp_type=TimestampType.LOG_APPEND_TIME)

    assert written(record, print_timestamp="true", print_value="false") == (
        b"LogAppendTime:1700000000000\n"
    )


def test_value_can_be_left_out():
    """The line ends after the last part that is shown."""
    assert written(RECORD, print_key="true", print_value="false") == b"k\n"


def test_nothing_is_written_when_nothing_was_asked_for():
    """The end of the line is left out, too."""
    assert written(RECORD, print_value="false") == b""


def test_missing_parts_have_words():
    """Null keys and values, no headers and no timestamp are written out."""
    record = RECORD._replace(key=None, value=None, headers=(), timestamp_ms=-1)

    assert written(record, print_timestamp="true", print_headers="true", print_key="true") == (
        b"NO_TIMESTAMP\tNO_HEADERS\tnull\tnull\n"
    )


def test_separators_and_the_word_for_null_can_be_chosen():
    """The properties of Kafka's formatter are obeyed."""
    text = written(
        RECORD._replace(value=None),
        print_headers="true",
        print_key="true",
        key_separator=" | ",
        line_separator=";",
        headers_separator="&",
        null_literal="NIL",
    )

    assert text == b"h1:x&h2:NIL | k | NIL;"


def test_deserializers_turn_numbers_into_digits():
    """Keys and values have their own."""
    record = RECORD._replace(key=bytes(3) + b"\x05", value=bytes(7) + b"\x06")

    text = written(record, print_key="true", key_deserializer="integer", value_deserializer="long")

    assert text == b"5\t6\n"


def test_logging_formatter_also_logs(caplog):
    """The record is written and logged."""
    caplog.set_level("INFO")

    assert written(RECORD._replace(key=None), "logging") == b"v\n"
    assert caplog.messages == ["CreateTime:1700000000000, key:null, value:v"]


def test_noop_formatter_writes_nothing():
    """Records are only counted."""
    assert written(RECORD, "noop") == b""


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("kafka.tools.DefaultMessageFormatter", "default"),
        ("kafka.tools.NoOpMessageFormatter", "noop"),
        ("org.apache.kafka.tools.consumer.LoggingMessageFormatter", "logging"),
        ("kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter", "offsets"),
        (
            "kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter",
            "groupmetadata",
        ),
    ],
)
def test_class_names_of_kafka_are_known(name, short):
    """Old command lines go on working."""
    assert type(formatter(name, {})) is FORMATTERS[short]


def test_unknown_formatter_lists_what_there_is():
    """The user learns the names."""
    with pytest.raises(UsageError, match="no formatter 'x'; there are default, logging, noop"):
        formatter("x", {})


# Bytes as printable text.


@pytest.mark.parametrize("name", [None, "string", "kafka.serializer.StringDecoder", "bytes"])
def test_text_is_printed_as_it_is(name):
    """No work is done for the usual case."""
    assert decoder(name) is None


@pytest.mark.parametrize(
    ("name", "data", "shown"),
    [
        ("integer", b"\xff\xff\xff\xff", b"-1"),
        ("org.apache.kafka.common.serialization.LongDeserializer", bytes(7) + b"\x05", b"5"),
        ("kafka.serializer.IntegerDecoder", bytes(3) + b"\x07", b"7"),
        ("short", b"\x01\x00", b"256"),
        ("double", b"\x3f\xf8" + bytes(6), b"1.5"),
    ],
)
def test_numbers_are_shown_in_digits(name, data, shown):
    """Kafka's class names and short names mean the same."""
    decode = decoder(name)

    assert decode is not None
    assert decode(data) == shown


def test_number_of_the_wrong_size_is_an_error():
    """The message says how many bytes there are."""
    decode = decoder("long")

    assert decode is not None
    with pytest.raises(CommandError, match="a long has 8 bytes, this record has 3"):
        decode(b"abc")


def test_unknown_name_lists_what_there_is():
    """The user learns the names."""
    with pytest.raises(UsageError, match=r"no deserializer 'avro'; there are string.*long"):
        decoder("avro")


def test_dump_shows_bytes_in_hexadecimal():
    """A line of a dump stays a line."""
    assert text_decoder("bytes")(b"\x00\n") == "000a"
    assert text_decoder("string")(b"a\xff") == "a\ufffd"
    assert text_decoder("integer")(bytes(4)) == "0"
