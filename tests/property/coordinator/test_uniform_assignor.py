"""The uniform assignor: even, sticky, and each partition once."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.group.consumer.consumer_group_records import NO_PARTITIONS, TopicIdPartition
from ottla.coordinator.group.consumer.consumer_rebalancer import (
    GroupSpec,
    MemberSpec,
    assign_uniform,
)

A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)


def group(counts, **topics):
    """Members by the topics that they read; nobody has anything yet."""
    specs = {name: MemberSpec(frozenset(read), NO_PARTITIONS) for name, read in topics.items()}
    return GroupSpec(specs, counts)


def again(spec, targets, **topics):
    """The same group later: members that stay have what they were given."""
    members = {
        name: MemberSpec(frozenset(read), targets.get(name, NO_PARTITIONS))
        for name, read in topics.items()
    }
    return GroupSpec(members, spec.partition_counts)


def sizes(targets):
    return sorted(len(target) for target in targets.values())


def test_members_that_read_the_same_differ_by_one_at_most():
    """Seven partitions for three members."""
    targets = assign_uniform(group({A: 4, B: 3}, x=[A, B], y=[A, B], z=[A, B]))

    assert sizes(targets) == [2, 2, 3]
    assert len(frozenset().union(*targets.values())) == 7


def test_nothing_moves_without_need():
    """A newcomer gets what is too much; the others keep the rest."""
    first = group({A: 6}, x=[A], y=[A])
    before = assign_uniform(first)

    after = assign_uniform(again(first, before, x=[A], y=[A], z=[A]))

    assert sizes(after) == [2, 2, 2]
    assert after["x"] < before["x"]
    assert after["y"] < before["y"]


def test_partitions_of_a_member_that_left_are_shared():
    """The others keep all that they had."""
    first = group({A: 6}, x=[A], y=[A], z=[A])
    before = assign_uniform(first)

    after = assign_uniform(again(first, before, x=[A], y=[A]))

    assert sizes(after) == [3, 3]
    assert before["x"] < after["x"]


def test_partitions_go_only_to_their_readers():
    """A member that reads less gets the more of that."""
    targets = assign_uniform(group({A: 2, B: 4}, x=[A, B], y=[B]))

    assert sizes(targets) == [3, 3]
    assert {partition.topic_id for partition in targets["y"]} == {B}


def test_what_is_gone_is_not_kept():
    """Partitions of topics that are not there, or not read any more."""
    had = frozenset({TopicIdPartition(A, 0), TopicIdPartition(C, 0), TopicIdPartition(A, 9)})
    spec = GroupSpec({"x": MemberSpec(frozenset({A, B}), had)}, {A: 1})

    assert assign_uniform(spec) == {"x": {TopicIdPartition(A, 0)}}


def test_group_without_members_gets_nothing():
    """Nobody is there to read."""
    assert assign_uniform(GroupSpec({}, {A: 3})) == {}


@given(
    st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 7)),
    st.dictionaries(st.sampled_from("uvwxyz"), st.sets(st.sampled_from([A, B, C])), max_size=6),
    st.dictionaries(st.sampled_from("uvwxyz"), st.sets(st.sampled_from([A, B, C])), max_size=6),
)
def test_each_partition_that_is_read_has_one_reader(counts, first, second):
    """Also after any change of the group; and a second look changes nothing."""
    before = assign_uniform(group(counts, **first))
    spec = again(GroupSpec({}, counts), before, **second)
    targets = assign_uniform(spec)

    given_away = [partition for target in targets.values() for partition in target]
    read = set().union(*second.values())
    assert sorted(given_away) == sorted(
        TopicIdPartition(topic, n) for topic in read for n in range(counts.get(topic, 0))
    )
    assert all(p.topic_id in second[name] for name, target in targets.items() for p in target)
    assert assign_uniform(again(spec, targets, **second)) == targets
