"""Names that a topic may have."""

from __future__ import annotations

import pytest

from ottla.controller.topic_names import refuse_collision, refuse_internal
from ottla.errors import KafkaError


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


@pytest.mark.parametrize(("name", "other"), [("a.b", "a_b"), ("a_b", "a.b")])
def test_names_with_one_of_the_two_characters_collide(name, other):
    """Whichever came first."""
    with pytest.raises(KafkaError, match="differs from the topic"):
        refuse_collision(name, [other])
