"""Which partitions there are, and which offsets bounds mean."""

from __future__ import annotations

import pytest

from ottla.spark.lookup import OffsetLookup
from ottla.spark.offsets import ByOffset, ByTimestamp, Earliest, GlobalTimestamp, Latest
from ottla.spark.options import OptionError, SourceOptions, whole_name
from ottla.structs import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
C0 = TopicPartition("__c", 0)


@pytest.fixture
def lookup(admin):
    """Looks with the given options in a cluster of the topics a, b, __c and an internal one."""
    admin.log("a", (2, 10), (0, 5))
    admin.log("b", (0, 0))
    admin.log("__c", (0, 3))
    admin.log("__consumer_offsets", (0, 9))

    def make(**options):
        options = {"kafka.bootstrap.servers": "x:1", **options}
        return OffsetLookup(SourceOptions.for_batch(options))

    return make


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "b, a"}, [A0, A1, B0]),
        ({"subscribePattern": "a|b"}, [A0, A1, B0]),
        ({"subscribePattern": ".*"}, [C0, A0, A1, B0]),
        ({"subscribePattern": "aa*"}, [A0, A1]),
        ({"subscribePattern": "c"}, [C0]),
        ({"subscribePattern": "^c"}, []),
        ({"subscribePattern": "c$"}, [C0]),
        ({"subscribePattern": "x"}, []),
        ({"subscribePattern": whole_name("c|.")}, [A0, A1, B0]),
        ({"subscribePattern": whole_name("(?i)__C")}, [C0]),
        ({"subscribe": "__consumer_offsets"}, [TopicPartition("__consumer_offsets", 0)]),
        ({"assign": '{"a":[1],"b":[0]}'}, [A1, B0]),
    ],
)
def test_partitions_are_those_of_the_options(lookup, options, expected):
    """Lists, assignments, and patterns in names as in Spark's source, Kafka's own left out."""
    assert lookup(**options).partitions(must_exist=True) == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "a,c,d"}, "subscribe=a,c,d: there is no topic c, d"),
        ({"assign": '{"c":[0]}'}, "there is no topic c"),
        ({"assign": '{"a":[1,2]}'}, "there is no partition a-2"),
    ],
)
def test_what_does_not_exist_is_a_mistake_or_left_out(lookup, options, said):
    """At the start of a query it is a mistake; later it may have been deleted."""
    with pytest.raises(OptionError, match=said):
        lookup(**options).partitions(must_exist=True)

    assert set(lookup(**options).partitions(must_exist=False)) <= {A0, A1}


@pytest.mark.parametrize(
    ("bound", "expected"),
    [
        (Earliest(), {A0: 2, A1: 0}),
        (Latest(), {A0: 10, A1: 5}),
        (ByOffset("startingOffsets", {A0: -2, A1: -1}), {A0: 2, A1: 5}),
        (ByOffset("startingOffsets", {A0: 4, A1: 3}), {A0: 4, A1: 3}),
        (GlobalTimestamp(35, "error"), {A0: 4, A1: 4}),
        (GlobalTimestamp(60, "latest"), {A0: 6, A1: 5}),
        (ByTimestamp("startingOffsetsByTimestamp", {A0: 0, A1: 1}, "error"), {A0: 2, A1: 1}),
    ],
)
def test_bounds_become_offsets(lookup, bound, expected):
    """Every kind of bound has an offset for each partition."""
    assert lookup(subscribe="a").offsets(bound, [A0, A1]) == expected


def test_too_late_a_timestamp_is_an_error_that_names_the_partition(lookup):
    """The strategy `error` names a partition without such a record."""
    with pytest.raises(OptionError, match="timestamp 60: a-1 has no record of that time or later"):
        lookup(subscribe="a").offsets(GlobalTimestamp(60, "error"), [A0, A1])


def test_offsets_must_name_exactly_what_is_read(lookup):
    """Missing and unknown partitions are named."""
    with pytest.raises(OptionError, match="missing: a-1; not read: b-0"):
        lookup(subscribe="a").offsets(ByOffset("startingOffsets", {A0: 1, B0: 1}), [A0, A1])


def test_nothing_is_asked_for_no_partitions(lookup):
    """A pattern may match nothing yet."""
    assert lookup(subscribePattern="x").offsets(Latest(), []) == {}
