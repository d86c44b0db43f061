"""The assignment of the 0.7 design, for any partitions and threads."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.legacy.assignment import assign, decide, sort_partitions
from ottla.registry.znodes import ConsumerRegistration

counts = st.integers(0, 60)
names = st.lists(st.text("abc019-", min_size=1, max_size=5), unique=True, max_size=12)


@given(counts, names)
def test_every_partition_has_one_owner_and_shares_differ_by_one(count, threads):
    """Nothing is left over where somebody reads, and nobody has two more than another."""
    owners = assign(range(count), sorted(threads))
    sizes = [list(owners.values()).count(thread) for thread in sorted(threads)]

    assert len(owners) == (count if threads else 0)
    assert sizes == sorted(sizes, reverse=True)
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(counts, names)
def test_each_thread_has_a_run_of_partitions(count, threads):
    """What a thread owns stands together in the order of the partitions."""
    owners = list(assign(range(count), sorted(threads)).values())

    assert owners == sorted(owners)


@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3), st.dictionaries(st.integers(0, 20), st.just((0,)))
    ),
    st.dictionaries(
        st.text("xyz", min_size=1, max_size=3),
        st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 4), min_size=1),
    ),
    st.randoms(),
)
def test_all_members_come_to_the_same_result(replicas, subscriptions, random):
    """The order in which they learn of topics and of each other does not matter."""
    registrations = {name: ConsumerRegistration(topics) for name, topics in subscriptions.items()}
    shuffled = list(registrations.items())
    random.shuffle(shuffled)
    topics = list(replicas.items())
    random.shuffle(topics)

    owners = decide(registrations, replicas, list(replicas))

    assert owners == decide(dict(shuffled), dict(topics), list(dict(topics)))
    read = {topic for topics in subscriptions.values() for topic in topics}
    assert len(owners) == sum(len(replicas[topic]) for topic in read & replicas.keys())


@given(st.dictionaries(st.integers(0, 50), st.tuples(st.integers(0, 5))))
def test_sorting_loses_no_partition(replicas):
    """Brokers come one after the other, and the partitions of each in their order."""
    order = sort_partitions(replicas)

    assert order == sorted(replicas, key=lambda number: (replicas[number][0], number))
