"""Subscriptions and positions."""

from __future__ import annotations

import re

import pytest

from ottla.clients.consumer.subscription_state import SubscriptionState
from ottla.errors import KafkaError
from ottla.structs import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def state() -> SubscriptionState:
    """One partition, assigned by hand."""
    state = SubscriptionState()
    state.assign([FIRST])
    return state


def test_partitions_that_stay_keep_their_positions(state):
    """A new assignment begins only what is new."""
    state.state(FIRST).seek(7)
    state.replace([FIRST, SECOND])

    assert state.state(FIRST).position == 7
    assert state.state(SECOND).position is None
    assert state.without_position() == [state.state(SECOND)]


def test_partition_that_comes_back_begins_anew(state):
    """What was fetched for it before does not count any more."""
    before = state.state(FIRST)
    before.seek(7)
    state.replace([])
    state.replace([FIRST])

    assert not state.is_current(before, before.generation)
    assert state.state(FIRST).position is None


def test_jump_makes_what_is_under_way_worthless(state):
    """Seek and reset each begin a new generation."""
    partition = state.state(FIRST)
    generation = partition.generation
    partition.seek(3)
    assert not state.is_current(partition, generation)
    generation = partition.generation
    partition.request_reset(-2)
    assert not state.is_current(partition, generation)
    assert state.to_be_reset() == [partition]
    assert not state.has_all_positions


def test_pattern_must_match_the_whole_name():
    """As in Java; and it is told whether the topics have changed."""
    state = SubscriptionState()
    state.subscribe_pattern(re.compile("a.*"), None)

    assert state.match_topics(["ab", "ba", "a"])
    assert state.topics == {"ab", "a"}
    assert not state.match_topics(["a", "ab"])


def test_ways_to_subscribe_do_not_mix(state):
    """The text says what to do."""
    with pytest.raises(KafkaError, match="reads partitions; unsubscribe before it reads topics"):
        state.subscribe(["t"], None)
    state.unsubscribe()
    state.subscribe(["t"], None)
    assert state.is_by_group


def test_partition_that_is_not_assigned_is_refused(state):
    """The error names it."""
    with pytest.raises(KafkaError, match="t-1 is not assigned"):
        state.state(SECOND)
