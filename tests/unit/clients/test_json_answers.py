"""The parts of answers have the kinds that an interface gives them."""

from __future__ import annotations

import pytest

from ottla.clients.connect_rest import offsets_of
from ottla.clients.json_answers import OddAnswerError, part, text_of, texts_of


def test_part_that_is_not_there_is_empty():
    """Null is another kind; for a text it is nothing."""
    assert part({}, "tasks", list) == []
    assert text_of({"trace": None}, "trace") == text_of({}, "trace") == ""
    assert text_of({"state": 7}, "state") == "7"
    assert texts_of({"topics": ["a"]}, "topics") == ["a"]


@pytest.mark.parametrize(
    ("read", "fault"),
    [
        (lambda: part({"tasks": None}, "tasks", list), "tasks is null, not a list"),
        (lambda: part({"id": 1.5}, "id", int), "id is a value of another kind, not a number"),
        (lambda: text_of({"state": {}}, "state"), "state is an object, not a text"),
        (lambda: texts_of({"topics": [1]}, "topics"), "topics is a number, not a text"),
    ],
)
def test_part_of_another_kind_is_named(read, fault):
    """With its kind, and that which it should have."""
    with pytest.raises(OddAnswerError, match=fault):
        read()


def test_offsets_are_as_deep_as_a_page_can_show():
    """They are any JSON."""
    deep: object = 1
    for _ in range(500):
        deep = [deep]
    assert offsets_of({}) == []
    assert offsets_of({"offsets": [{"offset": {"a": 1}}]}) == [
        {"partition": None, "offset": {"a": 1}}
    ]
    with pytest.raises(OddAnswerError, match="deeper than 32"):
        offsets_of({"offsets": [{"offset": deep}]})
