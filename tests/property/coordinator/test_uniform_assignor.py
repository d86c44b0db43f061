"""The uniform assignor gives each partition once, whatever changes."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.group.consumer.assigned_partitions import NO_PARTITIONS, TopicIdPartition
from ottla.coordinator.group.consumer.assignors import GroupSpec, MemberSpec, assign_uniform
from ottla.runtime.scheduler import at_once

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


@given(
    st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 7)),
    st.dictionaries(st.sampled_from("uvwxyz"), st.sets(st.sampled_from([A, B, C])), max_size=6),
    st.dictionaries(st.sampled_from("uvwxyz"), st.sets(st.sampled_from([A, B, C])), max_size=6),
)
def test_each_partition_that_is_read_has_one_reader(counts, first, second):
    """Each partition has one reader after any change; a second look changes nothing."""
    before = at_once(assign_uniform(group(counts, **first)))
    spec = again(GroupSpec({}, counts), before, **second)
    targets = at_once(assign_uniform(spec))

    given_away = [partition for target in targets.values() for partition in target]
    read = set().union(*second.values())
    assert sorted(given_away) == sorted(
        TopicIdPartition(topic, n) for topic in read for n in range(counts.get(topic, 0))
    )
    assert all(p.topic_id in second[name] for name, target in targets.items() for p in target)
    assert at_once(assign_uniform(again(spec, targets, **second))) == targets
