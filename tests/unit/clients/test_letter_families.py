"""Where dead letters are from, by the headers of the library that has written them."""

from __future__ import annotations

import pytest

from ottla.clients.letter_families import FAMILIES, HeaderFamily, LetterOrigin


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_origin_is_named_by_each_library(family: HeaderFamily):
    """In small letters or others; the error without the message that some put behind it."""
    headers = [
        (family.topic.upper(), b"orders"),
        (family.partition, b"2"),
        (family.offset, (41).to_bytes(8)),
        *((name, b"ValueError: no amount") for name in (*family.error, *family.message)),
    ]
    letter = LetterOrigin(headers)

    assert letter.family is family
    assert (letter.topic, letter.partition, letter.offset) == ("orders", 2, 41)
    assert letter.error == ("ValueError" if family.error else "")
    assert letter.message == ("ValueError: no amount" if family.message else "")
    assert letter.has(family.topic)


def test_headers_of_two_libraries_must_agree():
    """Another topic by each is none; a topic that is no text is none as well."""
    two = [("source.topic", b"a"), ("x-original-topic", b"b")]

    assert LetterOrigin(two).is_ambiguous
    assert LetterOrigin(two).topic == ""
    assert LetterOrigin([("source.topic", b"\xff")]).topic == ""
    assert LetterOrigin([]).partition is None
    assert not LetterOrigin([]).has("source.topic")


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (b"0", 0),
        (b"-9223372036854775808", -(2**63)),
        (b"9" * 20, 10**20 - 1),
        (b"9" * 21, None),
        (b"-", None),
        (b"1234", 1234),
        (bytes(4), 0),
        (b"\xff" * 8, -1),
        (bytes(5), None),
        (b"", None),
        (None, None),
    ],
)
def test_number_is_text_or_the_bytes_of_java(value, number):
    """Text that is longer than any number of Java is none."""
    letter = LetterOrigin([("source.topic", b"orders"), ("source.offset", value)])

    assert letter.offset == number
