"""Bytes of records as text: digits as they are, nothing that acts on a screen, and masks."""

from __future__ import annotations

import pytest

from ottla.console.decoding import (
    DEEPEST_INDENTED,
    LINE_CHARACTERS,
    LONGEST_INDENTED,
    LONGEST_WHOLE,
    SHOWN_OF_LONGER,
    Hiding,
    harmless,
    is_quoting,
    parse_exactly,
    shown_bytes,
    with_indents,
    written,
)
from ottla.console.masks import HIDDEN, mask_of
from ottla.console.record_source import FoundRecord

NUMBERS = (
    '{"a":9007199254740993,"b":-7210194211959421178,"c":1.10,"d":23958446825181076828,"e":1E+3}'
)


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (None, "null", "null"),
        (b"", "empty", ""),
        (b"plain", "text", "plain"),
        ("żółć".encode(), "text", "żółć"),
        (b"42", "text", "42"),
        ((42).to_bytes(8), "number", "42"),
        ((-2).to_bytes(4, signed=True), "number", "-2"),
        (b"\xff\xfe\x00\x01\x02", "hex", "ff fe000102"),
        (b"a\x1b[31mb\x00\x7f", "text", "a\\x1b[31mb\\x00\\x7f"),
        ("a\u202eb\u2066\ufeff".encode(), "text", "a\\u202eb\\u2066\\ufeff"),
        (b"{not json}", "text", "{not json}"),
        (b"{}", "json", "{}"),
        (b'{"a":[]}', "json", '{\n  "a": []\n}'),
        (b'[{"a": "x{y\\"z"}]', "json", '[\n  {\n    "a": "x{y\\"z"\n  }\n]'),
    ],
)
def test_bytes_have_a_kind_and_a_text(data, kind, text):
    """What is no text is a number, by its size, or hexadecimal."""
    shown = with_indents(shown_bytes(data))

    assert (shown.kind, shown.text) == (kind, text)
    assert shown.size == len(data or b"")


def test_numbers_stay_digit_for_digit():
    """In the indented text, in the line, and behind a mask."""
    shown = with_indents(shown_bytes(NUMBERS.encode()))

    for digits in ("9007199254740993", "-7210194211959421178", "1.10", "23958446825181076828"):
        assert digits in shown.text
        assert digits in shown.line
    assert written(parse_exactly(NUMBERS)) == NUMBERS.replace(":", ": ").replace(",", ", ")


def test_line_of_json_is_one_line():
    """Blanks within its texts stay."""
    shown = shown_bytes(b'{"a":[1,{"b":"c  {  d"}],"e":{}}')

    assert shown.line == '{"a": [1, {"b": "c  {  d"}], "e": {}}'
    assert shown_bytes(b"a\nb\tc").line == "a\u21b5b c"
    assert len(shown_bytes(b"x" * 10_000).line) < 1_000


def test_line_of_json_that_was_indented_is_the_same():
    """By others, with their line ends; a text in which the line is cut has no second quote."""
    data = b'{\r\n  "a": [\r\n    1\r\n  ],\r\n  "b": {}\r\n}'

    assert shown_bytes(data).line == with_indents(shown_bytes(data)).line == '{"a": [1], "b": {}}'
    long = shown_bytes(b'{"a": "%s"}' % (b"b  " * 10_000))
    assert long.line == long.text[:LINE_CHARACTERS]


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 900 + b",".join([b"1"] * 30_000) + b"]" * 900,
        b"[" * (DEEPEST_INDENTED + 1) + b"]" * (DEEPEST_INDENTED + 1),
        b"[" * DEEPEST_INDENTED + b",".join([b"1"] * 2_000) + b"]" * DEEPEST_INDENTED,
        b"[%s]" % b",".join([b"1"] * LONGEST_INDENTED),
    ],
)
def test_json_that_indents_would_blow_up_is_shown_as_it_is(data):
    """Deep or long; the line begins alike."""
    shown = shown_bytes(data, is_whole=True)

    assert shown.kind == "json"
    assert with_indents(shown).text == data.decode()
    assert len(shown.line) == LINE_CHARACTERS or len(data) < LINE_CHARACTERS


def test_deep_json_within_the_limits_is_indented():
    """To the deepest level that is."""
    depth = DEEPEST_INDENTED
    lines = with_indents(shown_bytes(b"[" * depth + b"1" + b"]" * depth)).text.splitlines()

    assert lines[depth] == "  " * depth + "1"


def test_large_value_is_cut():
    """Unless all of it is asked for; a letter at the cut is not torn."""
    data = "ż".encode() * LONGEST_WHOLE
    shown = shown_bytes(b"a" + data)

    assert (shown.kind, shown.is_cut, shown.size) == ("text", True, len(data) + 1)
    assert len(shown.text.encode()) <= SHOWN_OF_LONGER
    assert not shown_bytes(data, is_whole=True).is_cut
    assert shown_bytes(b"\xff" * (LONGEST_WHOLE + 1)).kind == "hex"


def test_deep_json_is_text():
    """It is not read by recursion without end."""
    assert shown_bytes(b"[" * 30_000).kind == "text"
    assert shown_bytes(b"[" * 20_000 + b"]" * 20_000).kind == "text"


def test_markup_is_left_to_the_templates():
    """Which escape it."""
    assert harmless("<script>") == "<script>"


def test_masked_places_are_hidden():
    """Bytes in which they cannot be found are hidden whole."""
    hide = Hiding([mask_of("o:value.card"), mask_of("o:key"), mask_of("o:headers.token")])
    headers = (("token", b"secret"), ("id", b"1"))
    record = FoundRecord(0, 1, 2, b"k", b'{"card": 1.10, "n": 1.10}', headers)

    hidden = hide(record)
    assert hidden.value == b'{"card": "***", "n": 1.10}'
    assert hidden.key == HIDDEN.encode()
    assert hidden.headers == (("token", b"***"), ("id", b"1"))
    assert hide(record._replace(value=b'{"card": 1')).value == b"***"
    assert hide(record._replace(value=None)).value is None
    assert Hiding([])(record) is record
    assert Hiding([mask_of("o:headers")])(record).headers[1] == ("id", b"***")


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *(("reason", True), ("__connect.errors.exception.message", True)),
        *(("kafka_exception-message", True), ("dead-letter-reason", True)),
        *(("x-exception-stacktrace", True), ("kafka_dlt-exception-stacktrace", True)),
        *(("trace", False), ("__connect.errors.topic", False)),
    ],
)
def test_headers_that_quote_are_known(name, is_one):
    """Of all libraries whose dead letters are known."""
    assert is_quoting(name) is is_one
