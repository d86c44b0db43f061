"""The language of conditions: tests, exact numbers, errors by column, and plain words."""

from __future__ import annotations

import pytest

from ottla.console.conditions import Conjunct, condition_of
from ottla.console.record_source import FoundRecord
from ottla.console.refusals import Refused

NOW = 10_000_000
VALUE = (
    b'{"id": 9007199254740993, "amount": 1.10, "status": "error", "items": [{"sku": "A-1"}],'
    b' "big": 23958446825181076828, "ok": true, "none": null, "n": "12", "t": "it\'s \\u017c"}'
)
RECORD = FoundRecord(2, 57, NOW - 5_000, b"k2", VALUE, (("trace", b"ab"), ("x.y", b"1")))


@pytest.mark.parametrize(
    "text",
    [
        "key = 'k2'",
        "value.status = 'error' and value.ok = true",
        "value.id = 9007199254740993",
        "value.id > 9007199254740992",
        "value.amount = 1.1",
        "value.big = 23958446825181076828",
        "value.items[0].sku like 'A-%'",
        "value.items[0].sku like '_-1'",
        "value.status contains 'rr'",
        "value.status in ('open', 'error')",
        "not value.status in ('open', 'paid')",
        "value.status not in ('open')",
        "value.amount between 1 and 2",
        "value.none is null and value.missing is null and value.id is not null",
        "value.n > 11.5",
        "(value.id = 1 or key = 'k2') and partition = 2",
        "partition = 2 and offset >= 57 and size > 10",
        "timestamp > '10s ago' and timestamp < 'now'",
        "headers.trace = 'ab'",
        "headers.x.y = '1'",
        "value.\"status\" <> 'open'",
        "value.t contains 'it''s'",
        "VALUE.x is null or value.status = 'error'".replace("VALUE", "value"),
    ],
)
def test_conditions_that_are_true(text):
    """Each of them is false of a record without value, key and headers, but for `is null`."""
    assert condition_of(text, NOW).test(RECORD)


@pytest.mark.parametrize(
    "text",
    [
        "value.id = 9007199254740992",
        "value.amount > 1.1",
        "value.missing = 'x'",
        "value.missing <> 'x'",
        "value.status > 5",
        "value.ok = 'true'",
        "value.items > 1",
        "value.status like 'err'",
        "value.items.sku = 'A-1'",
        "value.missing between 1 and 2",
        "value.missing in (1)",
        "headers.none = 'x'",
    ],
)
def test_conditions_that_are_false(text):
    """Also where kinds differ, or a field is not there."""
    assert not condition_of(text, NOW).test(RECORD)
    assert not condition_of(text, NOW).test(FoundRecord(0, 0, 0, None, None))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("value.a = ", "at the end: a value is missing"),
        ("value.a == 1", "column 10"),
        ("colour = 'red'", "column 1: “colour” is no name"),
        ("key = 'k' offset = 1", "column 11: “and” or “or” is missing"),
        ("key = 'k", "column 7"),
        ("timestamp > 'tomorrow'", "column 13: a time is"),
        ("(key = 'a'", "“)” is missing"),
        ("value.a between 1", "“and” is missing"),
        ("key is nothing", ""),
        ("key = null", "“null” is no value"),
        ("value = 1; drop", "column 10"),
        ("partition.x = 1", "is no name"),
        ("(" * 60 + "key = 'a'", "no deeper"),
        ("key = '" + "a" * 3_000 + "'", "2,000"),
    ],
)
def test_mistakes_are_named_by_their_column(text, message):
    """A text that has no operator is none: it is words."""
    if not message:
        assert condition_of(text, NOW).is_words
        return
    with pytest.raises(Refused) as raised:
        condition_of(text, NOW)
    assert message in raised.value.message


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("error", True),
        ("error A-1", True),
        ('"status\\": \\"error"', False),
        ('"A-1"', True),
        ("ż", True),
        ("k2", True),
        ("trace", True),
        ("ab", True),
        ("error missing", False),
    ],
)
def test_words_are_looked_for_everywhere(text, is_found):
    """All of them, in value, key and headers; also where JSON has them as escapes."""
    condition = condition_of(text, NOW)

    assert condition.is_words
    assert condition.test(RECORD) is is_found


