"""Who gets which partition."""

from __future__ import annotations

import pytest

from ottla.clients.consumer.assignors import (
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    assignors_of,
    decode_ownership,
    encode_ownership,
)
from ottla.errors import ConfigError
from ottla.structs import TopicPartition


def partitions(topic: str, *numbers: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers]


def members(*ids: str, topics=("t",)) -> dict[str, MemberSubscription]:
    return {member_id: MemberSubscription(topics) for member_id in ids}


def numbers(assignment) -> dict[str, list[int]]:
    return {member: [p.partition for p in share] for member, share in assignment.items()}


def everything(assignment) -> list[TopicPartition]:
    return sorted(partition for share in assignment.values() for partition in share)


def test_range_gives_contiguous_ranges():
    """Nine partitions and three members: the worked example."""
    assert numbers(RangeAssignor().assign({"t": 9}, members("c1", "c2", "c3"))) == {
        "c1": [0, 1, 2],
        "c2": [3, 4, 5],
        "c3": [6, 7, 8],
    }


def test_range_gives_the_remainder_to_the_first():
    """Four partitions, three members: 2, 1, 1; a fifth member would get nothing."""
    assert numbers(RangeAssignor().assign({"t": 4}, members("c2", "c1", "c3"))) == {
        "c1": [0, 1],
        "c2": [2],
        "c3": [3],
    }
    shares = RangeAssignor().assign({"t": 2}, members("c1", "c2", "c3"))
    assert numbers(shares)["c3"] == []


def test_range_looks_at_each_topic_by_itself():
    """The remainder of every topic goes to the same member, and only to those who want it."""
    wanted = members("c1", "c2", topics=("a", "b"))
    wanted["c3"] = MemberSubscription(["b"])
    shares = RangeAssignor().assign({"a": 3, "b": 3}, wanted)

    assert shares["c1"] == [*partitions("a", 0, 1), *partitions("b", 0)]
    assert shares["c3"] == partitions("b", 2)


def test_static_members_keep_their_place_in_the_order():
    """The order goes by instance id, so that a new member id after a restart moves nothing."""
    wanted = {
        "z": MemberSubscription(["t"], instance_id="one"),
        "a": MemberSubscription(["t"], instance_id="two"),
    }

    assert numbers(RangeAssignor().assign({"t": 2}, wanted)) == {"z": [0], "a": [1]}
    wanted["b"] = MemberSubscription(["t"])
    assert numbers(RangeAssignor().assign({"t": 3}, wanted)) == {"z": [0], "a": [1], "b": [2]}


def test_round_robin_deals_out():
    """Nine partitions and three members: the worked example."""
    assert numbers(RoundRobinAssignor().assign({"t": 9}, members("c1", "c2", "c3"))) == {
        "c1": [0, 3, 6],
        "c2": [1, 4, 7],
        "c3": [2, 5, 8],
    }


def test_round_robin_passes_over_members_that_do_not_want_the_topic():
    """A partition goes to the next member subscribed to its topic."""
    wanted = {"c1": MemberSubscription(["a"]), "c2": MemberSubscription(["a", "b"])}
    shares = RoundRobinAssignor().assign({"a": 2, "b": 2}, wanted)

    assert shares["c2"] == [*partitions("a", 1), *partitions("b", 0, 1)]


def test_sticky_moves_only_what_is_orphaned():
    """The third of three members leaves: the worked example."""
    wanted = {
        "c1": MemberSubscription(["t"], partitions("t", 0, 1, 2), 1),
        "c2": MemberSubscription(["t"], partitions("t", 3, 4, 5), 1),
    }

    assert numbers(StickyAssignor().assign({"t": 9}, wanted)) == {
        "c1": [0, 1, 2, 6, 7],
        "c2": [3, 4, 5, 8],
    }


def test_sticky_gives_a_new_member_its_share():
    """Old members give up what is above their quota, and nothing else moves."""
    wanted = {
        "c1": MemberSubscription(["t"], partitions("t", 0, 1, 2), 1),
        "c2": MemberSubscription(["t"], partitions("t", 3, 4, 5), 1),
        "c3": MemberSubscription(["t"]),
    }

    assert numbers(StickyAssignor().assign({"t": 6}, wanted)) == {
        "c1": [0, 1],
        "c2": [3, 4],
        "c3": [2, 5],
    }


