"""The rebalance of the 0.7 design among simulated consumers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from connector_world import GROUP, ConnectorWorld, Member

from ottla.clients.legacy.consumer_connector import ConsumerRebalanceFailedError
from ottla.registry import paths
from ottla.registry.tree import Create
from ottla.registry.znodes import BLACK_LIST, WHITE_LIST
from ottla.structs import TopicPartition

SEEDS = range(40)
PAGES = {"pages": 1}


@pytest.fixture
def make_world() -> Iterator[Callable[..., ConnectorWorld]]:
    """Makes worlds that are taken apart in the end."""
    made: list[ConnectorWorld] = []

    def make(*arguments: object, **keywords: object) -> ConnectorWorld:
        made.append(ConnectorWorld(*arguments, **keywords))
        return made[-1]

    yield make
    for cluster in made:
        cluster.world.close()


def counts(*members: Member) -> list[int]:
    return [len(member.reading) for member in members]


def test_partitions_are_shared_and_taken_over(make_world):
    """Each that comes gets its share; those of one that dies go to the others."""
    cluster = make_world(1, {"pages": 4})
    first = cluster.join("a", PAGES)
    cluster.settle()
    assert counts(first) == [4]
    second, third = cluster.join("b", PAGES), cluster.join("c", PAGES)
    cluster.world.run_until(lambda: second.has_joined and third.has_joined, 60_000)
    cluster.settle()
    assert counts(first, second, third) == [2, 1, 1]

    cluster.kill(first)
    cluster.world.run_until(lambda: "a" not in str(cluster.expected()), 60_000)
    cluster.settle()

    assert counts(second, third) == [2, 2]


def test_a_partition_that_stays_is_not_let_go(make_world):
    """A consumer that comes stops only what it is to get itself."""
    cluster = make_world(2, {"pages": 4})
    first = cluster.join("a", PAGES)
    cluster.settle()

    second = cluster.join("b", PAGES)
    cluster.world.run_until(lambda: second.has_joined, 60_000)
    cluster.settle()

    assert sorted(first.released) == sorted(second.reading)


def test_one_that_leaves_hands_over_at_once(make_world):
    """Nobody waits for the end of its session."""
    cluster = make_world(3, {"pages": 2})
    first, second = cluster.join("a", PAGES), cluster.join("b", PAGES)
    cluster.world.run_until(lambda: first.has_joined and second.has_joined, 60_000)
    cluster.settle()

    cluster.leave(first)
    cluster.world.run_until(lambda: first.has_left, 1_000)
    cluster.settle(limit_ms=1_000)

    assert counts(second) == [2]


def test_new_partitions_and_new_topics_find_a_reader(make_world):
    """The topic grows, and one that was subscribed to before it was there is made."""
    cluster = make_world(4, {"pages": 2})
    member = cluster.join("a", {"pages": 1, "later": 1})
    cluster.settle()

    cluster.grow_topic("pages", 5)
    cluster.make_topic("later", 1)
    cluster.settle()

    assert counts(member) == [6]


@pytest.mark.parametrize(
    ("pattern", "regex", "topics"),
    [(WHITE_LIST, "web.*", {"web-a", "web-new"}), (BLACK_LIST, "web.*", {"mail"})],
)
def test_filters_follow_the_topics(make_world, pattern, regex, topics):
    """Topics that are made later and pass the filter are read, Kafka's own never."""
    cluster = make_world(5, {"web-a": 1, "mail": 1, "__consumer_offsets": 1}, pattern=pattern)
    member = cluster.join("a", {regex: 2})
    cluster.settle()

    cluster.make_topic("web-new", 2)
    cluster.settle()
    assert {partition.topic for partition in member.reading} == topics

    cluster.delete_topic("web-a")
    cluster.settle()
    assert {partition.topic for partition in member.reading} == topics - {"web-a"}


def test_nothing_is_taken_while_there_is_no_broker(make_world):
    """A consumer may come before the brokers."""
    cluster = make_world(6, {"pages": 2})
    cluster.zookeeper.tree.find(paths.BROKER_IDS).children.clear()
    member = cluster.join("a", PAGES)
    assert cluster.world.run_until(lambda: member.has_joined, 10_000)
    assert not member.reading

    cluster.add_broker(7)
    cluster.settle()

    assert counts(member) == [2]


def test_whoever_cannot_take_its_partitions_is_told(make_world):
    """An owner that does not let go is waited for, but not for ever."""
    cluster = make_world(7, {"pages": 1})
    cluster.write(Create(paths.partition_owners(GROUP, "pages"), b""))
    cluster.write(Create(paths.partition_owner(GROUP, "pages", 0), b"somebody-0"))
    member = cluster.join("a", PAGES)

    assert cluster.world.run_until(lambda: member.failure is not None, 60_000)

    assert isinstance(member.failure, ConsumerRebalanceFailedError)
    assert "after 4 retries" in str(member.failure)


