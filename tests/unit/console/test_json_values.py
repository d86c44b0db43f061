"""The quick look for numbers in JSON: it passes over nothing that the exact test lets through."""

from __future__ import annotations

import json
import random

import pytest

from ottla.console import conditions, json_values
from ottla.console.conditions import condition_of
from ottla.console.record_source import FoundRecord

NUMBERS = (
    *("0", "-0", "1", "100", "100.0", "1e2", "99.99999999999999999999", "-5", "9007199254740993"),
    *("9007199254740992", "9007199254740992.5", "1e400", "-1e400", "1e-400", "1" + "0" * 500),
    *('"100"', '"x"', "true", "null", "NaN", "[7]", "{}", '{"n": 100}'),
)
VALUES = (
    *(f'{{"n": {each}, "m": 1}}'.encode() for each in NUMBERS),
    *(f'{{"o": {{"n"\t:{each}}}}}'.encode() for each in NUMBERS),
    *(b'{"\\u006e": 100}', b'{"n": 1, "n": 100}', b'{"s": "\\"n\\": 100"}', b'{"n": 100', b"n"),
    *(b"", b"\xff", b'"n": 100', b'[{"n": 100}]', b'{"n":100}{"n":3}', b'{"nn": 100}'),
)
CONDITIONS = (
    *("value.n > 100", "value.n >= 100", "value.n < 1", "value.n <= -5", "value.n = 100"),
    *("value.n > 9007199254740992", "value.n = 9007199254740993", "value.n < 1e-399"),
    *("value.n between 99.9 and 100", "value.o.n > 1e399", "value.n = 1 and value.m = 1"),
    *("not value.n > 100", "not (value.n between 1 and 100)", "value.n not between 1 and 100"),
    *("value.n > 100 or value.m = 1", "value.n != 100", "100 < value.n", "value[0].n = 100"),
)


def record(value: bytes | None) -> FoundRecord:
    return FoundRecord(0, 0, 0, None, value, [])


@pytest.mark.parametrize("text", CONDITIONS)
def test_quick_look_changes_no_answer(text, monkeypatch):
    """Digit for digit, for escapes, texts, nested fields and values that are no JSON."""
    quick = condition_of(text, 0)
    monkeypatch.setattr(json_values.NumberNeedle, "may_be_in", lambda needle, data: True)
    exact = {value: condition_of(text, 0).test(record(value)) for value in (*VALUES, None)}
    monkeypatch.undo()

    assert {value: quick.test(record(value)) for value in (*VALUES, None)} == exact
    passing = [value for value, passes in exact.items() if passes and value is not None]
    assert all(quick.may_have(value) for value in passing)
    chance = random.Random(7)
    for value in passing:
        batch = [value, *chance.sample(VALUES, 5)]
        chance.shuffle(batch)
        assert quick.may_have(b"\x00\x5c\x10".join(batch))


def test_records_without_the_number_are_not_read(monkeypatch):
    """Batches are passed over, and of the others only records that may pass are parsed."""
    parsed: list[bytes] = []
    monkeypatch.setattr(json_values, "parsed", lambda data: parsed.append(data) or json.loads(data))
    condition = condition_of("value.amount > 100", 0)

    assert not condition.may_have(b'{"amount": 3}{"amount": 100.0e-1}{"id": 900}')
    assert not conditions.condition_of("value.amount > 100 and value.x = 1", 0).may_have(b"{}")
    assert not condition.test(record(b'{"amount": 99.5}'))
    assert parsed == []
    assert condition.test(record(b'{"amount": 100.5}'))
    assert len(parsed) == 1
