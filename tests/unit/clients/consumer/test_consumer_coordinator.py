"""`ottla.Consumer` against a real broker: as a member of a group."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from itertools import islice

import pytest
from consumers import (
    LIMIT_SECONDS,
    PARTITIONS,
    Journal,
    consumer_of,
    fill,
    partitions_of,
    poll_until,
    read,
)

from ottla import (
    Admin,
    Consumer,
    KafkaError,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from ottla.errors import ErrorCode


@pytest.fixture
def topic(broker, unique) -> str:
    """A topic with three partitions of a hundred records, `partition number` each."""
    return fill(broker, unique("ottla-consumer"))


@pytest.fixture
def group(unique) -> str:
    return unique("ottla-group")


def test_group_of_two_shares_the_partitions(broker, topic, group):
    """Each record reaches one of the members, and each member has something to do."""
    with (
        consumer_of(broker, group_id=group, topics=[topic]) as first,
        consumer_of(broker, group_id=group, topics=[topic]) as second,
    ):
        poll_until([first, second], lambda: first.assignment() and second.assignment())
        both = first.assignment() | second.assignment()

        assert both == set(partitions_of(topic))
        assert not first.assignment() & second.assignment()


def test_group_goes_on_where_it_has_committed(broker, topic, group):
    """A new member begins behind the last commit, and sees nothing twice."""
    with consumer_of(broker, group_id=group, topics=[topic], max_poll_records=50) as consumer:
        seen = read(consumer, 120)
        consumer.commit()
    with consumer_of(broker, group_id=group, topics=[topic]) as consumer:
        seen += read(consumer, 300 - len(seen))

    assert len({(record.partition, record.offset) for record in seen}) == 300


def test_iteration_commits_only_what_was_taken(broker, topic, group):
    """Records that wait in the iterator's hands do not count as read."""
    with consumer_of(broker, group_id=group, topics=[topic]) as consumer:
        taken = list(islice(consumer, 5))
        consumer.commit()
        committed = consumer.committed(partitions_of(topic))

    assert sum(offset.offset for offset in committed.values()) == len(taken)


def test_automatic_commit_happens_on_close(broker, topic, group):
    """enable.auto.commit leaves the positions behind."""
    settings = {"group_id": group, "topics": [topic], "enable_auto_commit": True}
    with consumer_of(broker, **settings) as consumer:
        read(consumer, 300)
    with Admin(broker.bootstrap_servers) as admin:
        offsets = admin.list_group_offsets(group)

    assert {p: o.offset for p, o in offsets.items()} == dict.fromkeys(partitions_of(topic), 100)


def test_automatic_commit_happens_in_poll(broker, topic, group):
    """A poll after the interval commits the records that the polls before it returned."""
    settings = {"group_id": group, "topics": [topic], "enable_auto_commit": True}
    with (
        consumer_of(broker, auto_commit_interval_ms=50, **settings) as consumer,
        Admin(broker.bootstrap_servers) as admin,
    ):
        read(consumer, 300)
        poll_until(
            [consumer], lambda: len(admin.list_group_offsets(group)) == PARTITIONS, "commits"
        )


def test_commits_name_their_offsets(broker, topic, group):
    """Explicit offsets, with metadata, synchronous and not."""
    done = threading.Event()
    first, second = partitions_of(topic, 0, 1)
    with consumer_of(broker, group_id=group) as consumer:
        consumer.assign([first, second])
        consumer.commit({first: OffsetAndMetadata(5, "five")})
        consumer.commit_async({second: 7}, lambda offsets, error: error or done.set())
        assert done.wait(LIMIT_SECONDS)
        committed = consumer.committed(partitions_of(topic))

    assert committed[first] == OffsetAndMetadata(5, "five")
    assert committed[second].offset == 7
    assert len(committed) == 2


def test_listener_is_told_of_each_change(broker, topic, group):
    """Eager: everything is revoked before the second member gets its share."""
    journal = Journal()
    with consumer_of(broker, group_id=group) as first:
        first.subscribe([topic], listener=journal)
        poll_until([first], first.assignment)
        with consumer_of(broker, group_id=group, topics=[topic]) as second:
            poll_until([first, second], second.assignment)
            poll_until([first, second], first.assignment)
        poll_until([first], lambda: journal.events[-1] == ("assigned", 3))

    share = journal.events[2][1]
    assert share in (1, 2)
    assert journal.events[:3] == [("assigned", 3), ("revoked", 3), ("assigned", share)]
    assert journal.events[3:] == [("revoked", share), ("assigned", 3), ("revoked", 3)]


def test_cooperative_members_keep_what_stays(broker, topic, group):
    """Only what moves is revoked; nobody stops reading the rest (KIP-429)."""
    journal = Journal()
    settings = {"group_id": group, "partition_assignment_strategy": "cooperative-sticky"}
    with consumer_of(broker, **settings) as first:
        first.subscribe([topic], listener=journal)
        poll_until([first], first.assignment)
        with consumer_of(broker, topics=[topic], **settings) as second:
            poll_until([first, second], second.assignment)
            assert len(first.assignment()) == 2

    assert journal.events[:2] == [("assigned", 3), ("revoked", 1)]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky"])
