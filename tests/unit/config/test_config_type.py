"""Values of settings: read from text and from Python, written back, refused."""

from __future__ import annotations

import json

import pytest

from ottla.config.config_type import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    DOUBLE_MAX,
    INT,
    LIST,
    LONG,
    PASSWORD,
    SHORT,
    STRING,
    Password,
    type_of_annotation,
)
from ottla.errors import ConfigError


@pytest.mark.parametrize(
    ("type", "given", "expected"),
    [
        (BOOLEAN, " True ", True),
        (BOOLEAN, False, False),
        (INT, "-12", -12),
        (SHORT, 32767, 32767),
        (LONG, "9223372036854775807", 2**63 - 1),
        (DOUBLE, "0.5", 0.5),
        (DOUBLE, 1, 1.0),
        (STRING, " a b ", "a b"),
        (STRING, 1, "1"),
        (LIST, " a, b ,c", ("a", "b", "c")),
        (LIST, "", ()),
        (LIST, ["a"], ("a",)),
        (CLASS, "json.dumps", json.dumps),
        (CLASS, json.loads, json.loads),
        (PASSWORD, "secret", Password("secret")),
    ],
)
def test_value_is_read_from_text_and_from_python(type, given, expected):
    """Text as in a properties file and typed values mean the same."""
    assert type.parse("some.key", given) == expected


@pytest.mark.parametrize(
    ("type", "given"),
    [
        (BOOLEAN, "yes"),
        (BOOLEAN, 1),
        (INT, "2147483648"),
        (INT, "1.0"),
        (INT, True),
        (SHORT, 32768),
        (LONG, "-9223372036854775809"),
        (DOUBLE, "much"),
        (STRING, ["a"]),
        (LIST, 5),
        (CLASS, "no.such.module.Name"),
        (CLASS, "word"),
    ],
)
def test_bad_value_is_refused_by_name(type, given):
    """The error names the key and the value."""
    with pytest.raises(ConfigError, match=r"some\.key=") as caught:
        type.parse("some.key", given)

    assert str(given) in str(caught.value)


@pytest.mark.parametrize(
    ("type", "value", "text"),
    [
        (BOOLEAN, True, "true"),
        (INT, 7, "7"),
        (LIST, ("a", "b"), "a,b"),
        (CLASS, json.dumps, "json.dumps"),
        (PASSWORD, Password("secret"), "secret"),
        (STRING, None, None),
    ],
)
def test_value_is_written_as_in_a_file(type, value, text):
    """Formatting is the way back of parsing."""
    assert type.format(value) == text


def test_password_does_not_show_itself():
    """Neither repr nor str of a password has the secret."""
    password = Password("secret")

    assert "secret" not in f"{password} {password!r} { {password: 1} }"


@pytest.mark.parametrize(
    ("text", "hint"),
    [("1h", "; 1h is 3600000"), ("7 d", "; 7 d is 604800000"), ("2GiB", "; 2GiB is 2147483648")],
)
def test_number_with_a_unit_is_told_as_a_plain_one(text, hint):
    """Settings are in milliseconds or bytes, which nobody has in mind."""
    with pytest.raises(ConfigError) as refusal:
        LONG.parse("k", text)

    assert refusal.value.message == f"k={text}: must be a whole number of 64 bits{hint}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (DOUBLE_MAX, "1.7976931348623157E308"),
        (0.9, "0.9"),
        (1.0, "1.0"),
        (9999999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (-12345678.9, "-1.23456789E7"),
        (0.001, "0.001"),
        (0.0005, "5.0E-4"),
        (0.0, "0.0"),
    ],
)
def test_double_is_written_as_java_writes_it(value, text):
    """DescribeConfigs says the same text as Kafka."""
    assert DOUBLE.format(value) == text
    assert DOUBLE.parse("key", text) == value


@pytest.mark.parametrize(
    ("annotation", "type"),
    [
        (bool, BOOLEAN),
        (str, STRING),
        (int, INT),
        (float, DOUBLE),
        (Password, PASSWORD),
        (tuple, LIST),
        (tuple[str, ...], LIST),
        (str | None, STRING),
        (Password | None, PASSWORD),
        (tuple[int, ...] | None, LIST),
        ("bool", BOOLEAN),
        ("int | None", INT),
        ("tuple[str, ...]", LIST),
        ("config_type.Password | None", PASSWORD),
    ],
)
def test_annotation_says_the_type_of_a_setting(annotation, type):
    """As an object or, in a module that leaves annotations for later, as a text."""
    assert type_of_annotation(annotation) is type


@pytest.mark.parametrize("annotation", [dict, "Any", "Address | None", "dict[str, int]"])
def test_annotation_of_no_setting_asks_for_its_type(annotation):
    """A type that no setting has says nothing of how its text is read."""
    with pytest.raises(TypeError, match="must give its ConfigType"):
        type_of_annotation(annotation)


@pytest.mark.parametrize("text", ["1_000", "\u0663", "\u00b2", "9" * 5000, "1 0"])
@pytest.mark.parametrize("kind", [SHORT, INT, LONG])
def test_number_is_of_ascii_digits(kind, text):
    """Kafka takes no other form; Python does."""
    with pytest.raises(ConfigError, match="must be a whole number of"):
        kind.parse("k", text)


@pytest.mark.parametrize(
    "given",
    [
        "nan",
        "NaN",
        "inf",
        "-Infinity",
        "1_0",
        "\u0663",
        "1e999",
        "0x1p3",
        "",
        float("nan"),
        10**400,
    ],
)
def test_double_is_a_number_that_ends(given):
    """No rule of a setting holds for NaN, and what Java does not read is a slip."""
    with pytest.raises(ConfigError, match="must be a number"):
        DOUBLE.parse("k", given)


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1.0), (" 1.5 ", 1.5), ("1.", 1.0), (".5", 0.5), ("+1E-3", 0.001)]
)
def test_double_is_written_in_every_form_of_java(text, value):
    """With an exponent, and without the digits on one side of the point."""
    assert DOUBLE.parse("k", text) == value
