"""Tables of settings: rows become frozen, checked, documented attributes."""

from __future__ import annotations

import logging
from typing import ClassVar

import pytest

from ottla.config.config_def import ConfigTable, config_key
from ottla.config.config_type import INT, LONG, PASSWORD, STRING
from ottla.config.rule import at_least
from ottla.errors import ConfigError


class Left(ConfigTable, group=True):
    """A part of a table."""

    left_size: int = config_key(default=1, rule=at_least(0), doc="Left.")


class Right(ConfigTable, group=True):
    """Another part."""

    right_name: str | None = config_key(default=None, doc="Right.")


class Both(Left, Right):
    """Both parts and a row of its own."""

    unused: ClassVar = {"other.key": "nothing is other"}

    own_secret: str = config_key(default="x", type=PASSWORD, doc="Own.")


def test_table_has_the_rows_of_its_parts():
    """Rows are found by Kafka's name and have the attribute with underscores."""
    assert set(Both.keys) == {"left.size", "right.name", "own.secret"}
    assert Both.keys["left.size"].attribute == "left_size"


def test_annotation_says_the_type_where_the_row_does_not():
    """A row says what an annotation cannot: that a number has 64 bits, or a text is a secret."""

    class Table(ConfigTable):
        plain: int = config_key(default=1, doc="Of 32 bits.")
        large: int = config_key(default=1, type=LONG, doc="Of 64 bits.")

    assert [row.type for row in Table.keys.values()] == [INT, LONG]
    assert [row.type for row in Both.keys.values()] == [STRING, INT, PASSWORD]


def test_values_come_from_dotted_keys_and_from_keywords():
    """Keywords win over the mapping; what is not given has its default."""
    config = Both.parse({"left.size": "3", "right.name": "a"}, right_name="b")

    assert (config.left_size, config.right_name) == (3, "b")
    assert config.is_given("left.size")
    assert not config.is_given("own.secret")


def test_broken_rule_names_key_value_and_rule():
    """The sentence is enough to mend the file."""
    with pytest.raises(ConfigError, match=r"left\.size=-1: must be at least 0"):
        Both.parse({"left.size": "-1"})


def test_null_is_refused_where_a_value_is_needed():
    """Only rows whose default is no value can be set to none."""
    assert Both(right_name=None).right_name is None
    with pytest.raises(ConfigError, match=r"left\.size=None"):
        Both(left_size=None)


def test_config_is_frozen():
    """Nobody changes settings in passing, and there is no room for others."""
    config = Both()

    with pytest.raises(AttributeError):
        config.left_size = 2
    with pytest.raises(AttributeError):
        config.new_size = 2


def test_settings_of_several_clients_are_told_apart_by_table():
    """A table takes those that it has a row for."""
    assert Left.known_of({"left.size": "1", "right.name": "2"}) == {"left.size": "1"}


def test_constructor_refuses_unknown_attributes():
    """A misspelt attribute is a bug of ours, not a warning."""
    with pytest.raises(TypeError, match="left_sise"):
        Both(left_sise=2)


def test_replace_keeps_what_was_given():
    """Defaults stay defaults, given values stay given."""
    config = Both(left_size=5).replace(right_name="a")

    assert (config.left_size, config.right_name) == (5, "a")
    assert not config.is_given("own.secret")


def test_text_of_is_what_a_file_would_hold():
    """Unset values without a default have no text."""
    config = Both(left_size=5)

    assert [config.text_of(name) for name in ("left.size", "right.name")] == ["5", None]


def test_unknown_key_is_warned_of_once(caplog):
    """Two objects with the same unknown key give one warning."""
    with caplog.at_level(logging.WARNING):
        Both.parse({"strange.key": "1"})
        Both.parse({"strange.key": "2"})

    assert [record.message for record in caplog.records] == [
        "strange.key: not a setting that is known (Both)"
    ]


def test_key_of_kafka_is_called_so(caplog):
    """The warning tells a known key from a misspelt one."""
    with caplog.at_level(logging.WARNING):
        Both.parse({"other.key": "1"})

    assert "other.key: has no effect in Ottla: nothing is other (Both)" in caplog.text


def test_repr_shows_what_was_given_but_no_secret():
    """Only given values are shown, passwords never."""
    text = repr(Both(left_size=2, own_secret="hush"))

    assert "left.size=2" in text
    assert "hush" not in text
