"""Regular expressions of subscriptions: which are refused, and what the others find."""

from __future__ import annotations

import pytest
from consumer_group_world import ConsumerWorld

from ottla.coordinator.group.consumer.consumer_rebalancer import compile_regex, matching_topics
from ottla.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    "text",
    ["orders", "^a.*|^b.*", "(ab)*", "(?i)x+", "[a-z]+-[0-9]{2,}", ".*a.*b.*", "(a|b)?x", "x{100}"],
)
def test_expression_that_is_soon_done_is_taken(text):
    """One unbounded repeat after the other, up to three."""
    assert compile_regex(text).pattern == text


@pytest.mark.parametrize(
    "text",
    [
        *("(", "*", "(a+)+", "(-[a-z]+)*", ".*.*.*.*", "(aa|aa){30}", "a?" * 30, "x" * 5000),
        *(r"(x)\1", "(?=a)b", "(?<!a)b", "(?>a)", "a++", "x{99999999999}", "(" * 4000),
    ],
)
def test_expression_that_could_take_for_ever_is_refused(text):
    """And one that is none, or not of RE2's kind."""
    with pytest.raises(KafkaError) as refused:
        compile_regex(text)

    assert refused.value.error is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_whole_names_are_matched():
    """As RE2's full match does."""
    world = ConsumerWorld({"a": 1, "ab": 1, "ba": 1})

    assert matching_topics("ab?", world.topics) == {"a", "ab"}
