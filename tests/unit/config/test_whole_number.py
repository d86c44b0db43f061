"""Whole numbers as people write them."""

from __future__ import annotations

import pytest

from ottla.config.whole_number import LARGEST, number_of

NO_NUMBERS = (
    *("", " ", "-", "+", "x", "1_0", "1 ", " 1", "1.0", "1e3", "0x1", "--1", "1\n", "\ufeff1"),
    *("\u00b2", "\u0663", "\uff11", "\u2460", "1\u0660"),
    *(
        "0" * 5000,
        str(LARGEST + 1),
        str(-LARGEST - 2),
        "9" * 19,
        "9" * 20,
        "9" * 5000,
        "-" + "9" * 5000,
    ),
)
"""Texts that `int` takes, or `str.isdigit`, or for which `int` raises another error."""


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_text_that_is_no_number_is_none(text):
    """No error of Python's own comes out of it."""
    assert number_of(text) is None


@pytest.mark.parametrize("number", [0, 1, -1, 10**9, LARGEST, -LARGEST - 1])
def test_number_is_the_text_that_it_is_written_as(number):
    """With zeros before it, or a sign, as well."""
    assert number_of(str(number)) == number
    assert number_of(f"{number:+}") == number
    assert number_of(f"{number:030}") == number


def test_number_is_within_the_limits():
    """Both belong to it."""
    found = [number_of(text, 1, 3) for text in ("0", "1", "3", "4", "-2")]

    assert found == [None, 1, 3, None, None]
