"""The rule for the names of topics."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.topic_name import validate_topic_name
from ottla.structs import is_topic_name


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets"])
def test_good_names_pass(name):
    """Letters, digits, dot, underscore and dash, up to 249."""
    validate_topic_name(name)
    assert is_topic_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "x" * 250,
        "a/b",
        "../../etc/passwd",
        "a b",
        "a\0",
        "ä",
        "a\n",
        "a\ud800",
        None,
        7,
        b"a",
        ["a"] * 999,
    ],
)
def test_bad_names_are_refused(name):
    """Nothing that could leave the data directory, or its neighbour's."""
    with pytest.raises(KafkaError, match="cannot be a topic's name") as caught:
        validate_topic_name(name)

    assert caught.value.error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(caught.value.message) < 200
    assert not is_topic_name(name)


@pytest.mark.parametrize(("length", "shown"), [(64, "ä" * 64), (65, "ä" * 64 + "...")])
def test_refusal_of_a_long_name_shows_its_beginning(length, shown):
    """All of it where it is short enough for a line of the log."""
    with pytest.raises(KafkaError) as caught:
        validate_topic_name("ä" * length)

    assert f"{shown!r} cannot be" in caught.value.message
