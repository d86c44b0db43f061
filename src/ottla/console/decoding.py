"""Bytes of records as text for people: JSON, text, numbers, or hexadecimal digits.

Numbers are never read as floating point: integers and decimals of any size appear digit for digit
as they are in the record. Characters on which a screen acts, or that turn text round, are shown as
escapes.
"""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.letter_families import FAMILIES
from ottla.console.masks import HIDDEN, HIDDEN_QUOTE, masked
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ottla.console.masks import Mask
    from ottla.console.record_source import FoundRecord

UTF_8: Final = getincrementaldecoder("utf-8")
NULL, EMPTY, JSON, TEXT, NUMBER, HEX = "null", "empty", "json", "text", "number", "hex"
AVRO, MSGPACK, PROTOBUF = "avro", "msgpack", "protobuf"
AS_JSON: Final = (JSON, AVRO, MSGPACK, PROTOBUF)
"""Kinds of bytes whose text is JSON."""
LONGEST_WORD: Final = 300
"""Letters of a name, or of an error's words, that others have written; a topic has up to 249."""
LONGEST_DECODED: Final = 1024 * 1024
LONGEST_WHOLE: Final = 64 * 1024
SHOWN_OF_LONGER: Final = 4 * 1024
LINE_CHARACTERS: Final = 600
HEX_GROUP: Final = 4
NUMBER_SIZES: Final = (4, 8)
TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
"""A token of JSON; the last one of a text that was cut may be a string without its end."""
ACTING: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)
INDENT: Final = "  "
DEEPEST_INDENTED: Final = 64
LONGEST_INDENTED: Final = 256 * 1024
QUOTING_HEADERS: Final = frozenset(
    name for family in FAMILIES for name in (*family.message, *family.error)
)
"""Headers of dead letters with an error's words, which often quote the record: so do traces."""
TRACE: Final = "stacktrace"


Decode = Callable[[bytes], tuple[str, Any]]
BETWEEN: Final = {",": ", ", ":": ": "}


class ShownBytes(NamedTuple):
    """A key, a value or a header as text, and the kind of its bytes."""

    kind: str
    text: str
    size: int
    is_cut: bool = False

    @property
    def line(self) -> str:
        """The beginning of the text in one line."""
        text = self.text[: 4 * LINE_CHARACTERS]
        if self.kind in AS_JSON:
            tokens = (BETWEEN.get(each, each) for each in TOKEN.findall(text))
            return "".join(tokens)[:LINE_CHARACTERS]
        return text[:LINE_CHARACTERS].replace("\n", "\u21b5").replace("\t", " ")


class Decoders(NamedTuple):
    """Functions from bytes to their kind and value; ValueError for bytes that they do not know."""

    framed: Decode | None = None
    """Looks at all bytes that begin with a byte 0."""
    packed: Decode | None = None
    """Looks at bytes that are no text and no number."""
    known: Decode | None = None
    """Looks at all bytes, before anything else does."""


NO_DECODERS: Final = Decoders()


def shown_bytes(
    data: bytes | None,
    is_whole: bool = False,
    longest: int = LONGEST_WHOLE,
    decoders: Decoders = NO_DECODERS,
) -> ShownBytes:
    """The bytes as text; of more than 64 KB, or `longest`, the first 4 KB, unless `is_whole`."""
    if data is None:
        return ShownBytes(NULL, "null", 0)
    if not data:
        return ShownBytes(EMPTY, "", 0)
    is_cut = len(data) > max(longest, SHOWN_OF_LONGER) and not is_whole
    if not is_cut and (found := _decoded(data, decoders.known)):
        return found
    if not is_cut and data[0] == 0 and (found := _decoded(data, decoders.framed)):
        return found
    kind, text = kind_and_text(data[:SHOWN_OF_LONGER] if is_cut else data, is_cut)
    if kind == HEX and not is_cut and (found := _decoded(data, decoders.packed)):
        return found
    return ShownBytes(kind, text, len(data), is_cut)


def _decoded(data: bytes, decode: Decode | None) -> ShownBytes | None:
    """The value of some bytes as JSON; None where the decoder does not know them."""
    if decode is None or len(data) > LONGEST_DECODED:
        return None
    try:
        kind, value = decode(data)
        return ShownBytes(kind, harmless(written(value)), len(data))
    except (ValueError, RecursionError):
        return None


def kind_and_text(data: bytes, is_cut: bool) -> tuple[str, str]:
    """The kind of some bytes, and the text for them."""
    try:
        text = UTF_8().decode(data, final=not is_cut)  # the last letter may be cut in two
    except UnicodeDecodeError:
        return _number_or_hex(data)
    if len(data) in NUMBER_SIZES and ACTING.search(text):
        return _number_or_hex(data)
    if text.lstrip()[:1] in ("{", "[") and not is_cut and is_json(text):
        return JSON, harmless(text.replace("\r", ""))  # only between tokens can it be raw
    return TEXT, harmless(text)


