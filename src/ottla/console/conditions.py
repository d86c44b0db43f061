"""Conditions on records, in the language of SQL: `value.status = 'error' and timestamp > '1h ago'`.

    condition := any 'or' any ...         any := one 'and' one ...
    one       := 'not' one | '(' condition ')' | operand test
    test      := ('=' | '!=' | '<>' | '<' | '<=' | '>' | '>=') operand | ['not'] 'like' text
               | 'contains' text | ['not'] 'in' '(' literals ')' | 'between' literal 'and' literal
               | 'is' ['not'] 'null'
    operand   := name | literal
    name      := 'key' | 'value' | 'partition' | 'offset' | 'timestamp' | 'size' | 'headers.' name
               | ('key' | 'value') ('.' field | '[' number ']') ...

Numbers of any size are compared exactly; a field that is not there is null, and a test of
null is false but for `is null`. Words without an operator are looked for in key, value and headers.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from ottla.console.json_values import ESCAPE, LastParsed, NumberNeedle, at_path, finite, number_of
from ottla.console.like_pattern import like, steps_of
from ottla.console.moments import moment_ms
from ottla.console.refusals import Refused
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from ottla.console.record_source import FoundRecord

Test = Callable[["FoundRecord"], bool]
Read = Callable[["FoundRecord"], Any]
Number = int | Decimal

LONGEST: Final = 2_000
MOST_STEPS: Final = 60
"""The steps of all `like` together, for each letter of a text."""
LONGEST_NUMBER: Final = 100
LARGEST_EXPONENT: Final = 400
"""The exponent of a number in a condition; numbers of records are only compared with it."""
DEEPEST: Final = 50
TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)(?![\w.])"
    r"|(?P<sign><=|>=|<>|!=|[=<>(),])|(?P<name>[A-Za-z_][\w-]*(?:\.[\w-]+|\.\"[^\"]+\"|\[\d+\])*))"
)
WORDS: Final = frozenset(
    {"and", "or", "not", "in", "like", "contains", "between", "is", "null", "true", "false"}
)
COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
LOOKS_LIKE_CONDITION: Final = re.compile(
    r"[=<>]|\b(?:is\s+(?:not\s+)?null|in\s*\(|like\s+'|contains\s+'|between\s)", re.IGNORECASE
)
QUOTED: Final = re.compile(r'"[^"]*"|\S+')
SIMPLE: Final = re.compile(r"[A-Za-z][A-Za-z0-9 _.-]*")
"""Texts that are no numbers, and whose letters JSON escapes only as `\\u0041`."""
PLAIN: Final = ("partition", "offset", "timestamp", "size")


class Conjunct(NamedTuple):
    """One test of a plain name against a literal, which all records that are wanted pass."""

    name: str
    sign: str
    value: Any


class Condition(NamedTuple):
    """A condition that was read: its test, and the parts of it that narrow the search."""

    test: Test
    conjuncts: list[Conjunct]
    needles: list[tuple[bytes, ...]]
    """A record that passes has at least one needle of each among its bytes."""
    is_words: bool
    words: str
    """The condition in a sentence of its own."""
    numbers: Sequence[NumberNeedle] = ()
    """All of them may be in the bytes of a record that passes."""

    @property
    def narrows(self) -> bool:
        """Whether `may_have` is ever false."""
        return bool(self.needles or self.numbers)

    def may_have(self, payload: bytes | memoryview) -> bool:
        """Whether a record that passes may be among these bytes of many records."""
        data = bytes(payload)
        return all(any(each in data for each in needle) for needle in self.needles) and all(
            each.may_be_in(data) for each in self.numbers
        )


class Token(NamedTuple):
    """A piece of a condition, and the column where it begins."""

    kind: str
    text: str
    column: int


def condition_of(text: str, now_ms: int) -> Condition:
    """The condition that a person has typed; Refused, with the column, for one that is none."""
    if len(text) > LONGEST:
        raise Refused(f"a condition may have {LONGEST:,} letters")
    if not LOOKS_LIKE_CONDITION.search(re.sub(r'"[^"]*"', "", text)):
        words = [each.strip('"') for each in QUOTED.findall(text) if each.strip('"')]
        needles: list[tuple[bytes, ...]] = [
            (word.encode(), json.dumps(word)[1:-1].encode()) for word in words
        ]
        understood = " and ".join(f"“{word}”" for word in words)
        return Condition(contains_all(needles), [], needles, True, understood)
    parser = Parser(tokens_of(text), now_ms)
    test = parser.condition()
    parser.end()
    if parser.has_or:
        return Condition(test, [], [], False, text)
    return Condition(test, parser.conjuncts, parser.needles, False, text, parser.numbers)


def contains_all(needles: list[tuple[bytes, ...]]) -> Test:
    """A test for words that must all be in the key, the value or the headers, as bytes.

    In JSON a word may be written with escapes, and is found so as well.
    """

    def has(record: FoundRecord, plain: bytes, escaped: bytes) -> bool:
        value, key = record.value, record.key
        if value is not None and (plain in value or escaped in value):
            return True
        if key is not None and plain in key:
            return True
        return any(
            plain in name.encode() or (data is not None and plain in data)
            for name, data in record.headers
        )

    return lambda record: all(has(record, *each) for each in needles)


def tokens_of(text: str) -> list[Token]:
    """The pieces of a condition."""
    found, position = [], 0
    while text[position:].strip():
        match = TOKEN.match(text, position)
        if match is None:
            column = position + len(text[position:]) - len(text[position:].lstrip()) + 1
            raise Refused(f"column {column}: “{text[column - 1 :][:20]}” is no part of a condition")
        kind = match.lastgroup or ""
        piece, column = match[kind], match.start(kind) + 1
        if kind == "name" and piece.lower() in WORDS:
            kind, piece = "word", piece.lower()
        found.append(Token(kind, piece, column))
        position = match.end()
    return found


class Parser:
    """Reads the tokens of one condition from left to right."""

    def __init__(self, tokens: list[Token], now_ms: int) -> None:
        self.conjuncts: list[Conjunct] = []
        self.needles: list[tuple[bytes, ...]] = []
        self.numbers: list[NumberNeedle] = []
        self.has_or = False
        self._tokens = tokens
        self._now_ms = now_ms
        self._at = 0
        self._depth = 0
        self._negations = 0
        self._steps = 0
        self._parsed = {"key": LastParsed(), "value": LastParsed()}

    def condition(self) -> Test:
        """Tests with `or` between them."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._wrong(f"a condition nests no deeper than {DEEPEST}")
        tests = [self._all_of()]
        while self._take("word", "or"):
            self.has_or = True
            tests.append(self._all_of())
        self._depth -= 1
        return tests[0] if len(tests) == 1 else lambda record: any(t(record) for t in tests)

    def end(self) -> None:
        """Refused where something follows."""
        if self._at < len(self._tokens):
            raise self._wrong("“and” or “or” is missing")

    def _all_of(self) -> Test:
        tests = [self._one()]
        while self._take("word", "and"):
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else lambda record: all(t(record) for t in tests)

    def _one(self) -> Test:
        if self._take("word", "not"):
            self._negations += 1
            test = self._one()
            self._negations -= 1
            return lambda record: not test(record)
        if self._take("sign", "("):
            test = self.condition()
            self._expect("sign", ")")
            return test
        return self._test(*self._operand())

    def _test(self, name: str, read: Read) -> Test:
        if sign := self._sign():
            return self._comparison(name, read, sign)
        if self._take("word", "is"):
            is_negative = self._take("word", "not") is not None
            self._expect("word", "null")
            return lambda record: (read(record) is None) != is_negative
        is_negative = self._take("word", "not") is not None
        if self._take("word", "like"):
            test = self._like(read)
        elif self._take("word", "contains"):
            part = self._literal()
            test = lambda record: part in as_text(read(record))  # noqa: E731 - one of several
        elif self._take("word", "in"):
            test = self._in(name, read)
        elif self._take("word", "between"):
            self._negations += is_negative
            test = self._between(name, read)
            self._negations -= is_negative
        else:
            raise self._wrong("a comparison is missing, as = or like")
        return (lambda record: not test(record)) if is_negative else test

    def _comparison(self, name: str, read: Read, sign: str) -> Test:
        other, read_other = self._operand(name)
        literal = None if other else read_other(None)  # type: ignore[arg-type]
        if not other and not self._negations:
            if name in (*PLAIN, "key"):
                self.conjuncts.append(Conjunct(name, sign, literal))
            if sign == "=":
                self._note_needle(name, literal)
        compare = COMPARE[sign]
        may_pass = self._number_needle(name, *bounds(sign, literal))

        def test(record: FoundRecord) -> bool:
            if not may_pass(record):
                return False
            left, right = read(record), read_other(record)
            if left is None or right is None:
                return False
            left, right = alike(left, right)
            try:
                return compare(left, right)
            except (TypeError, RecursionError):
                return False

        return test

    def _note_needle(self, name: str, value: object) -> None:
        """A text stands in the bytes of a record as it is, or in JSON with an escape somewhere."""
        if isinstance(value, str) and SIMPLE.fullmatch(value) and name not in PLAIN:
            self.needles.append((value.encode(), ESCAPE))

    def _number_needle(self, name: str, low: Number | None, high: Number | None) -> Test:
        """A quick test before the exact one, for a field of JSON and numbers between two bounds."""
        head, *path = parts_of(name)
        is_field = head in ("key", "value") and path and SIMPLE.fullmatch(path[-1])
        if not is_field or (low is None and high is None):
            return lambda record: True
        needle = NumberNeedle.of(path[-1], low, high)
        if not self._negations:
            self.numbers.append(needle)
        return lambda record: needle.may_be_in(getattr(record, head) or b"")

    def _like(self, read: Read) -> Test:
        pattern = self._literal()
        self._steps += steps_of(pattern)
        if self._steps > MOST_STEPS:
            raise Refused(
                f"like: pieces with _ between two % have at most {MOST_STEPS} letters together"
            )
        matches = like(pattern)
        return lambda record: matches(as_text(read(record)))

    def _in(self, name: str, read: Read) -> Test:
        self._expect("sign", "(")
        values = [self._value(name)]
        while self._take("sign", ","):
            values.append(self._value(name))
        self._expect("sign", ")")

        def test(record: FoundRecord) -> bool:
            value = read(record)
            if value is None:
                return False
            return any(left == right for left, right in (alike(value, each) for each in values))

        return test

    def _between(self, name: str, read: Read) -> Test:
        low = self._value(name)
        self._expect("word", "and")
        high = self._value(name)

        is_of_numbers = is_number(low) and is_number(high)
        may_pass = self._number_needle(name, *((low, high) if is_of_numbers else (None, None)))

        def test(record: FoundRecord) -> bool:
            value = read(record) if may_pass(record) else None
            if value is None:
                return False
            try:
                left, least = alike(value, low)
                right, most = alike(value, high)
                return bool(least <= left and right <= most)
            except TypeError:
                return False

        return test

    def _operand(self, beside: str = "") -> tuple[str, Read]:
        """A name with its reader, or a literal without a name."""
        token = self._peek()
        if token is not None and token.kind == "name":
            self._at += 1
            return token.text, reader_of(token, self._parsed)
        value = self._value(beside)
        return "", lambda record: value

    def _value(self, beside: str) -> Any:
        token = self._peek()
        if token is None or token.kind not in ("text", "number", "word"):
            raise self._wrong("a value is missing: 'text' in quotes, or a number")
        self._at += 1
        if token.kind == "number":
            return self._number(token)
        if token.kind == "text":
            text = token.text[1:-1].replace("''", "'")
            return self._moment(text, token) if beside == "timestamp" else text
        if token.text in ("true", "false"):
            return token.text == "true"
        raise Refused(f"column {token.column}: “{token.text}” is no value")

    def _number(self, token: Token) -> int | Decimal:
        found = number_of(token.text) if len(token.text) <= LONGEST_NUMBER else None
        if found is None or abs(Decimal(found).adjusted()) > LARGEST_EXPONENT:
            raise Refused(
                f"column {token.column}: a number has at most {LONGEST_NUMBER} letters, "
                f"and an exponent from -{LARGEST_EXPONENT} to {LARGEST_EXPONENT}"
            )
        return found

    def _moment(self, text: str, token: Token) -> int:
        found = moment_ms(text, self._now_ms)
        if found is None:
            raise Refused(
                f"column {token.column}: a time is '1h ago', '2026-11-22 13:00' or a number"
            )
        return found

    def _literal(self) -> str:
        token = self._expect("text")
        return token.text[1:-1].replace("''", "'")

    def _sign(self) -> str:
        token = self._peek()
        if token is None or token.text not in COMPARE or token.kind != "sign":
            return ""
        self._at += 1
        return token.text

    def _peek(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self, kind: str, text: str) -> Token | None:
        token = self._peek()
        if token is None or token.kind != kind or token.text != text:
            return None
        self._at += 1
        return token

    def _expect(self, kind: str, text: str = "") -> Token:
        token = self._peek()
        if token is None or token.kind != kind or (text and token.text != text):
            raise self._wrong(f"“{text}” is missing" if text else "a 'text' in quotes is missing")
        self._at += 1
        return token

    def _wrong(self, message: str) -> Refused:
        token = self._peek()
        return Refused(f"column {token.column}: {message}" if token else f"at the end: {message}")


