"""MirrorMaker of the first design, between two brokers of this process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from ottla import Producer
from ottla.clients.legacy import Blacklist, Whitelist
from ottla.clients.producer.producer_interceptors import ProducerRecord
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.mirror.mirror_maker import (
    GroupSource,
    MirrorMaker,
    MirrorMakerRules,
    MirrorSource,
    message_handler,
    open_source,
)
from ottla.record.consumer_record import ConsumerRecord, TimestampType
from ottla.runtime import SystemClock
from ottla.testing import wait_until

COUNT = 50


class Shout:
    """A handler that changes values and adds the topic's name to them."""

    def __init__(self, suffix="!"):
        self.suffix = suffix

    def handle(self, record):
        return [ProducerRecord(f"{record.topic}-loud", record.value + self.suffix.encode())]


def twice(record):
    """A handler that is a function."""
    return [ProducerRecord(f"{record.topic}-twice", record.value)] * 2


@contextmanager
def mirror(target, *sources, **rules):
    """A mirror that runs while the block does; its error is raised behind the block."""
    producer = Producer(target.bootstrap_servers)
    with (
        MirrorMaker(sources, producer, SystemClock(), MirrorMakerRules(**rules)) as maker,
        ThreadPoolExecutor(1) as thread,
    ):
        running = thread.submit(maker.run)
        try:
            yield maker, running
        finally:
            maker.stop()
        running.result()


def group_source(broker, topics, group="mirror"):
    return GroupSource(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": group}, Whitelist(topics)
    )


def values(broker, topic, partition=None):
    return [record.value.decode() for record in broker.records(topic, partition=partition)]


def test_everything_is_copied_once_and_in_order_per_partition(site, centre, produce):
    """A mirror is a consumer of the source and a producer to the target."""
    for broker in (site, centre):
        broker.create_topic("pages", partitions=3)
    for partition in range(3):
        produce(site, "pages", range(COUNT), partition)

    with mirror(centre, group_source(site, "pages")):
        centre.wait_for_records("pages", 3 * COUNT)

    expected = [str(number) for number in range(COUNT)]
    assert [values(centre, "pages", partition) for partition in range(3)] == [expected] * 3
    assert sum(site.committed("mirror").values()) == 3 * COUNT


def test_one_target_mirrors_sources_of_unequal_size(site, centre, produce):
    """Two sources that do not know each other fill one topic."""
    site.create_topic("clicks-a", partitions=1)
    site.create_topic("clicks-b", partitions=4)
    centre.create_topic("clicks-b", partitions=2)
    produce(site, "clicks-a", range(COUNT))
    produce(site, "clicks-b", range(COUNT), partition=3)

    sources = group_source(site, "clicks-a", "a"), group_source(site, "clicks-b", "b")
    with mirror(centre, *sources):
        centre.wait_for_records("clicks-a", COUNT)
        centre.wait_for_records("clicks-b", COUNT)

    assert values(centre, "clicks-b", 1) == [str(number) for number in range(COUNT)]


def test_key_headers_and_timestamp_are_kept(site, centre):
    """A record arrives as it was, and by its key in the partition that the target has for it."""
    centre.create_topic("orders", partitions=5)
    site.create_topic("orders", partitions=2)
    with Producer(site.bootstrap_servers) as producer:
        producer.send("orders", "1", key="k7", headers={"h": b"x"}, timestamp_ms=1_600_000_000_000)
    with Producer(centre.bootstrap_servers) as producer:
        place = producer.send("orders", "mine", key="k7").result()

    with mirror(centre, group_source(site, "orders")):
        copied = centre.wait_for_records("orders", 2)[1]

    assert copied.partition == place.partition
    assert (copied.key, copied.value, copied.timestamp_ms) == (b"k7", b"1", 1_600_000_000_000)
    assert tuple(copied.headers) == (("h", b"x"),)


def test_blacklist_leaves_out_what_matches(site, centre, produce):
    """All topics but these are read, and nothing of the cluster's own."""
    for topic in ("keep", "drop-it"):
        produce(site, topic, [topic])
    settings = {"bootstrap.servers": site.bootstrap_servers, "group.id": "black"}
    listed = Blacklist("drop.*,pages,clicks.*,orders")

    with mirror(centre, GroupSource(settings, listed)):
        centre.wait_for_records("keep", 1)

    assert "drop-it" not in centre.topics()


def test_second_run_goes_on_where_the_first_has_committed(site, centre, produce):
    """Nothing is copied twice by a mirror that was stopped and started."""
    produce(site, "again", range(10))
    with mirror(centre, group_source(site, "again", "restart")):
        centre.wait_for_records("again", 10)
    produce(site, "again", range(10, 20))
    with mirror(centre, group_source(site, "again", "restart")):
        centre.wait_for_records("again", 20)

    assert values(centre, "again") == [str(number) for number in range(20)]


