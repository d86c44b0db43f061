"""Offsets: their JSON, the ranges of tasks, and the share of each partition in a limited batch."""

from __future__ import annotations

import json

import pytest

from ottla.spark.offsets import (
    OffsetsError,
    Reach,
    from_json_object,
    limited,
    parse_assignment,
    parse_offsets,
    parse_reach,
    to_json_object,
)
from ottla.structs import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
A10 = TopicPartition("a", 10)


def test_json_is_that_of_the_kafka_source():
    """Topics with their partitions as text, in the order of their numbers."""
    offsets = {B0: 5, A10: 7, A1: 2**40, A0: 0}

    written = to_json_object(offsets)

    assert list(written) == ["a", "b"]
    assert list(written["a"].items()) == [("0", 0), ("1", 2**40), ("10", 7)]
    assert from_json_object(written) == offsets
    assert parse_offsets('{"a":{"1":-1},"b":{"0":9}}') == {A1: -1, B0: 9}
    assert parse_assignment('{"b":[0],"a":[1,0,1]}') == [A0, A1, B0]


def test_epochs_stand_beside_the_offsets():
    """Under a name that no topic can have; offsets alone are the form of Spark's Kafka source."""
    text = '{"a":{"0":5,"1":7},"leader epochs":{"a":{"0":3}}}'
    reach = Reach({A0: 5, A1: 7}, {A0: 3}, {})

    assert parse_reach(text) == Reach.from_json_object(json.loads(text)) == reach
    assert json.dumps(reach.to_json_object(), separators=(",", ":")) == text
    assert Reach({A0: 5}, {}, {}).to_json_object() == {"a": {"0": 5}}
    assert parse_reach('{"a":{"0":-2}}') == Reach({A0: -2}, {}, {})


@pytest.mark.parametrize("epochs", ["7", '{"a":7}', '{"a":{"0":-1}}', '{"a":{"x":1}}'])
def test_epochs_of_another_form_are_refused(epochs):
    """Epochs are checked as strictly as offsets."""
    with pytest.raises(OffsetsError, match="JSON like"):
        parse_reach(f'{{"a":{{"0":5}},"leader epochs":{epochs}}}')


def test_ids_of_topics_stand_beside_the_offsets():
    """What is no text is refused, as an id."""
    text = '{"a":{"0":5},"topic ids":{"a":"x"}}'
    reach = Reach({A0: 5}, {}, {"a": "x"})

    assert parse_reach(text) == Reach.from_json_object(json.loads(text)) == reach
    assert reach.to_json_object() == json.loads(text)
    for wrong in ('{"a":{"0":5},"topic ids":{"a":1}}', '{"a":{"0":5},"topic ids":[]}'):
        with pytest.raises(OffsetsError):
            parse_reach(wrong)


@pytest.mark.parametrize("limit", [1, 3, 10, 99, 100, 101, 1000])
def test_limited_batches_reach_the_end(limit):
    """Batch after batch takes no more than the limit, or one per partition, and all get on."""
    start, end = {A0: 0, A1: 40}, {A0: 7, A1: 41, B0: 92}
    batches = 0
    while start != end:
        stop = limited(start, end, limit)
        taken = {each: stop[each] - start.get(each, 0) for each in end}
        assert sum(taken.values()) <= max(limit, len(end))
        assert all(taken[each] > 0 for each in end if end[each] > start.get(each, 0))
        start = stop
        batches += 1

    assert batches <= 100 // limit + 92


def test_limit_is_shared_by_what_partitions_hold():
    """A partition with nine times as much gets nine times as much."""
    assert limited({A0: 0, A1: 0}, {A0: 900, A1: 100}, 100) == {A0: 90, A1: 10}


def test_partition_that_went_back_stays_as_it_is():
    """A partition that was made anew is not mistaken for one with something to read."""
    assert limited({A0: 50, A1: 0}, {A0: 5, A1: 100}, 10) == {A0: 5, A1: 10}