def test_parts_that_narrow_a_search_are_known():
    """Those that each record must pass: none beside `or`, nor below `not`."""
    found = condition_of("key = 'a' and timestamp > '1s ago' and value.x = 1", NOW).conjuncts
    assert found == [Conjunct("key", "=", "a"), Conjunct("timestamp", ">", NOW - 1000)]
    assert condition_of("key = 'a' or offset = 1", NOW).conjuncts == []
    assert condition_of("not key = 'a'", NOW).conjuncts == []


def test_pattern_of_many_signs_takes_no_time():
    """Its pieces are looked for one after the other."""
    record = RECORD._replace(value=b"a" * 500_000)
    pattern = "%".join("a" * 30) + "b"

    assert not condition_of(f"value like '{pattern}'", NOW).test(record)
    assert condition_of("value like '%a%'", NOW).test(record)
    assert not condition_of("value like 'b%'", NOW).test(record)


def test_number_that_is_none_is_compared_as_text():
    """NaN, and integers of thousands of digits."""
    record = RECORD._replace(value=b'{"a": NaN, "b": ' + b"9" * 6_000 + b"}")

    assert not condition_of("value.a = 1", NOW).test(record)
    assert condition_of("value.b > 1", NOW).test(record)


@pytest.mark.parametrize(
    ("text", "data", "may_pass"),
    [
        ("error", b"an error", True),
        ("error", b"nothing", False),
        ("ż", b"\\u017c", True),
        ("value.a = 'open'", b"closed", False),
        ("value.a = 'open'", b"op\\u0065n", True),
        ("value.a = 'open' or offset = 1", b"closed", True),
        ("not value.a = 'open'", b"closed", True),
        ("value.a = '12'", b"no number", True),
        ("value.a <> 'open'", b"closed", True),
    ],
)
def test_bytes_of_many_records_are_passed_over_by_literals(text, data, may_pass):
    """Where no record among them can pass; escapes of JSON are looked at."""
    condition = condition_of(text, NOW)

    assert condition.may_have(data) is may_pass
    assert condition.may_have(memoryview(data)) is may_pass


POISONS = (
    *("NaN", "nan", "sNaN", "-sNaN12", "Infinity", "-inf", "1e99999999", "1e99999999999999999999"),
    *("", "-", "true", "null", "[]", "{}", "9" * 5_000, "1e-99999999", "0x1f", "1_000", "\u0661"),
    *("[" * 900 + "]" * 900, "\ud800"),
)
"""Numbers that are none, or that are larger than any that Python computes with."""


@pytest.mark.parametrize("poison", POISONS)
def test_no_value_breaks_a_comparison(poison):
    """Whether it is a text, a number, or the whole key; NaN and infinity compare as no number."""
    data = poison.encode("utf-8", "replace")
    values = [b'{"x": "%b", "y": 1.5}' % data, b'{"x": %b, "y": 1.5}' % data]
    records = [FoundRecord(0, 0, 0, data, each) for each in values]
    for name in ("value.x", "key", "value.y"):
        for operand in ("3", "1.5", "-1e400", "'3'", "value.x", "value.y", "offset", "key"):
            for sign in ("=", "!=", "<", "<=", ">", ">="):
                test = condition_of(f"{name} {sign} {operand}", NOW).test
                assert {type(test(each)) for each in records} == {bool}
        for rest in ("in (1, 2.5, 'a')", "between 1 and 2.5", "not between 1 and 2", "like '%1%'"):
            test = condition_of(f"{name} {rest}", NOW).test
            assert {type(test(each)) for each in records} == {bool}


@pytest.mark.parametrize("poison", ["NaN", "sNaN", "-Infinity", "inf"])
@pytest.mark.parametrize("rest", ["< 5", ">= 5", "= 5", "between -9 and 9", "in (5, 1.5)"])
def test_what_is_no_number_compares_as_none(poison, rest):
    """As JSON has it, or as a text."""
    for value in (f'{{"x": "{poison}"}}', f'{{"x": {poison}}}'):
        record = FoundRecord(0, 0, 0, poison.encode(), value.encode())
        assert not condition_of(f"value.x {rest}", NOW).test(record)
        assert not condition_of(f"key {rest}", NOW).test(record)


@pytest.mark.parametrize("number", ["1e99999999", "1e99999999999999999999", "1e-401", "9" * 101])
@pytest.mark.parametrize("rest", ["> {}", "in (1, {})", "between {} and 2", "= {}"])
def test_numbers_of_a_condition_are_bounded(number, rest):
    """The column is named."""
    with pytest.raises(Refused, match=r"column .* a number has at most 100 letters"):
        condition_of(f"timestamp {rest.format(number)}", NOW)