def test_assignors_divide_fairly(broker, topic, group, strategy):
    """Three partitions, two members: two and one, under each assignor."""
    settings = {"group_id": group, "partition_assignment_strategy": strategy, "topics": [topic]}
    with consumer_of(broker, **settings) as first, consumer_of(broker, **settings) as second:
        poll_until([first, second], lambda: first.assignment() and second.assignment())
        assert sorted([len(first.assignment()), len(second.assignment())]) == [1, 2]


def test_listener_may_commit_when_partitions_go(broker, topic, group):
    """commit() works inside on_partitions_revoked, so the next owner sees nothing twice."""

    class Committer(RebalanceListener):
        """Commits at the last moment."""

        def on_partitions_revoked(self, partitions):
            first.commit()

    first = consumer_of(broker, group_id=group)
    first.subscribe([topic], listener=Committer())
    seen = read(first, 300)
    with consumer_of(broker, group_id=group, topics=[topic]) as second:
        poll_until([first, second], second.assignment)
        first.close()
        poll_until([second], lambda: len(second.assignment()) == 3)
        seen += second.poll(300)

    assert len(seen) == 300


def test_static_member_comes_back_without_a_rebalance(broker, topic, group):
    """A restart within the session keeps the partitions, and the other member notices nothing."""
    journal = Journal()
    settings = {"group_id": group, "topics": [topic]}
    with consumer_of(broker, group_id=group, group_instance_id="two") as second:
        first = consumer_of(broker, group_instance_id="one", **settings)
        second.subscribe([topic], listener=journal)
        poll_until([first, second], lambda: first.assignment() and second.assignment())
        poll_until(
            [first, second],
            lambda: len(first.assignment() | second.assignment()) == 3 and journal.events,
        )
        share, told = first.assignment(), len(journal.events)
        first.close()
        with consumer_of(broker, group_instance_id="one", **settings) as again:
            poll_until([again, second], again.assignment)
            assert again.assignment() == share
        assert len(journal.events) == told


@pytest.mark.parametrize("grows", ["while it is away", "after it is back"])
def test_partitions_reach_a_group_whose_static_leader_was_restarted(broker, topic, group, grows):
    """Its group keeps the assignment, and no other member looks at the topics."""
    settings = {"group_id": group, "topics": [topic], "metadata_max_age_ms": 100}
    with Admin(broker.bootstrap_servers) as admin:
        leader = consumer_of(broker, group_instance_id="one", **settings)
        poll_until([leader], leader.assignment)
        with consumer_of(broker, group_instance_id="two", **settings) as other:
            both = [leader, other]
            poll_until(both, lambda: leader.assignment() and other.assignment())
            leader.close()
            if grows == "while it is away":
                admin.create_partitions({topic: 5})
            with consumer_of(broker, group_instance_id="one", **settings) as again:
                both = [again, other]
                poll_until(both, again.assignment)
                if grows == "after it is back":
                    admin.create_partitions({topic: 5})
                poll_until(both, lambda: len(again.assignment() | other.assignment()) == 5)


def test_pattern_finds_topics_that_come_later(broker, unique, group):
    """A subscription by pattern takes in new topics with the next metadata."""
    stem = unique("pattern")
    with (
        Admin(broker.bootstrap_servers) as admin,
        consumer_of(broker, group_id=group, metadata_max_age_ms=100) as consumer,
    ):
        admin.create_topics([NewTopic(f"{stem}-a", 1, 1)])
        consumer.subscribe(pattern=f"{stem}-.*")
        poll_until([consumer], consumer.assignment)
        admin.create_topics([NewTopic(f"{stem}-b", 1, 1)])
        poll_until([consumer], lambda: len(consumer.assignment()) == 2)
        assert consumer.subscription() == {f"{stem}-a", f"{stem}-b"}


def test_new_partitions_reach_the_group(broker, topic, group):
    """The leader of a group notices that a topic has grown."""
    with (
        Admin(broker.bootstrap_servers) as admin,
        consumer_of(broker, group_id=group, topics=[topic], metadata_max_age_ms=100) as consumer,
    ):
        poll_until([consumer], lambda: len(consumer.assignment()) == 3)
        admin.create_partitions({topic: 5})
        poll_until([consumer], lambda: len(consumer.assignment()) == 5)


def test_slow_application_loses_its_partitions(broker, topic, group):
    """A member leaves without a poll for max.poll.interval.ms, and joins again when it polls."""
    settings = {"group_id": group, "topics": [topic]}
    slow = consumer_of(broker, max_poll_interval_ms=1000, heartbeat_interval_ms=100, **settings)
    with slow, consumer_of(broker, **settings) as quick:
        poll_until([slow], lambda: len(slow.assignment()) == 3)
        poll_until([quick], lambda: len(quick.assignment()) == 3)
        with pytest.raises(KafkaError, match="given the partitions to others"):
            slow.commit({TopicPartition(topic, 0): 1})
        poll_until([slow, quick], lambda: 0 < len(slow.assignment()) < 3)


