"""Names that a topic may have."""

from __future__ import annotations

import pytest

from ottla.controller.topic_assignment import refuse_collision, refuse_internal, validate_topic_name
from ottla.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets"])
def test_good_names_pass(name):
    """Letters, digits, dot, underscore and dash, up to 249."""
    validate_topic_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a/b", "../../etc/passwd", "a b", "a\0", "ä", "a\n"]
)
def test_bad_names_are_refused(name):
    """Nothing that could leave the data directory, or its neighbour's."""
    with pytest.raises(KafkaError, match="cannot be a topic's name") as caught:
        validate_topic_name(name)

    assert caught.value.error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(caught.value.message) < 200


def test_internal_topics_are_the_brokers_own():
    """Clients read them and do no more."""
    refuse_internal("__consumer_offset", "deleted")
    with pytest.raises(KafkaError, match="cannot be deleted by clients"):
        refuse_internal("__consumer_offsets", "deleted")


def test_names_that_metrics_cannot_tell_apart_collide():
    """Dot and underscore are the same there."""
    refuse_collision("a.b", ["a.b", "a.c", "ab"])
    refuse_collision("ab", ["a.b"])
    with pytest.raises(KafkaError, match=r"'a\.b_c'"):
        refuse_collision("a_b.c", ["x", "a.b_c"])
