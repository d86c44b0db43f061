"""Failback: groups that have moved to a copy continue in the original, and skip nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from mirrors import mirroring, plan_of, values

from ottla import Admin, Consumer, Producer
from ottla.clients.mirror_records import Checkpoint, OffsetSync
from ottla.errors import ConfigError
from ottla.mirror.copied_offsets import CopiedTo, key_of
from ottla.mirror.failback import Failback, backwards
from ottla.runtime import SystemClock
from ottla.structs import TopicPartition
from ottla.testing import wait_until

PAGES, COPY, BACK = (TopicPartition(name, 0) for name in ("pages", "a.pages", "b.pages"))


def commit(broker, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    with Consumer(broker.bootstrap_servers, group_id=group, enable_auto_commit=False) as reader:
        reader.assign(offsets)
        reader.commit(offsets)


@pytest.fixture
def way_back(two):
    """The way back from b to a, and what it needs open."""
    plan = plan_of(two)
    with Admin(two["a"].bootstrap_servers) as a, Admin(two["b"].bootstrap_servers) as b:
        yield lambda: Failback(plan.flow("a->b"), plan.flow("b->a"), a, b, SystemClock())


def mirror_until(brokers, topic: str, count: int) -> None:
    """Run the mirror until b has so many records of a topic."""
    with mirroring(brokers, topics="pages") as mirror:
        brokers["b"].wait_for_records(topic, count)
        wait_until(lambda: mirror.statuses()[0].lag == 0, "no lag", seen=mirror.statuses)


def upstream_of(broker, group: str) -> int | None:
    """What the last checkpoint of b's group says that it has read."""
    found = [Checkpoint.of(r.key, r.value) for r in broker.records("b.checkpoints.internal")]
    mine = [each for each in found if each.group == group]
    return mine[-1].upstream if mine else None


def test_groups_come_back_and_read_what_nobody_has_read(two, way_back, produce):
    """What the copy did not get is reported, and is what a group that returns reads first."""
    produce(two["a"], "pages", range(20))
    mirror_until(two, "a.pages", 20)
    produce(two["a"], "pages", range(20, 25))  # a is lost now, and these are only there
    produce(two["b"], "pages", ["x", "y", "z"])
    commit(two["b"], "all", {COPY: 20, PAGES: 3})
    commit(two["b"], "half", {COPY: 12})
    commit(two["a"], "ahead", {PAGES: 25})
    commit(two["b"], "ahead", {COPY: 20})
    only_there = "only at b: pages-0 offsets 0-2 (3), which b->a has not copied"
    only_here = "only at a: pages-0 offsets 20-24 (5), which a->b has not copied"
    assert way_back().lines() == [only_here, only_there]
    flows = {"a_to_b_enabled": "false", "b_to_a_enabled": "true", "topics": "pages"}

    with mirroring(two, **flows):
        two["a"].wait_for_records("b.pages", 3)
        two["a"].wait_for_records("b.checkpoints.internal", 1)
        wait_until(lambda: upstream_of(two["a"], "all") == 3, "the reverse checkpoint")
    way = way_back()
    found = {(each.group, each.partition): each for each in way.returned()}

    assert way.lines() == [only_here]
    assert found["all", PAGES].offset == 20
    assert found["all", PAGES].to_read == 5
    assert 1 <= found["all", BACK].offset <= 3
    assert 1 <= found["half", PAGES].offset <= 12
    assert (found["ahead", PAGES].is_ready, found["all", PAGES].is_ready) == (True, False)
    assert two["a"].committed("all") == {}

    done = way.commit(way.returned())
    assert set(done) == {"all", "half"}
    assert two["a"].committed("all")[PAGES] == 20
    assert two["a"].committed("ahead") == {PAGES: 25}
    assert all(each.is_ready for each in way_back().returned())
    with Consumer(two["a"].bootstrap_servers, topics=["pages"], group_id="all") as reader:
        rest = []
        wait_until(
            lambda: len(rest) >= 5, "the rest", meanwhile=lambda: rest.extend(reader.poll(200))
        )
    assert [record.value.decode() for record in rest] == ["20", "21", "22", "23", "24"]
    mirror_until(two, "a.pages", 25)
    assert values(two["b"], "a.pages") == [str(number) for number in range(25)]


def test_source_that_has_lost_its_end_is_said(two, way_back, produce):
    """As after a restore of an older state: no group is moved behind the end."""
    produce(two["a"], "pages", range(20))
    mirror_until(two, "a.pages", 20)
    commit(two["b"], "g", {COPY: 20})
    with Producer(two["b"].bootstrap_servers) as producer:  # as if 30 had been copied
        key, value = key_of("a", PAGES), CopiedTo(29).value()
        producer.send("mm2-offsets.a.internal", value, key=key)

    way = way_back()

    assert way.lines() == ["lost at a: pages-0 offsets 20-29 (10), which a.pages at b has"]
    assert [(each.group, each.offset) for each in way.returned()] == [("g", 20)]


def test_nothing_is_known_of_a_topic_that_was_made_again(two, way_back, produce):
    """Offsets of the former topic do not count: the group stays where it was."""
    produce(two["a"], "pages", range(20))
    mirror_until(two, "a.pages", 20)
    commit(two["b"], "g", {COPY: 20})
    with Admin(two["a"].bootstrap_servers) as admin:
        admin.delete_topics(["pages"])
        wait_until(lambda: "pages" not in admin.list_topics(), "the topic to go")
    two["a"].create_topic("pages")
    produce(two["a"], "pages", range(50))

    (found,) = way_back().returned()

    assert (found.offset, found.to_read, found.is_ready) == (None, None, True)
    assert way_back().commit([found]) == {}
    assert way_back().lines() == ["only at a: pages-0 offsets 0-49 (50), which a->b has not copied"]


def test_group_with_members_is_left_alone(two, way_back, produce):
    """A reader that has come back to a is not moved."""
    produce(two["a"], "pages", range(20))
    mirror_until(two, "a.pages", 20)
    commit(two["b"], "g", {COPY: 20})
    with Consumer(two["a"].bootstrap_servers, topics=["pages"], group_id="g") as reader:
        wait_until(reader.assignment, "a member", meanwhile=lambda: reader.poll(50))

        assert way_back().commit(way_back().returned()) == {}


def test_equal_names_are_refused(two):
    """With the identity policy nobody can tell which record is whose."""
    policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    flow = plan_of(two, replication_policy_class=policy).flow("a->b")
    with (
        Admin(two["a"].bootstrap_servers) as a,
        pytest.raises(ConfigError, match="needs DefaultReplicationPolicy"),
    ):
        Failback(flow, None, a, a, SystemClock())


def test_translation_back_forgets_what_was_before_a_rewind():
    """A source that began again has other records at the old offsets."""
    store = backwards([OffsetSync(PAGES, *each) for each in ((100, 10), (200, 110), (0, 300))])

    assert store.translate(PAGES, 110) == -1
    assert store.translate(PAGES, 300) == 0
    assert store.translate(PAGES, 400) == 1
