"""`ottla.Consumer` against a real broker."""

from __future__ import annotations

import threading
import time
from itertools import islice

import pytest

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
from ottla.clients.consumer.consumer import WakeupError
from ottla.clients.serialization import SerializationError, StringDeserializer
from ottla.errors import ErrorCode

LIMIT_SECONDS = 30
PARTITIONS = 3


@pytest.fixture
def topic(broker, unique) -> str:
    """A topic with three partitions of a hundred records, `partition number` each."""
    name = unique("ottla-consumer")
    with Admin(broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS, 1)])
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(100):
            for partition in range(PARTITIONS):
                producer.send(
                    name, f"{partition} {number}", partition=partition, timestamp_ms=1000 + number
                )
    return name


@pytest.fixture
def group(unique) -> str:
    return unique("ottla-group")


def consumer_of(broker, **settings) -> Consumer:
    settings.setdefault("auto_offset_reset", "earliest")
    settings.setdefault("enable_auto_commit", False)
    settings.setdefault("heartbeat_interval_ms", 100)
    return Consumer(broker.bootstrap_servers, **settings)


def partitions_of(topic, *numbers) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in numbers or range(PARTITIONS)]


def read(consumers, count) -> list:
    """Poll the consumers in turn until so many records have come."""
    consumers = consumers if isinstance(consumers, list) else [consumers]
    deadline = time.monotonic() + LIMIT_SECONDS
    records = []
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records came"
        for consumer in consumers:
            records += consumer.poll(50)
    return records