def test_subscribing_needs_a_group(broker, topic):
    """A consumer without group.id can only assign() partitions."""
    with consumer_of(broker) as consumer, pytest.raises(KafkaError, match=r"group\.id"):
        consumer.subscribe([topic])


def test_unsubscribed_member_leaves_its_group(broker, topic, group):
    """The others get its partitions at once."""
    settings = {"group_id": group, "topics": [topic]}
    with consumer_of(broker, **settings) as first, consumer_of(broker, **settings) as second:
        poll_until([first, second], lambda: first.assignment() and second.assignment())
        first.unsubscribe()
        poll_until([second], lambda: len(second.assignment()) == 3)
        assert first.assignment() == set()


def test_duplicate_instance_id_fences_the_first(broker, topic, group):
    """Two consumers with one group.instance.id: the older one is told, and does not return."""
    settings = {"group_id": group, "group_instance_id": "same", "topics": [topic]}
    first = consumer_of(broker, heartbeat_interval_ms=50, **settings)
    poll_until([first], first.assignment)
    with consumer_of(broker, **settings) as second:
        poll_until([second], second.assignment)
        with pytest.raises(KafkaError) as caught:
            poll_until([first], lambda: False)
        first.close()
    assert caught.value.error is ErrorCode.FENCED_INSTANCE_ID


def test_partitions_that_appear_while_the_group_rebalances_are_read(ottla_fresh_broker):
    """The leader has divided without a topic whose leader was not known; it divides again."""
    broker = ottla_fresh_broker
    broker.create_topic("t")
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("t", b"1").result()
    hidden = broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE")
    slow = broker.faults.delay("SyncGroup", 0.3)
    with consumer_of(broker, group_id="g", topics=["t"], retry_backoff_ms=20) as consumer:
        records = read(consumer, 1)

    assert (hidden.hits, slow.hits) == (1, 1)
    assert [record.value for record in records] == [b"1"]


HEARTBEATS_OFTEN = pytest.mark.ottla_settings(
    group_consumer_heartbeat_interval_ms=50, group_consumer_min_heartbeat_interval_ms=50
)
PROTOCOLS = [
    {"partition_assignment_strategy": "range"},
    {"partition_assignment_strategy": "cooperative-sticky"},
    {"group_protocol": "consumer"},
]


@HEARTBEATS_OFTEN
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=["eager", "cooperative", "consumer"])
def test_rebalance_hands_no_record_to_two_members(ottla_fresh_broker, protocol):
    """Who commits after each poll shares its records with nobody, whoever joins meanwhile."""
    fill(ottla_fresh_broker, "orders")
    handled: list[tuple[int, int]] = []
    with ExitStack() as stack:
        members: list[Consumer] = []
        while len(handled) < PARTITIONS * 100:
            if len(members) <= min(2, len(handled) // 40):
                settings = {"group_id": "workers", "topics": ["orders"], "max_poll_records": 10}
                member = consumer_of(ottla_fresh_broker, **settings, **protocol)
                members.append(stack.enter_context(member))
            for member in members:
                records = member.poll(timeout_ms=50)
                handled += [(record.partition, record.offset) for record in records]
                if records:
                    member.commit()

    assert len(set(handled)) == len(handled) == PARTITIONS * 100


@HEARTBEATS_OFTEN
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=["eager", "cooperative", "consumer"])
def test_rebalance_does_not_commit_what_is_being_handled(ottla_fresh_broker, protocol):
    """Automatic commits: the records of a poll are committed by the next one, not before."""
    fill(ottla_fresh_broker, "orders")
    settings = {
        "group_id": "workers",
        "topics": ["orders"],
        "max_poll_records": 10,
        "enable_auto_commit": True,
        **protocol,
    }
    with (
        consumer_of(ottla_fresh_broker, **settings) as first,
        consumer_of(ottla_fresh_broker, **settings) as second,
    ):
        read(first, 1)
        checks = 0
        while not second.assignment():
            in_hand = first.poll(timeout_ms=50)
            second.poll(timeout_ms=50)  # the rebalance goes on meanwhile
            committed = ottla_fresh_broker.committed("workers")
            for record in in_hand:
                place = TopicPartition(record.topic, record.partition)
                assert committed.get(place, 0) <= record.offset
                checks += 1

    assert checks, "no record was in hand while the group rebalanced"


def test_metadata_that_comes_as_a_rebalance_ends_is_seen(ottla_fresh_broker):
    """A leader that divided before it knew the partitions divides again, whenever they come.

    Forty groups, as the moment between the end of a rebalance and the next poll is short.
    """
    broker = ottla_fresh_broker
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("orders", b"1").result()
    for number in range(40):
        broker.faults.fail("Metadata", "LEADER_NOT_AVAILABLE")
        settings = {"group_id": f"group-{number}", "topics": ["orders"], "retry_backoff_ms": 1}
        with consumer_of(broker, retry_backoff_max_ms=5, **settings) as consumer:
            assert len(read(consumer, 1)) == 1
