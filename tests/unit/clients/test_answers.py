"""The parts of an answer: those that were asked for, and none else."""

from __future__ import annotations

import pytest

from ottla.clients.answers import left_out, of_each, only
from ottla.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("answers", [{}, {"b": 2}, {"a": 1}, {"a": None, "b": 2, "c": 3}])
def test_each_subject_has_its_answer_or_an_error(answers):
    """None is an answer as well: that there is no error."""
    found = of_each(["a", "b"], answers)

    assert list(found) == ["a", "b"]
    for name, answer in found.items():
        if name in answers:
            assert answer is answers[name]
        else:
            assert isinstance(answer, KafkaError)
            assert answer.message == f"the answer leaves {name} out"


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ([], "the answer leaves group g out"),
        (None, "the answer leaves group g out"),
        ([1, 2], "has 2 entries about group g"),
    ],
)
def test_one_entry_is_not_taken_out_of_none_or_several(entries, match):
    """Which one would be meant?"""
    with pytest.raises(KafkaError, match=match) as caught:
        only(entries, "group g")

    assert caught.value.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert only([0], "group g") == 0


def test_error_of_a_part_that_is_left_out_is_final():
    """The same server would leave it out again."""
    assert not left_out().retriable