def poll_until(consumers, condition) -> None:
    """Poll the consumers in turn until the condition holds."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition was never met"
        for consumer in consumers:
            consumer.poll(50)


def test_assigned_consumer_reads_everything_in_order(broker, topic):
    """All fields are there, and the offsets of a partition are consecutive."""
    with consumer_of(broker) as consumer:
        consumer.assign(partitions_of(topic))
        records = read(consumer, 300)

    for partition in range(PARTITIONS):
        own = [record for record in records if record.partition == partition]
        assert [record.offset for record in own] == list(range(100))
        assert [record.value for record in own] == [b"%d %d" % (partition, n) for n in range(100)]
        assert [record.timestamp_ms for record in own] == [1000 + n for n in range(100)]


def test_poll_returns_at_most_max_poll_records(broker, topic):
    """max.poll.records bounds each poll, whatever has been fetched."""
    with consumer_of(broker, max_poll_records=7) as consumer:
        consumer.assign(partitions_of(topic))
        assert len(read(consumer, 1)) <= 7
        assert len(consumer.poll(1000)) == 7


def test_iteration_gives_records_one_by_one(broker, topic):
    """`for record in consumer` goes on until the loop is left; records() can end by itself."""
    with consumer_of(broker) as consumer:
        consumer.assign(partitions_of(topic, 0))
        for record in consumer:
            if record.offset == 9:
                break
        assert consumer.position(TopicPartition(topic, 0)) == 10
        assert len(list(consumer.records(idle_timeout_ms=300))) == 90


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
    """With a short interval a poll commits what the polls before it returned."""
    settings = {"group_id": group, "topics": [topic], "enable_auto_commit": True}
    with (
        consumer_of(broker, auto_commit_interval_ms=50, **settings) as consumer,
        Admin(broker.bootstrap_servers) as admin,
    ):
        read(consumer, 300)
        poll_until([consumer], lambda: len(admin.list_group_offsets(group)) == PARTITIONS)


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


def test_seek_moves_the_position(broker, topic):
    """To an offset, to the beginning and to the end; what was fetched before is forgotten."""
    (partition,) = partitions_of(topic, 0)
    with consumer_of(broker) as consumer:
        consumer.assign([partition])
        read(consumer, 1)
        consumer.seek(partition, 90)
        assert [record.offset for record in read(consumer, 10)] == list(range(90, 100))
        consumer.seek_to_beginning()
        assert read(consumer, 1)[0].offset == 0
        consumer.seek_to_end([partition])
        assert consumer.position(partition) == 100
        assert consumer.poll(50) == []


def test_paused_partition_returns_nothing(broker, topic):
    """Until resume, records come from the other partitions only."""
    quiet, loud = partitions_of(topic, 0, 1)
    with consumer_of(broker, max_poll_records=10) as consumer:
        consumer.assign([quiet, loud])
        consumer.poll(1000)
        consumer.pause([quiet])
        position = consumer.position(quiet)
        poll_until([consumer], lambda: consumer.position(loud) == 100)
        assert consumer.position(quiet) == position
        assert consumer.paused() == {quiet}
        consumer.resume([quiet])
        poll_until([consumer], lambda: consumer.position(quiet) == 100)


def test_offsets_belong_to_times(broker, topic):
    """The first record at or after a time, None behind the last; both ends of the log."""
    first, second = partitions_of(topic, 0, 1)
    with consumer_of(broker) as consumer:
        found = consumer.offsets_for_times({first: 1050, second: 99_999})

        assert found[first].offset == 50
        assert found[second] is None
        assert consumer.beginning_offsets([first]) == {first: 0}
        assert consumer.end_offsets([first, second]) == {first: 100, second: 100}


def test_offset_out_of_range_resets(broker, topic):
    """auto.offset.reset says where to go on."""
    (partition,) = partitions_of(topic, 0)
    with consumer_of(broker) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1_000_000)

        assert read(consumer, 1)[0].offset == 0


def test_offset_out_of_range_is_an_error_without_a_reset(broker, topic):
    """With auto.offset.reset=none the poll raises, and a seek mends it."""
    (partition,) = partitions_of(topic, 0)
    with consumer_of(broker, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1_000_000)
        with pytest.raises(KafkaError, match=r"offset 1000000 of .* is not in the log"):
            read(consumer, 1)
        consumer.seek(partition, 99)
        assert read(consumer, 1)[0].offset == 99


def test_missing_commit_is_an_error_without_a_reset(broker, topic, group):
    """auto.offset.reset=none needs a committed offset."""
    with (
        consumer_of(broker, auto_offset_reset="none", group_id=group, topics=[topic]) as consumer,
        pytest.raises(KafkaError, match="no committed offset"),
    ):
        read(consumer, 1)


def test_latest_begins_behind_what_is_there(broker, topic):
    """Only records that come after the start are seen."""
    with (
        consumer_of(broker, auto_offset_reset="latest") as consumer,
        Producer(broker.bootstrap_servers) as producer,
    ):
        consumer.assign(partitions_of(topic, 0))
        assert consumer.position(TopicPartition(topic, 0)) == 100
        producer.send(topic, b"new", partition=0).result(LIMIT_SECONDS)
        assert [record.value for record in read(consumer, 1)] == [b"new"]


class Journal(RebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.events: list = []

    def on_partitions_assigned(self, partitions):
        self.events.append(("assigned", len(partitions)))

    def on_partitions_revoked(self, partitions):
        self.events.append(("revoked", len(partitions)))


def test_listener_is_told_of_each_change(broker, topic, group):
    """Eager: everything is revoked before the second member gets its share."""
    journal = Journal()
    with consumer_of(broker, group_id=group) as first:
        first.subscribe([topic], listener=journal)
        poll_until([first], first.assignment)
        with consumer_of(broker, group_id=group, topics=[topic]) as second:
            poll_until([first, second], lambda: second.assignment() and len(first.assignment()) < 3)
        poll_until([first], lambda: len(first.assignment()) == 3)

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
        poll_until([first, second], lambda: len(first.assignment() | second.assignment()) == 3)
        share, told = first.assignment(), len(journal.events)
        first.close()
        with consumer_of(broker, group_instance_id="one", **settings) as again:
            poll_until([again, second], again.assignment)
            assert again.assignment() == share
        assert len(journal.events) == told


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
    """Without a poll for max.poll.interval.ms the member leaves, and joins again when it polls."""
    settings = {"group_id": group, "topics": [topic]}
    slow = consumer_of(broker, max_poll_interval_ms=300, heartbeat_interval_ms=100, **settings)
    with slow, consumer_of(broker, **settings) as quick:
        poll_until([slow], lambda: len(slow.assignment()) == 3)
        poll_until([quick], lambda: len(quick.assignment()) == 3)
        with pytest.raises(KafkaError, match="given the partitions to others"):
            slow.commit({TopicPartition(topic, 0): 1})
        poll_until([slow, quick], lambda: len(slow.assignment() | quick.assignment()) == 3)


def test_wakeup_ends_a_waiting_poll(broker, topic):
    """From another thread; the consumer can be used afterwards."""
    with consumer_of(broker, auto_offset_reset="latest") as consumer:
        consumer.assign(partitions_of(topic))
        timer = threading.Timer(0.1, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.poll(LIMIT_SECONDS * 1000)
        timer.join()
        assert consumer.poll(0) == []


def test_deserializer_that_fails_stops_at_the_record(broker, topic, unique):
    """Records before it are returned, then it raises, and seeking past it goes on."""
    (partition,) = partitions_of(topic, 0)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(topic, b"\xff", partition=0)
        producer.send(topic, b"fine", partition=0)
    with consumer_of(broker, value_deserializer=StringDeserializer) as consumer:
        consumer.assign([partition])
        assert read(consumer, 100)[0].value == "0 0"
        with pytest.raises(KafkaError, match=f"{partition} offset 100: cannot deserialize"):
            read(consumer, 1)
        assert consumer.position(partition) == 100
        consumer.seek(partition, 101)
        assert read(consumer, 1)[0].value == "fine"


def test_subscribing_needs_a_group(broker, topic):
    """Without group.id only assign() is possible."""
    with consumer_of(broker) as consumer, pytest.raises(KafkaError, match=r"group\.id"):
        consumer.subscribe([topic])


def test_subscription_and_assignment_do_not_mix(broker, topic, group):
    """The error says what to do first."""
    with (
        consumer_of(broker, group_id=group, topics=[topic]) as consumer,
        pytest.raises(KafkaError, match="unsubscribe before"),
    ):
        consumer.assign(partitions_of(topic))


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


def test_closed_consumer_raises(broker):
    """After close nothing works; closing again does nothing."""
    consumer = consumer_of(broker)
    consumer.close()
    consumer.close()

    with pytest.raises(RuntimeError, match="closed"):
        consumer.poll(0)


def test_second_thread_is_refused(broker, topic):
    """A consumer belongs to one thread at a time."""
    refused = []

    def poll() -> None:
        try:
            consumer.poll(0)
        except RuntimeError as error:
            refused.append(str(error))

    with consumer_of(broker, auto_offset_reset="latest") as consumer:
        consumer.assign(partitions_of(topic))
        thread = threading.Thread(target=poll)
        original = consumer._core.interceptors.on_consume

        def run_other_thread(records):
            thread.start()
            thread.join()
            return original(records)

        consumer._core.interceptors.on_consume = run_other_thread
        consumer.poll(0)

    assert refused == ["the consumer is being used by another thread"]


def test_serialization_error_is_a_kafka_error():
    """One class of error covers both directions."""
    assert issubclass(SerializationError, KafkaError)
