"""JSON of which nothing is lost."""

from __future__ import annotations

import json
import math
import random
import re
from decimal import Decimal

import pytest

from ottla.cli.exact_json import exact_json, json_line
from ottla.cli.terminal import ACTING, harmless


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"n": NaN}', "there is no NaN in JSON"),
        ("[-Infinity]", "there is no -Infinity in JSON"),
        ("[1e400]", "the number 1e400 would become inf"),
        ("[-1e400]", "the number -1e400 would become -inf"),
        ("[1e-400]", "the number 1e-400 would become 0.0"),
        ("[0.1000000000000000055]", "the number 0.1000000000000000055 would become 0.1"),
        ('{"a": 1, "b": 2, "a": 3}', "an object has the name 'a' twice"),
        ('[{"x": {"": 1, "": 2}}]', "an object has the name '' twice"),
        ("{", "Expecting"),
    ],
)
def test_what_python_would_lose_is_refused(text, why):
    """The number, the name or the word."""
    with pytest.raises(ValueError, match=why):
        exact_json(text)


@pytest.mark.parametrize(
    "text", ["1.10", "1E2", "0.0", "-0.0", "5e-324", "123456789012345678901234567890", "[]", "null"]
)
def test_what_means_the_same_afterwards_is_taken(text):
    """Zeros behind the point and the form of an exponent are no meaning."""
    assert exact_json(text) == json.loads(text)


def test_number_that_is_taken_is_the_number_that_was_written():
    """Of numbers with many digits and exponents, most of which are refused."""
    chance = random.Random(7)
    taken = 0
    for _ in range(5000):
        digits = "".join(chance.choices("0123456789", k=chance.randint(1, 20)))
        exponent = chance.choice(["", f"e{chance.randint(-330, 330)}"])
        text = f"{chance.choice(['', '-'])}{chance.randint(0, 99)}.{digits}{exponent}"
        try:
            found = exact_json(text)
        except ValueError:
            continue
        taken += 1
        assert Decimal(json.dumps(found)) == Decimal(text)

    assert 1000 < taken < 4900


@pytest.mark.parametrize("first", range(0, 0x10000, 0x1000), ids=hex)
def test_line_is_json_of_the_same_text_on_a_terminal_too(first):
    """Each character of the basic plane, alone and in a name: halves of pairs as well."""
    for number in range(first, first + 0x1000):
        value = {chr(number): [chr(number), 1]}
        shown = harmless(json_line(value))
        assert json.loads(shown) == value
        assert re.search(ACTING, shown) is None


def test_number_that_json_does_not_have_is_null():
    """As a metric may be one that has no value yet."""
    value = {"a": math.nan, "b": [math.inf, (-math.inf, 1.5)]}

    assert json_line(value, is_short=True) == '{"a":null,"b":[null,[null,1.5]]}'
