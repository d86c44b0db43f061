"""Who reads what: the worked examples of the design, and the order of things."""

from __future__ import annotations

import pytest

from ottla.clients.legacy.assignment import (
    ConsumerThreadId,
    assign,
    decide,
    sort_partitions,
    subscribed_topics,
)
from ottla.registry.znodes import BLACK_LIST, WHITE_LIST, ConsumerRegistration
from ottla.structs import TopicPartition


def shares(partitions: int, threads: list[str]) -> list[int]:
    owners = list(assign(range(partitions), threads).values())
    return [owners.count(thread) for thread in threads]


@pytest.mark.parametrize(
    ("partitions", "consumers", "expected"),
    [
        (4, 3, [2, 1, 1]),
        (9, 3, [3, 3, 3]),
        (7, 3, [3, 2, 2]),
        (2, 3, [1, 1, 0]),
        (0, 2, [0, 0]),
        (5, 1, [5]),
    ],
)
def test_what_is_left_over_goes_to_the_first(partitions, consumers, expected):
    """The share is rounded down, and the first ones get one more."""
    assert shares(partitions, [f"c{number}" for number in range(consumers)]) == expected


def test_a_third_node_with_two_threads_stays_idle():
    """Four partitions and three nodes of two threads: the first four threads have one each."""
    threads = [f"node{node}-{thread}" for node in (1, 2, 3) for thread in (0, 1)]

    assert assign([0, 1, 2, 3], threads) == dict(zip([0, 1, 2, 3], threads[:4], strict=True))


def test_nobody_gets_nothing():
    """A topic without a reader has no owners."""
    assert assign([0, 1], []) == {}


def test_partitions_of_one_broker_stand_together():
    """They are sorted by the broker that should lead them, then by number."""
    assert sort_partitions({0: (1, 2), 1: (2, 1), 2: (1,), 3: (2,), 4: ()}) == [4, 0, 2, 1, 3]


def test_few_brokers_are_needed_by_each_consumer():
    """Two consumers of a topic on two brokers have a broker each."""
    replicas = {number: (number % 2,) for number in range(8)}
    owners = assign(sort_partitions(replicas), ["a-0", "b-0"])

    assert {replicas[p] for p, owner in owners.items() if owner == "a-0"} == {(0,)}


def test_threads_stand_in_the_order_of_their_names():
    """Names are compared as texts, as Kafka's consumers do: thread 10 comes before thread 2."""
    owners = decide(
        {"c": ConsumerRegistration({"pages": 11})}, {"pages": dict.fromkeys(range(11), (0,))}, []
    )

    assert [thread.number for thread in owners.values()] == [0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9]


def test_each_topic_is_shared_among_its_own_readers():
    """A member that does not read a topic does not count for it."""
    registrations = {
        "a": ConsumerRegistration({"pages": 1}),
        "b": ConsumerRegistration({"pages": 1, "mail": 1}),
        "c": ConsumerRegistration({"ma.*": 1}, WHITE_LIST),
    }
    replicas = {"pages": {0: (0,), 1: (0,)}, "mail": {0: (0,), 1: (0,)}}

    owners = decide(registrations, replicas, ["pages", "mail"])

    assert owners == {
        TopicPartition("pages", 0): ConsumerThreadId("a", 0),
        TopicPartition("pages", 1): ConsumerThreadId("b", 0),
        TopicPartition("mail", 0): ConsumerThreadId("b", 0),
        TopicPartition("mail", 1): ConsumerThreadId("c", 0),
    }


@pytest.mark.parametrize(
    ("pattern", "regex", "expected"),
    [
        (WHITE_LIST, "a|b", {"a": 2, "b": 2}),
        (BLACK_LIST, "a|b", {"abc": 2}),
    ],
)
def test_filters_match_whole_names(pattern, regex, expected):
    """Filters match Kafka's own topics only where that is asked for."""
    registration = ConsumerRegistration({regex: 2}, pattern)
    topics = ["a", "b", "abc", "__consumer_offsets"]

    assert subscribed_topics(registration, topics) == expected


def test_internal_topics_can_be_asked_for():
    """exclude.internal.topics=false lets filters see them."""
    registration = ConsumerRegistration({".*": 1}, WHITE_LIST)

    assert subscribed_topics(registration, ["__consumer_offsets"], exclude_internal=False) == {
        "__consumer_offsets": 1
    }
