"""Subscriptions and positions."""

from __future__ import annotations

import re
from uuid import UUID

import pytest

from ottla.clients.consumer.subscription_state import (
    RebalanceListener,
    SubscriptionState,
    TopicPartitionState,
)
from ottla.errors import KafkaError
from ottla.structs import NO_EPOCH, NO_REPLICA, NO_UUID, TopicPartition

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


@pytest.mark.parametrize("bad", ["orders\ud800", "a b", b"t", None])
def test_name_that_no_topic_may_have_is_refused(state, bad):
    """All of the call is, and the partitions of before are read on."""
    with pytest.raises(KafkaError, match="cannot be a topic's name"):
        state.assign([SECOND, TopicPartition(bad, 0)])
    assert list(state.assigned) == [FIRST]
    state.unsubscribe()
    with pytest.raises(KafkaError, match="cannot be a topic's name"):
        state.subscribe(["t", bad], None)
    assert state.topics == frozenset()


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


def shown(state: TopicPartitionState) -> dict[str, object]:
    return {name: getattr(state, name) for name in TopicPartitionState.__slots__}


def test_partition_that_was_just_assigned_has_not_been_read():
    """It has no position, and nothing is known of its log."""
    unknown = dict.fromkeys(
        [
            "position",
            "outdated_since_ms",
            "refused_in",
            "reset_to",
            "high_watermark",
            "last_stable_offset",
        ]
    )
    numbers = ["fetch_offset", "generation", "sought", "fetched", "consumed", "retry_at_ms"]
    none = dict.fromkeys(numbers, 0)
    no_epoch = dict.fromkeys(["leader_epoch", "fetched_epoch", "validated_epoch"], NO_EPOCH)

    assert shown(TopicPartitionState(FIRST)) == {
        "topic_partition": FIRST,
        "topic_id": NO_UUID,
        "given_id": NO_UUID,
        "is_paused": False,
        "read_replica": NO_REPLICA,
        **unknown,
        **none,
        **no_epoch,
    }


JUMP = {
    "topic_id": NO_UUID,
    "refused_in": None,
    "generation": 1,
    "fetched": 0,
    "consumed": 0,
    "retry_at_ms": 0,
    "read_replica": NO_REPLICA,
}


@pytest.mark.parametrize(
    ("change", "new"),
    [
        (
            lambda state: state.seek(9, 2),
            {
                **JUMP,
                "position": 9,
                "reset_to": None,
                "fetch_offset": 9,
                "leader_epoch": 2,
                "fetched_epoch": 2,
                "validated_epoch": NO_EPOCH,
                "outdated_since_ms": None,
            },
        ),
        (
            lambda state: state.rewind(9),
            {
                **{name: value for name, value in JUMP.items() if name != "topic_id"},
                "position": 9,
                "reset_to": None,
                "fetch_offset": 9,
                "leader_epoch": NO_EPOCH,
                "fetched_epoch": NO_EPOCH,
                "validated_epoch": NO_EPOCH,
                "outdated_since_ms": None,
            },
        ),
        (lambda state: state.request_reset(-1), {**JUMP, "position": None, "reset_to": -1}),
        (lambda state: state.validate(6), {"validated_epoch": 6, "outdated_since_ms": None}),
    ],
    ids=["seek", "rewind", "reset", "validation"],
)
def test_what_was_known_of_another_place_is_forgotten(change, new):
    """A jump leaves nothing of where the partition was read before; a validation is no jump."""
    state = TopicPartitionState(FIRST)
    for number, name in enumerate(TopicPartitionState.__slots__, 100):
        if name not in ("topic_partition", "topic_id", "given_id", "generation"):
            setattr(state, name, number)
    state.topic_id = state.given_id = UUID(int=1)
    before = shown(state)
    change(state)

    assert {name: each for name, each in shown(state).items() if each != before[name]} == new


def test_subscription_by_pattern_is_one_by_the_group_until_it_ends():
    """Then nothing of it is left."""
    state, listener = SubscriptionState(), RebalanceListener()
    state.subscribe_pattern(re.compile("t"), listener)
    state.match_topics(["t"])
    state.replace([FIRST])
    assert (state.is_by_group, state.listener) == (True, listener)
    with pytest.raises(KafkaError, match="reads a pattern; unsubscribe before it reads partitions"):
        state.assign([FIRST])
    state.unsubscribe()

    assert not state.is_by_group
    assert (state.topics, state.pattern, state.listener) == (frozenset(), None, None)
    assert state.assigned == {}