def test_a_name_that_is_taken_is_waited_for(make_world):
    """A consumer that comes back under its name waits for the end of its earlier session."""
    cluster = make_world(8, {"pages": 1})
    first = cluster.join("a", PAGES)
    cluster.settle()
    cluster.kill(first)

    second = cluster.join("a", PAGES)
    assert cluster.world.run_until(lambda: second.has_joined, 60_000)

    assert set(second.reading) == {TopicPartition("pages", 0)}


def test_an_expired_session_begins_again(make_world):
    """The partitions are dropped at once, and taken again in a new session."""
    cluster = make_world(9, {"pages": 3})
    member = cluster.join("a", PAGES)
    cluster.settle()

    cluster.zookeeper.expire(member.registry.session_id)
    assert cluster.world.run_until(lambda: not member.reading, 10_000)
    cluster.settle()

    assert counts(member) == [3]


def test_one_that_hears_nothing_stops_reading(make_world):
    """Somebody else may have the partitions by then; when it is back, it takes its share."""
    cluster = make_world(10, {"pages": 4})
    first, second = cluster.join("a", PAGES), cluster.join("b", PAGES)
    cluster.world.run_until(lambda: first.has_joined and second.has_joined, 60_000)
    cluster.settle()

    cluster.cut_off(first)
    assert cluster.world.run_until(lambda: not first.reading, 20_000)
    assert cluster.world.run_until(lambda: len(second.reading) == 4, 20_000)
    cluster.world.network.heal_all()

    assert cluster.world.run_until(lambda: counts(first, second) == [2, 2], 20_000)
    cluster.settle()


def test_silence_that_is_over_has_no_further_effect(make_world):
    """Once all partitions were released for it, later rebalances move only what they must."""
    cluster = make_world(11, {"pages": 6})
    first, second = cluster.join("a", PAGES), cluster.join("b", PAGES)
    cluster.world.run_until(lambda: first.has_joined and second.has_joined, 60_000)
    cluster.settle()
    cluster.cut_off(first)
    assert cluster.world.run_until(lambda: len(second.reading) == 6, 20_000)
    cluster.world.network.heal_all()
    assert cluster.world.run_until(lambda: counts(first, second) == [3, 3], 20_000)
    cluster.settle()
    first.released.clear()
    third = cluster.join("c", PAGES)
    cluster.world.run_until(lambda: third.has_joined, 60_000)
    cluster.settle()

    assert counts(first, second, third) == [2, 2, 2]
    assert not set(first.released) & set(first.reading)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_partition_is_ever_read_twice(make_world, seed):
    """Members come, leave and die, connections break, topics grow: one reader each."""
    cluster = make_world(seed, {"pages": 5, "mail": 2})
    cluster.watch_for_overlaps()
    chance = cluster.world.random
    sizes = {"pages": 5, "mail": 2}
    cluster.join("m0", {"pages": 2, "mail": 1})
    for number in range(1, 9):
        cluster.world.run(chance.randrange(2_000))
        event = chance.randrange(5)
        if event == 0 and len(cluster.live) > 1:
            cluster.kill(chance.choice(cluster.live))
        elif event == 1 and len(cluster.live) > 1:
            cluster.leave(chance.choice(cluster.live))
        elif event == 2:
            cluster.world.network.reset_some(2)
        elif event == 3:
            sizes["pages"] += 1
            cluster.grow_topic("pages", sizes["pages"])
        else:
            cluster.join(f"m{number}", {"pages": chance.randrange(1, 4), "mail": 1})
    if not cluster.live:
        cluster.join("last", {"pages": 1, "mail": 1})
    cluster.world.run(10_000)
    if not cluster.live:
        cluster.join("last", {"pages": 1, "mail": 1})

    cluster.settle()

    assert cluster.overlaps == []


@pytest.mark.parametrize("seed", SEEDS)
def test_every_partition_has_its_reader_after_all_faults(make_world, seed):
    """Sessions expire and members are cut off; when it is over, each partition has one reader."""
    cluster = make_world(seed, {"pages": 5})
    members = [cluster.join(f"m{number}", PAGES) for number in range(3)]
    chance = cluster.world.random
    for _ in range(5):
        cluster.world.run(chance.randrange(4_000))
        member = chance.choice(members)
        if chance.randrange(2) and member.registry.session_id in cluster.zookeeper.sessions:
            cluster.zookeeper.expire(member.registry.session_id)
        else:
            cluster.cut_off(member)
            cluster.world.run(chance.randrange(8_000))
            cluster.world.network.heal_all()
    cluster.world.run_until(lambda: len(cluster.expected()) == 5, 60_000)
    cluster.world.run_until(lambda: all(m.has_joined or m.failure for m in members), 60_000)
    cluster.world.run(20_000)

    cluster.settle()
