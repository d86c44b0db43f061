"""Lines into records."""

import re
from io import BytesIO, StringIO

import pytest

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.line_reader import CHUNK_BYTES, JsonLineReader, LineReader, LineRecord

EVERYTHING = {"parse.key": "true", "parse.headers": "true"}


class Chunks(BytesIO):
    """A stream that gives its bytes in the pieces in which they arrived."""

    def __init__(self, *pieces: bytes) -> None:
        super().__init__()
        self.pieces = list(pieces)

    def read1(self, _size: int = -1) -> bytes:
        return self.pieces.pop(0) if self.pieces else b""


class Keyboard(BytesIO):
    """A stream that a person types into."""

    def isatty(self) -> bool:
        return True


def records(source: BytesIO, **properties: str) -> list[tuple[object, ...]]:
    """Key, value and headers of each record."""
    reader = LineReader({key.replace("_", "."): value for key, value in properties.items()})
    return [record[:3] for some in reader.read(source, StringIO()) for record in some]


def values(*pieces: bytes) -> list[bytes | None]:
    return [value for _, value, *_ in records(Chunks(*pieces))]


def test_each_line_is_a_value():
    """The last line counts without its line feed, an empty line as an empty value."""
    assert values(b"a\n\nb") == [b"a", b"", b"b"]


def test_lines_survive_being_cut_anywhere():
    """However the bytes arrive, the lines are the same."""
    text = b"first\r\n\r\nsecond \xff\nlast"
    expected = [b"first", b"", b"second \xff", b"last"]

    assert values(*[bytes([byte]) for byte in text]) == expected
    assert all(values(text[:cut], text[cut:]) == expected for cut in range(1, len(text)))


def test_line_longer_than_a_chunk_stays_whole():
    """A line may take many reads."""
    line = b"x" * (3 * CHUNK_BYTES + 1)

    assert [value for _, value, *_ in records(BytesIO(line + b"\ny\n"))] == [line, b"y"]


def test_records_are_handed_on_as_they_arrive():
    """A line is not kept waiting for the ones behind it."""
    source = Chunks(b"a\n", b"b\n")
    reading = LineReader({}).read(source, StringIO())

    assert next(reading) == [(None, b"a", (), None)]
    assert source.pieces == [b"b\n"]


def test_key_stands_before_the_separator():
    """Only the first separator counts."""
    found = records(Chunks(b"k:v:w\n"), parse_key="true", key_separator=":")

    assert found == [(b"k", b"v:w", ())]


def test_line_without_key_is_an_error_with_its_number():
    """The message says which line, and what was looked for."""
    with pytest.raises(CommandError, match="line 2 has no key: ':' is not in 'v'"):
        records(Chunks(b"k:v\nv\n"), parse_key="true", key_separator=":")


def test_line_without_key_is_a_value_where_errors_are_ignored():
    """ignore.error=true takes the whole line as the value."""
    found = records(Chunks(b"v\n"), parse_key="true", ignore_error="true")

    assert found == [(None, b"v", ())]


def test_headers_stand_in_front():
    """Headers, key and value are separated by tabs, headers from each other by commas."""
    line = b"h1:v1,h2:v2:w\tk\tv\n"

    assert records(Chunks(line), parse_key="true", parse_headers="true") == [
        (b"k", b"v", (("h1", b"v1"), ("h2", b"v2:w")))
    ]


def test_header_without_separator_is_an_error():
    """A header has a key and a value."""
    with pytest.raises(CommandError, match="line 1 has a header without ':': 'h1'"):
        records(Chunks(b"h1\tv\n"), parse_headers="true")


def test_null_marker_stands_for_nothing():
    """Keys, values, header values and the headers as a whole can be null."""
    found = records(
        Chunks(b"h:N\tN\tN\nN\tk\tv\n"), parse_key="true", parse_headers="true", null_marker="N"
    )

    assert found == [(None, None, (("h", None),)), (b"k", b"v", ())]


def test_null_marker_works_without_keys():
    """A plain line can be a tombstone too."""
    assert records(Chunks(b"N\nv\n"), null_marker="N") == [
        (None, None, ()),
        (None, b"v", ()),
    ]


@pytest.mark.parametrize(
    "properties",
    [
        {"key.separator": ""},
        {"null.marker": "\t"},
        {"headers.delimiter": ","},
        {"headers.separator": ":"},
    ],
)
def test_separators_must_differ(properties):
    """Lines could not be read otherwise."""
    with pytest.raises(UsageError):
        LineReader({**EVERYTHING, **properties})


def test_prompt_is_for_people():
    """On a terminal each line is asked for."""
    out = StringIO()

    found = list(LineReader({}).read(Keyboard(b"a\nb\n"), out))

    assert [value for some in found for _, value, *_ in some] == [b"a", b"b"]
    assert out.getvalue() == ">>>\n"


def json_records(*lines: str) -> list[LineRecord]:
    source = BytesIO("\n".join(lines).encode())
    return [record for some in JsonLineReader().read(source, StringIO()) for record in some]


def test_json_line_is_a_record():
    """Key, value, headers and time; where the record was read does not matter."""
    line = (
        '{"topic": "t", "partition": 1, "offset": 9, "timestamp": "1970-01-01T00:00:05.250Z", '
        '"key": "k", "value": {"n": 1.0, "s": "\u00e9"}, "headers": [{"key": "h", "value": "v"}]}'
    )

    assert json_records("", line) == [
        (b"k", '{"n":1.0,"s":"\u00e9"}'.encode(), (("h", b"v"),), 5250)
    ]


def test_json_knows_null_text_and_bytes():
    """A string is its text, a missing value null, base64 any bytes; milliseconds are a time too."""
    assert json_records(
        '{"key": "null", "value": null}',
        '{"value_base64": "/wA=", "timestamp": 7}',
        '{"value": "\\"x\\"", "headers": [{"key": "h"}, {"key": "h", "value_base64": "/w=="}]}',
    ) == [
        (b"null", None, (), None),
        (None, b"\xff\x00", (), 7),
        (None, b'"x"', (("h", None), ("h", b"\xff")), None),
    ]
    assert json_records(r'{"value": {"half": "\ud83d", "e": "\u00e9"}}') == [
        (None, rb'{"half":"\ud83d","e":"\u00e9"}', (), None)
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "line 2 is not JSON"),
        ("[1]", "line 2 is not a JSON object"),
        ('{"valeu": 1}', "line 2 has a field 'valeu'; there are key, key_base64, value"),
        ('{"key_base64": "?"}', "line 2 has a key_base64 that is not base64: '?'"),
        ('{"headers": {"h": "v"}}', "line 2 has headers that are no list of"),
        ('{"timestamp": "noon"}', "line 2 has a timestamp that is neither"),
        ('{"timestamp": 9223372036854775808}', "line 2 has a timestamp that is neither"),
        ('{"value": {"n": NaN}}', "line 2 is not JSON: there is no NaN in JSON"),
        ('{"value": [1e400]}', "line 2 is not JSON: the number 1e400 would become inf"),
        ('{"value": 1, "value": 2}', "line 2 is not JSON: an object has the name 'value' twice"),
    ],
)
def test_json_line_that_is_no_record_is_named(line, text):
    """The line, the field and the rule."""
    with pytest.raises(CommandError, match=re.escape(text)):
        json_records("{}", line)
