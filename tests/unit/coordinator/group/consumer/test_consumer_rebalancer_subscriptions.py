"""Topics come and go, subscriptions change, and regular expressions are looked at again."""

from __future__ import annotations

import pytest
from consumer_group_world import SESSION_MS, ConsumerWorld, Peer

from ottla.coordinator.group.consumer.group_changes import GroupChanges
from ottla.coordinator.group.consumer.topic_matches import refresh_topics
from ottla.errors import ErrorCode
from ottla.runtime.scheduler import at_once

ALL = [("t", number) for number in range(4)]


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld({"t": 4})


def test_new_topic_and_new_partitions_are_assigned(world):
    """With the next heartbeat, in a new epoch."""
    (a,) = world.members("a", topics=("t", "later"))
    world.create("later", 1)
    world.extend("t", 5)

    world.beat(a)

    assert sorted(a.owned) == [("later", 0), *ALL, ("t", 4)]
    assert a.epoch == 2


def test_topic_that_is_gone_is_taken_away(world):
    """A topic that is gone is taken away; one made again under its name is another."""
    (a,) = world.members("a")
    world.drop("t")
    world.settle(a)
    assert not a.owned

    world.create("t", 2)
    world.settle(a)

    assert sorted(a.owned) == ALL[:2]


def test_topics_that_only_a_member_that_leaves_has_read_are_forgotten(world):
    """Those that others read are not: with theirs a newcomer would never be given any of them."""
    world.create("other", 1)
    (a,) = world.members("a")
    (b,) = world.members("b", topics=("t", "other"))
    world.settle(a, b)
    world.quit(b)
    assert list(world.consumers.topics) == ["t"]
    c = Peer("c")
    world.join(c)
    world.settle(a, c)

    assert sorted(a.owned | c.owned) == ALL
    assert c.owned
    world.quit(a)
    world.quit(c)
    assert world.consumers.topics == {}


def test_other_changes_of_the_cluster_do_not_concern_the_group(world):
    """A topic that nobody subscribes to comes, and the epoch stays."""
    (a,) = world.members("a")
    world.create("other", 1)

    world.beat(a)

    assert a.epoch == 1


def test_topics_that_were_looked_up_for_another_member_begin_no_epoch(world):
    """A request may have waited while that was done."""
    world.members("a")
    rebalancer, changes = world.coordinator.consumer_rebalancer, GroupChanges(world.consumers)
    world.create("other", 1)
    world.extend("t", 5)
    has_changed = [
        at_once(
            refresh_topics(changes, rebalancer.topics, rebalancer.matches, 0, asks_rights=False)
        )
        for _ in range(2)
    ]

    assert has_changed == [True, False]


def test_regular_expression_finds_topics_when_they_appear(world):
    """It must fit the whole name."""
    a = Peer("a")
    world.join(a, regex="t|pay.*")
    assert sorted(a.owned) == ALL
    world.create("payments", 1)
    world.create("repay", 1)

    world.settle(a)

    assert sorted(a.owned) == [("payments", 0), *ALL]
    world.drop("payments")
    world.settle(a)
    assert sorted(a.owned) == ALL


def test_empty_regular_expression_means_none(world):
    """Of a member that joins with it, and of one that had one."""
    a = Peer("a")
    world.join(a, regex="t")
    world.beat(a, subscribed_topic_regex="")

    world.settle(a)

    assert not a.owned
    assert not world.consumers.regexes


def test_names_and_expressions_add_up(world):
    """Names and expressions add up, and two members with one expression share its topics."""
    world.create("u", 2)
    a, b = Peer("a"), Peer("b")
    world.join(a, "t", regex="u")
    world.join(b, regex="u")
    world.settle(a, b)

    assert sorted([*a.owned, *b.owned]) == [*ALL, ("u", 0), ("u", 1)]
    assert b.owned == {("u", 0), ("u", 1)}


def test_bad_expression_changes_nothing(world):
    """The member stays with what it had."""
    (a,) = world.members("a")

    assert world.beat(a, subscribed_topic_regex="(") is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert world.beat(a) is ErrorCode.NONE
    assert sorted(a.owned) == ALL


def test_changed_subscription_makes_a_new_epoch(world):
    """Another client host does not."""
    world.create("u", 1)
    (a,) = world.members("a")
    world.beat(a, rebalance_timeout_ms=5)
    assert a.epoch == 1

    world.beat(a, subscribed_topic_names=["u"])
    world.settle(a)

    assert a.epoch == 2
    assert a.owned == {("u", 0)}


def test_new_topics_that_a_group_has_noticed_are_in_the_log():
    """The next coordinator begins with the epoch that members have been told."""
    world = ConsumerWorld({"t": 2})
    (peer,) = world.members("a", topics=("t", "u"))
    world.create("u", 3)
    world.coordinator.consumer_rebalancer.notice_topics(world.consumers)
    epoch = world.consumers.group_epoch
    world.reload()

    assert world.consumers.group_epoch == epoch > peer.epoch
    before = world.consumers.group_epoch
    world.coordinator.consumer_rebalancer.notice_topics(world.consumers)
    assert world.consumers.group_epoch == before


def test_later_time_limit_takes_the_place_of_an_earlier_one():
    """What a member was asked first no longer counts."""
    world = ConsumerWorld({"t": 2})
    world.members("a")
    group, rebalancer = world.consumers, world.coordinator.consumer_rebalancer
    member = group.members["a"]
    member.details = member.details._replace(rebalance_timeout_ms=10_000)
    for _ in range(2):
        rebalancer.expect(group, member, "answer")
        world.advance(6_000)
        assert "a" in group.members
    world.advance(4_000)

    assert "a" not in group.members


def test_group_of_a_coordinator_that_ends_is_dead():
    """Whoever still has it sees that."""
    world = ConsumerWorld({"t": 2})
    world.members("a")
    group = world.consumers
    world.coordinator.shutdown()

    assert group.state_name == "Dead"


def test_member_that_is_silent_after_a_reload_is_put_out():
    """The next coordinator counts its session from the beginning, and to its end."""
    world = ConsumerWorld({"t": 2})
    world.members("a")
    world.reload()
    world.advance(SESSION_MS - 1)
    assert "a" in world.consumers.members
    world.advance(1)

    assert "a" not in world.consumers.members


@pytest.mark.parametrize(("told", "timeout_ms"), [(-1, 7), (0, 0), (5, 5)])
def test_time_to_revoke_stays_where_a_heartbeat_names_none(world, told, timeout_ms):
    """Which is -1; no time at all is a time."""
    (a,) = world.members("a")
    world.beat(a, rebalance_timeout_ms=7)
    world.beat(a, rebalance_timeout_ms=told)

    assert world.consumers.members["a"].details.rebalance_timeout_ms == timeout_ms
