"""Bytes as printable text."""

import pytest

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.decoders import decoder, text_decoder


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