def _number_or_hex(data: bytes) -> tuple[str, str]:
    if len(data) in NUMBER_SIZES:
        return NUMBER, str(int.from_bytes(data, signed=True))
    return HEX, data.hex(" ", HEX_GROUP)


def harmless(text: str) -> str:
    """The text with escapes, as `\\x1b`, for characters on which a screen acts."""
    return ACTING.sub(_escape, text)


def beginning(text: str, longest: int = LONGEST_WORD) -> str:
    """The first letters of a text that others have written, harmless; `…` if there are more."""
    return harmless(text[:longest]) + "…" * (len(text) > longest)


def _escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"


def is_json(text: str) -> bool:
    """Whether a text is JSON, nested no deeper than Python reads."""
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return False
    return True


def with_indents(shown: ShownBytes) -> ShownBytes:
    """JSON on lines of its own; every other text, and JSON that is cut, as it is."""
    if shown.kind not in AS_JSON:
        return shown
    return shown._replace(text=indented(shown.text))


def indented(text: str) -> str:
    """A JSON text with a line for each value; each token stays as it is written.

    The text itself where it is nested deeper than 64 levels, or where it would be longer than
    256 KB: the indents of deep JSON are many times as long as the JSON.
    """
    pieces: list[str] = []
    if len(text) > LONGEST_INDENTED:
        return text
    left = LONGEST_INDENTED
    for depth, piece in _pieces(TOKEN.findall(text)):
        left -= len(piece)
        if left < 0 or depth > DEEPEST_INDENTED:
            return text
        pieces.append(piece)
    return "".join(pieces)


def _pieces(tokens: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The depth behind each token, and the token with the line end and the indents beside it."""
    depth = 0
    for index, token in enumerate(tokens):
        following = tokens[index + 1] if index + 1 < len(tokens) else ""
        if token in ("{", "["):
            depth += 1
            yield depth, token if following in ("}", "]") else f"{token}\n{INDENT * depth}"
        elif token in ("}", "]"):
            depth -= 1
            is_empty = index and tokens[index - 1] in ("{", "[")
            yield depth, token if is_empty else f"\n{INDENT * depth}{token}"
        else:
            yield depth, {",": f",\n{INDENT * depth}", ":": ": "}.get(token, token)


class RawNumber(str):
    """A number of JSON as it is written."""

    __slots__ = ()


def parse_exactly(text: str | bytes) -> Any:
    """JSON whose numbers are `RawNumber`; ValueError or RecursionError for other text."""
    return json.loads(text, parse_int=RawNumber, parse_float=RawNumber, parse_constant=RawNumber)


def written(value: Any) -> str:
    """A value of `parse_exactly` as JSON."""
    if isinstance(value, RawNumber):
        return str(value)
    if isinstance(value, dict):
        inner = (f"{json.dumps(name)}: {written(each)}" for name, each in value.items())
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


class Hiding:
    """Hides the masked places of a topic's records, before anything looks at them.

    Bytes that are no object or list of JSON have no places that could be found, so all of them are
    hidden; so are errors in headers of dead letters, where a place of their key or value is masked.
    """

    def __init__(self, rules: Sequence[Mask]) -> None:
        self._keys = [each.path for each in rules if each.part == "key"]
        self._values = [each.path for each in rules if each.part == "value"]
        self._headers = {".".join(each.path) for each in rules if each.part == "headers"}
        self.hides_quotes = bool(self._keys or self._values)
        self.is_needed = bool(rules)

    def __call__(self, record: FoundRecord) -> FoundRecord:
        """The record without its masked places."""
        if not self.is_needed:
            return record
        headers = tuple((name, self._header(name, data)) for name, data in record.headers)
        key, value = _hidden(record.key, self._keys), _hidden(record.value, self._values)
        return record._replace(key=key, value=value, headers=headers)

    def _header(self, name: str, data: bytes | None) -> bytes | None:
        if self._headers & {name, ""}:
            return HIDDEN.encode()
        is_quote = self.hides_quotes and is_quoting(name.lower())
        return HIDDEN_QUOTE.encode() if is_quote else data


def is_quoting(name: str) -> bool:
    """Whether a header of this name, in small letters, has words of an error."""
    return name in QUOTING_HEADERS or name.endswith(TRACE)


def _hidden(data: bytes | None, paths: Sequence[Sequence[str]]) -> bytes | None:
    if not data or not paths:
        return data
    try:
        value = parse_exactly(data)
        for path in paths:
            value = masked(value, path)
        return written(value).encode()
    except (ValueError, RecursionError):
        return HIDDEN.encode()