def test_offsets_are_committed_while_it_runs(site, centre, produce):
    """An interval of 0 commits after each poll that brought something."""
    produce(site, "steady", range(10))

    with mirror(centre, group_source(site, "steady", "steady"), commit_interval_ms=0):
        site.wait_until_consumed("steady", "steady")
        assert len(centre.records("steady")) == 10


def test_two_streams_share_the_partitions(site, centre, produce):
    """Each stream is a member of the source's group; a member that comes takes its part."""
    for broker in (site, centre):
        broker.create_topic("shared", partitions=4)
    for partition in range(4):
        produce(site, "shared", range(COUNT), partition)
    sources = [group_source(site, "shared", "shared") for _ in range(2)]

    with mirror(centre, *sources):
        site.wait_for_group("shared", 2)
        for partition in range(4):
            produce(site, "shared", range(COUNT, 2 * COUNT), partition)
        centre.wait_for_records("shared", 8 * COUNT)

    expected = [str(number) for number in range(2 * COUNT)]
    assert [values(centre, "shared", each) for each in range(4)] == [expected] * 4


def test_failed_send_ends_the_mirror_without_a_commit(site, centre, produce):
    """What the target refuses is not committed, so that nothing is lost silently."""
    centre.create_topic("big", max_message_bytes=1000)
    produce(site, "big", ["x" * 5000])

    with (
        pytest.raises(KafkaError) as refused,
        mirror(centre, group_source(site, "big", "big")) as (_, running),
    ):
        wait_until(running.done, "the mirror to end by itself")

    assert refused.value.error is ErrorCode.MESSAGE_TOO_LARGE
    assert not site.committed("big")


def test_failed_send_is_counted_where_it_does_not_abort(site, centre, produce):
    """With abort.on.send.failure=false the mirror says what it dropped, and goes on."""
    centre.create_topic("some", max_message_bytes=1000)
    produce(site, "some", ["x" * 5000])
    produce(site, "some", ["small"])

    with mirror(centre, group_source(site, "some", "some"), abort_on_send_failure=False) as (
        maker,
        _,
    ):
        centre.wait_for_records("some", 1)

    assert (maker.copied, maker.dropped) == (1, 1)
    assert list(site.committed("some").values()) == [2]


@pytest.mark.parametrize(
    ("name", "argument", "topic", "expected"),
    [
        (f"{__name__}.Shout", "?", "said-loud", ["hello?"]),
        (f"{__name__}.Shout", None, "said-loud", ["hello!"]),
        (f"{__name__}.twice", None, "said-twice", ["hello", "hello"]),
    ],
)
def test_handler_decides_what_is_sent(name, argument, topic, expected):
    """A class with its argument, or a function, makes the records."""
    record = ConsumerRecord("said", 0, 0, 0, TimestampType.CREATE_TIME, None, b"hello")

    made = message_handler(name, argument)(record)

    assert [(each.topic, each.value.decode()) for each in made] == [(topic, e) for e in expected]


def test_handler_of_a_mirror_renames_topics(site, centre, produce):
    """What the handler returns is written in the place of the record."""
    produce(site, "said", ["hello"])

    with mirror(centre, group_source(site, "said", "said"), handler=Shout().handle):
        assert [each.value for each in centre.wait_for_records("said-loud", 1)] == [b"hello!"]
    assert "said" not in centre.topics()


@pytest.mark.parametrize(
    ("name", "argument", "words"),
    [
        ("no.such.Handler", None, "must be importable"),
        (f"{__name__}.COUNT.real", None, "must be importable"),
        (f"{__name__}.twice", "x", "is a function"),
        ("pathlib.Path", None, "must have a method handle"),
    ],
)
def test_handler_that_cannot_be_made_is_named(name, argument, words):
    """A bad setting says which, and what is wanted."""
    with pytest.raises(ConfigError, match=words):
        message_handler(name, argument)


def test_consumer_without_a_group_is_refused(site):
    """A mirror must be able to commit."""
    with pytest.raises(ConfigError, match=r"group\.id"):
        open_source({"bootstrap.servers": site.bootstrap_servers}, Whitelist("x"), 0)


class ListSource(MirrorSource):
    """Records from a list; a commit fails as often as it is told."""

    def __init__(self, records, failures=0):
        self.records = records
        self.failures = failures
        self.commits = 0

    def poll(self):
        records, self.records = self.records, []
        return records

    def commit(self):
        if self.failures:
            self.failures -= 1
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not now")
        self.commits += 1

    def close(self):
        self.records = []


def test_commit_that_fails_is_made_again(centre):
    """A coordinator that is away does not end the mirror."""
    record = ConsumerRecord("retried", 0, 0, 7, TimestampType.CREATE_TIME, None, b"1")
    source = ListSource([record], failures=2)

    with mirror(centre, source, commit_interval_ms=0):
        wait_until(lambda: source.commits, "a commit")

    assert source.commits == 1