def is_number(value: object) -> bool:
    """Whether a literal is a number; true and false are none."""
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def bounds(sign: str, value: Any) -> tuple[Number | None, Number | None]:
    """The range of the numbers that a comparison with a literal lets pass; none for a text."""
    if not is_number(value) or sign not in ("=", "<", "<=", ">", ">="):
        return None, None
    return (None if "<" in sign else value), (None if ">" in sign else value)


def parts_of(name: str) -> list[str]:
    """The parts of a name: `value.items[0]."a b"` has `value`, `items`, `0` and `a b`."""
    return [each.strip('"') for each in re.findall(r'"[^"]+"|[\w-]+', name)] or [""]


def reader_of(token: Token, parsed_of: Mapping[str, LastParsed]) -> Read:
    """A function that reads the named part of a record."""
    head, *path = parts_of(token.text)
    if head == "headers" and path:
        wanted = token.text.partition(".")[2].strip('"')
        return lambda record: next(
            (_text(data) for name, data in record.headers if name == wanted), None
        )
    if head in ("key", "value"):
        if path:
            last = parsed_of[head]
            return lambda record: at_path(last.value_of(getattr(record, head)), path)
        return lambda record: _text(getattr(record, head))
    if path or head not in PLAIN:
        raise Refused(
            f"column {token.column}: “{token.text}” is no name; there are key, value, value.field, "
            "headers.name, partition, offset, timestamp and size"
        )
    if head == "timestamp":
        return lambda record: record.timestamp_ms
    if head == "size":
        return lambda record: len(record.key or b"") + len(record.value or b"")
    return operator.attrgetter(head)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Two values as they are compared: a text beside a number is one where it can be.

    NaN and infinity are texts, as they cannot be compared with numbers.
    """
    if type(left) is type(right):
        return left, right
    for one, other in ((left, right), (right, left)):
        if (
            isinstance(one, str)
            and isinstance(other, int | Decimal)
            and not isinstance(other, bool)
        ):
            number = finite(one)
            if number is None:
                return left, right
            return (number, right) if one is left else (left, number)
    return left, right


def as_text(value: Any) -> str:
    """A value as the text in which `like` and `contains` look."""
    if value is None:
        return ""
    try:
        return value if isinstance(value, str) else str(value)
    except RecursionError:  # JSON is read deeper than Python writes it
        return ""