def test_sticky_gives_away_in_order_what_had_no_owner_and_what_is_surplus():
    """New members get neighbours, wherever their partitions come from."""
    wanted = {
        "c1": MemberSubscription(["t"], partitions("t", 0, 1, 2), 1),
        "c2": MemberSubscription(["t"]),
        "c3": MemberSubscription(["t"]),
    }

    assert numbers(StickyAssignor().assign({"t": 4}, wanted)) == {
        "c1": [0, 1],
        "c2": [2],
        "c3": [3],
    }


def test_sticky_believes_the_newer_of_two_owners():
    """A member that missed a rebalance still claims what is not its own any more."""
    wanted = {
        "old": MemberSubscription(["t"], partitions("t", 0, 1), 1),
        "new": MemberSubscription(["t"], partitions("t", 1), 2),
    }

    assert numbers(StickyAssignor().assign({"t": 2}, wanted)) == {"old": [0], "new": [1]}


def test_sticky_evens_out_where_members_want_different_topics():
    """No member has two partitions more than another that could take one of them."""
    wanted = {
        "c1": MemberSubscription(["a", "b"], partitions("a", 0, 1, 2, 3), 1),
        "c2": MemberSubscription(["a"]),
        "c3": MemberSubscription(["b"]),
    }
    shares = StickyAssignor().assign({"a": 4, "b": 2}, wanted)

    assert everything(shares) == [
        *partitions("a", 0, 1, 2, 3),
        *partitions("b", 0, 1),
    ]
    assert len(shares["c1"]) == len(shares["c2"]) == len(shares["c3"]) == 2


def test_sticky_ownership_survives_its_encoding():
    """User data of version 1, and of version 0 without the generation."""
    owned = [*partitions("a", 0, 2), *partitions("b", 1)]
    data = encode_ownership(owned, 7)

    assert decode_ownership(data) == (owned, 7)
    assert decode_ownership(data[:-4]) == (owned, -1)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x7f\xff\xff\xff", b"\0\0\0\x01\0\x02\xff"])
def test_sticky_ownership_that_cannot_be_read_counts_as_none(data):
    """One member's bad user data must not stop the group."""
    assert decode_ownership(data) == ((), -1)


def test_cooperative_sticky_leaves_out_what_must_be_revoked_first():
    """A partition goes to its new owner only when the old one has let it go."""
    first = {
        "c1": MemberSubscription(["t"], partitions("t", 0, 1), 1),
        "c2": MemberSubscription(["t"]),
    }
    assert numbers(CooperativeStickyAssignor().assign({"t": 2}, first)) == {"c1": [0], "c2": []}

    second = {
        "c1": MemberSubscription(["t"], partitions("t", 0), 2),
        "c2": MemberSubscription(["t"], (), 2),
    }
    assert numbers(CooperativeStickyAssignor().assign({"t": 2}, second)) == {"c1": [0], "c2": [1]}


@pytest.mark.parametrize(
    ("generation", "told", "found"),
    [(-1, b"\0\0\0\7", 7), (3, b"\0\0\0\7", 3), (-1, b"\0\0\7", -1), (-1, None, -1)],
)
def test_cooperative_generation_is_that_of_the_subscription_before_the_user_data(
    generation, told, found
):
    """Members before Kafka 3.2 have it in their user data only."""
    owned = partitions("t", 0)
    member = MemberSubscription(["t"], owned, generation, user_data=told)

    assert CooperativeStickyAssignor().ownership(member) == (owned, found)


@pytest.mark.parametrize(
    "assignor", [RangeAssignor(), RoundRobinAssignor(), StickyAssignor()], ids=lambda a: a.name
)
def test_assignors_give_every_partition_once(assignor):
    """Whatever the counts, nothing is left over and nothing is given twice."""
    for count in range(1, 8):
        for size in range(1, 5):
            shares = assignor.assign({"t": count}, members(*(f"c{i}" for i in range(size))))
            assert everything(shares) == partitions("t", *range(count))


def test_topic_that_does_not_exist_is_passed_over():
    """A subscription may name a topic that is created later."""
    assert RangeAssignor().assign({}, members("c1")) == {"c1": []}
    assert RoundRobinAssignor().assign({}, members("c1")) == {"c1": []}
    assert StickyAssignor().assign({}, members("c1")) == {"c1": []}


def test_assignors_are_named_as_kafka_does():
    """An assignor is named as on the wire, or by the Java class."""
    java = "org.apache.kafka.clients.consumer.RoundRobinAssignor"
    names = [a.name for a in assignors_of(["range", java, "cooperative-sticky", StickyAssignor])]

    assert names == ["range", "roundrobin", "cooperative-sticky", "sticky"]
    with pytest.raises(ConfigError, match=r"partition\.assignment\.strategy=best: must be one of"):
        assignors_of(["best"])
