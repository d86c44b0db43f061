"""One AddPartitionsToTxn adds all of its topics in one step, so that it may name only so many."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.server.handlers.added_topics import MOST_ADDED_TOPICS, check_topics


def request(count):
    topics = [AddPartitionsToTxnTopic(name=f"t{n}", partitions=[0]) for n in range(count)]
    return AddPartitionsToTxnRequest(v3_and_below_topics=topics)


@pytest.mark.parametrize("count", [0, 1, MOST_ADDED_TOPICS])
def test_as_many_topics_as_a_step_has_time_for_are_taken(count):
    """Whatever partitions they have."""
    check_topics(request(count))


@pytest.mark.parametrize("more", [1, 10_000])
def test_more_topics_are_refused_with_both_numbers(more):
    """The client has to name them in several requests."""
    count = MOST_ADDED_TOPICS + more
    with pytest.raises(KafkaError, match=f"{count} topics, of at most {MOST_ADDED_TOPICS}") as hit:
        check_topics(request(count))
    assert hit.value.error is ErrorCode.INVALID_REQUEST
