"""How the console consumer writes records, and bytes as printable text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO, StringIO

import pytest

import ottla
from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.main import main
from ottla.cli.output import FORMATTERS, decoder, formatter, text_decoder
from ottla.cli.terminal import Terminal
from ottla.clients.admin.scram_users import UserScramCredential
from ottla.config.jaas import SCRAM_SHA_256
from ottla.protocol.message import encode_versioned
from ottla.protocol.offsets_topic import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.record.consumer_record import ConsumerRecord, TimestampType
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from ottla.structs import ClientEntity, TopicPartition
from ottla.testing import InProcessBroker

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


NAME = "x\x1b[1m\x1b]0;owned\x07\r\nfake line\u202e\u2028"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e]|^fake", re.MULTILINE)
GUARDED = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
}
COMMANDS = [
    "consumer-groups --list",
    "consumer-groups --list --state",
    "consumer-groups --describe --all-groups",
    "consumer-groups --describe --all-groups --members",
    "consumer-groups --describe --all-groups --state",
    "consumer-groups --all-groups --reset-offsets --to-earliest --all-topics",
    "configs --describe --entity-type users",
    "configs --describe --entity-type groups",
    "acls --list",
    "users list",
    "lag",
]


@pytest.mark.parametrize("name", ["offsets", "groupmetadata"])
def test_names_of_groups_stay_in_their_lines(name):
    """As a formatter writes them: a line for each record."""
    if name == "offsets":
        key = encode_versioned(OffsetCommitKey(group=NAME, topic="t", partition=0), 1)
        value = encode_versioned(OffsetCommitValue(offset=9, metadata=NAME), 3)
    else:
        key = encode_versioned(GroupMetadataKey(group=NAME), 2)
        value = encode_versioned(GroupMetadataValue(protocol=NAME, leader=NAME), 3)
    line = written(RECORD._replace(key=key, value=value), name).decode()

    assert line.count("\n") == 1
    assert line.endswith("\n")
    assert RAW.findall(line.rstrip("\n")) == []
    assert line.count("owned") > 1


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    """A broker where a group, a user, a quota and a rule of rights have such a name."""
    pattern = ResourcePattern(ResourceType.GROUP, NAME, PatternType.LITERAL)
    entry = AccessControlEntry(f"User:{NAME}", NAME, AclOperation.READ, AclPermissionType.ALLOW)
    with InProcessBroker(**GUARDED) as broker:
        broker.create_topic("t")
        with ottla.Admin(broker.bootstrap_servers) as admin:
            admin.alter_group_offsets(NAME, {TopicPartition("t", 0): 0})
            admin.create_acls([AclBinding(pattern, entry)])
            admin.alter_client_quotas({ClientEntity(NAME): {"producer_byte_rate": 1e6}})
            admin.alter_user_scram_credentials([UserScramCredential(NAME, SCRAM_SHA_256, "pw")])
        yield broker


@pytest.mark.parametrize("command", COMMANDS)
def test_names_stay_in_their_lines(broker, command):
    """A newline in one began a line that a script took for a name of its own."""
    out, err = StringIO(), StringIO()
    words = [*command.split(), "--bootstrap-server", broker.bootstrap_servers]

    main(words, Terminal(out=out, err=err))

    assert "owned" in out.getvalue() + err.getvalue()
    assert RAW.findall(out.getvalue() + err.getvalue()) == []
