"""Connectors of the 0.7 design: what their streams get, and what the registry has of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mock_kafka import HANG_UP
from old_world import GROUP, OldWorld

from ottla import KafkaError
from ottla.clients.legacy import (
    Consumer,
    ConsumerConnector,
    ConsumerTimeoutError,
    StringDecoder,
    Whitelist,
)
from ottla.clients.legacy.consumer_connector import ConnectorCore, consumer_name
from ottla.clients.legacy.group_nodes import ConsumerNodes
from ottla.clients.legacy.stream_fetcher import address
from ottla.config.legacy_config import ZooKeeperConsumerConfig
from ottla.errors import ErrorCode
from ottla.protocol.fetch import FetchRequest
from ottla.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.metadata import MetadataRequest
from ottla.registry import paths
from ottla.registry.session_tree import TreeRegistry
from ottla.registry.tree import RegistryFailedError, SessionState, Watch, delete_tree, ensure_path
from ottla.registry.znodes import BrokerNode, ConsumerRegistration
from ottla.runtime.scheduler import pause
from ottla.structs import Node

Connect = Callable[..., ConsumerConnector]
SETTINGS = {"zk.connect": "zookeeper:2181", "groupid": "g", "consumer.timeout.ms": 1}


@pytest.fixture
def connect(old_world) -> Iterator[Connect]:
    """Makes connectors of the group; they are shut down in the end."""
    made: list[ConsumerConnector] = []

    def make(name: str = "one", **settings: Any) -> ConsumerConnector:
        given = {key.replace("_", "."): value for key, value in settings.items()}
        made.append(Consumer.create({**SETTINGS, "consumerid": name, **given}))
        return made[-1]

    yield make
    for connector in made:
        connector.shutdown()


def pages_of(connector: ConsumerConnector, world: OldWorld, count: int = 1) -> list[Any]:
    """The streams of `pages`, when what there is has arrived."""
    streams = connector.create_message_streams({"pages": count}, StringDecoder())["pages"]
    world.advance()
    return streams


def read(stream) -> list[str]:
    """What has arrived and was not read yet."""
    values = []
    while True:
        try:
            values.append(next(stream).message)
        except ConsumerTimeoutError:
            return values
        except StopIteration:
            return values


def test_stream_has_the_messages_of_all_partitions(old_world, connect):
    """From the beginning on, and what comes later; with their places."""
    old_world.world.write("a", "b")
    old_world.world.write("c", partition=1)
    (stream,) = pages_of(connect(autooffset_reset="smallest"), old_world)

    found = [next(stream) for _ in range(3)]
    assert sorted((m.topic, m.partition, m.offset, m.message) for m in found) == [
        ("pages", 0, 0, "a"),
        ("pages", 0, 1, "b"),
        ("pages", 1, 0, "c"),
    ]
    old_world.world.write("d")
    old_world.advance(2000)
    assert read(stream) == ["d"]


def test_partitions_are_divided_among_the_streams(old_world, connect):
    """Each partition feeds one."""
    old_world.world.write("a")
    old_world.world.write("b", partition=1)
    streams = pages_of(connect(autooffset_reset="smallest"), old_world, 2)

    assert [read(stream) for stream in streams] == [["a"], ["b"]]
    assert {n: old_world.node(f"{GROUP}/owners/pages/{n}") for n in (0, 1)} == {
        0: "g_one-0",
        1: "g_one-1",
    }


def test_reading_begins_where_the_group_has_committed(old_world, connect):
    """A partition without an offset begins as autooffset.reset says."""
    old_world.world.write("a", "b", "c")
    old_world.world.write("d", partition=1)
    old_world.commit(0, 2)
    (stream,) = pages_of(connect(autooffset_reset="largest"), old_world)

    assert read(stream) == ["c"]


def test_commit_writes_how_far_was_read(old_world, connect):
    """By hand: the offset after what was handed out, or the start of what was not read."""
    old_world.world.write("a", "b", "c")
    settings = {"autocommit_enable": False, "autocommit_interval_ms": 50}
    connector = connect(autooffset_reset="smallest", **settings)
    (stream,) = pages_of(connector, old_world)
    connector.commit_offsets()
    assert old_world.offsets() == {0: 0, 1: 0}
    next(stream)
    next(stream)
    old_world.advance(1000)
    assert old_world.offsets() == {0: 0, 1: 0}
    connector.commit_offsets()

    assert old_world.offsets() == {0: 2, 1: 0}


def test_only_offsets_that_have_changed_are_written(old_world, connect):
    """What somebody else has written meanwhile stays."""
    old_world.world.write("a", "b")
    connector = connect(autocommit_enable=False, autooffset_reset="smallest")
    (stream,) = pages_of(connector, old_world)
    next(stream)
    connector.commit_offsets()
    old_world.commit(0, 77)
    connector.commit_offsets()
    assert old_world.offsets()[0] == 77
    next(stream)
    connector.commit_offsets()

    assert old_world.offsets()[0] == 2


def test_offsets_that_the_group_had_are_not_written_again(old_world, connect):
    """They are known from the start."""
    old_world.world.write("a", "b")
    old_world.commit(0, 2)
    connector = connect(autocommit_enable=False)
    pages_of(connector, old_world)
    old_world.commit(0, 1)
    connector.commit_offsets()

    assert old_world.offsets()[0] == 1


def test_offsets_are_committed_from_time_to_time(old_world, connect):
    """Offsets are committed every autocommit.interval.ms."""
    old_world.world.write("a")
    (stream,) = pages_of(
        connect(autocommit_interval_ms=5000, autooffset_reset="smallest"), old_world
    )
    next(stream)
    assert old_world.offsets().get(0) != 1
    old_world.advance(5000)

    assert old_world.offsets()[0] == 1


@pytest.mark.parametrize(("is_automatic", "expected"), [(True, 1), (False, None)])
def test_shutdown_commits_where_commits_are_automatic(old_world, connect, is_automatic, expected):
    """Where commits are not automatic, the application commits."""
    old_world.world.write("a", "b")
    connector = connect(
        autocommit_enable=is_automatic, autocommit_interval_ms=10**6, autooffset_reset="smallest"
    )
    (stream,) = pages_of(connector, old_world)
    next(stream)
    connector.shutdown()

    assert old_world.offsets().get(0) == expected


def test_shutdown_leaves_nothing_behind(old_world, connect, runtime, caplog):
    """No node of its own, no connection, no session; the stream ends. Twice does nothing."""
    with connect() as connector:
        (stream,) = pages_of(connector, old_world)
        assert old_world.names(f"{GROUP}/ids") == ["g_one"]
        assert connector.consumer_id == "g_one"
    assert old_world.names(f"{GROUP}/ids") == []
    connector.shutdown()
    old_world.advance()
    requests = [len(broker.requests) for broker in old_world.cluster.brokers.values()]
    old_world.advance(600_000)

    assert list(stream) == []
    assert old_world.names(f"{GROUP}/ids") == old_world.names(f"{GROUP}/owners/pages") == []
    assert not any(broker.connections for broker in old_world.cluster.brokers.values())
    assert [len(broker.requests) for broker in old_world.cluster.brokers.values()] == requests
    assert len(old_world.tree.sessions) == 1
    assert runtime.scheduler.loop.next_due_ms() is None
    assert caplog.messages == []
    with pytest.raises(RuntimeError, match="shut down"):
        connector.commit_offsets()
    with pytest.raises(RuntimeError, match="shut down"):
        connector.create_message_streams({"pages": 1})


def test_shutdown_ends_the_search_for_where_to_begin(old_world, connect, runtime, caplog):
    """It does not fail later, when the connections are gone."""
    for broker in old_world.cluster.brokers.values():
        broker.on(ListOffsetsRequest, None)
    connector = connect()
    pages_of(connector, old_world)
    connector.shutdown()
    old_world.advance(100_000)

    assert caplog.messages == []
    assert runtime.scheduler.loop.next_due_ms() is None


@pytest.mark.parametrize("loss", ["release", "session"])
def test_offsets_are_written_again_where_they_are_gone(old_world, connect, loss):
    """What the group had before the partition was lost is not taken for what it has now."""
    old_world.world.write("a", partition=1)
    connector = connect(autocommit_enable=False, autooffset_reset="smallest")
    pages_of(connector, old_world)
    connector.commit_offsets()
    assert old_world.offsets() == {0: 0, 1: 0}
    if loss == "release":
        other = connect("two", autocommit_enable=False, autooffset_reset="smallest")
        pages_of(other, old_world)
        old_world.advance(1000)
        old_world.run(delete_tree(old_world.registry, f"{GROUP}/offsets"))
        other.shutdown()
    else:
        old_world.run(delete_tree(old_world.registry, f"{GROUP}/offsets"))
        old_world.registries[0].expire()
    old_world.advance(10_000)
    connector.commit_offsets()

    assert old_world.offsets()[1] == 0


def test_messages_of_a_partition_that_was_released_are_not_handed_out(old_world, connect):
    """They have arrived and were not read: the new owner reads them."""
    old_world.world.write("a")
    old_world.world.write("b", partition=1)
    (first,) = pages_of(connect(autooffset_reset="smallest"), old_world)
    (second,) = pages_of(connect("two", autooffset_reset="smallest"), old_world)
    old_world.advance(1000)

    assert [read(first), read(second)] == [["a"], ["b"]]


def test_topics_that_were_released_are_not_asked_for(old_world, connect):
    """Brokers are asked for the metadata of those that are read."""
    old_world.add_topic("mail", {0: 0})
    for name in ("b", "a"):
        old_world.advance(1000)
        connector = connect(name, max_fetch_wait_ms=20_000)
        connector.create_message_streams({"pages": 1, "mail": 1})
    old_world.advance(1000)
    before = [len(broker.requests) for broker in old_world.cluster.brokers.values()]
    old_world.advance(400_000)

    asked = {
        frozenset(topic.name for topic in request.topics)
        for count, broker in zip(before, old_world.cluster.brokers.values(), strict=True)
        for request, _ in broker.requests[count:]
        if isinstance(request, MetadataRequest)
    }
    assert asked == {frozenset({"pages", "mail"}), frozenset({"pages"})}


def test_name_of_another_member_is_waited_for_and_given_up(old_world, connect):
    """Its session would have ended after so long."""
    pages_of(connect("first"), old_world)
    began_ms = old_world.runtime.clock.monotonic_ms()
    second = connect("first", zk_sessiontimeout_ms=3000, rebalance_backoff_ms=500)
    with pytest.raises(KafkaError, match=r"there is another consumer .*, and it did not leave"):
        second.create_message_streams({"pages": 1})

    assert old_world.runtime.clock.monotonic_ms() == began_ms + 3500
    assert old_world.names(f"{GROUP}/ids") == ["g_first"]


def test_fault_of_the_connector_is_not_waited_for(old_world, connect, monkeypatch):
    """An error that is none of Kafka's ends the rebalances, and reaches the application."""

    def broken(self, brokers):
        raise ZeroDivisionError

    monkeypatch.setattr(ConnectorCore, "on_brokers", broken)
    with pytest.raises(ZeroDivisionError):
        connect().create_message_streams({"pages": 1})


def test_shutdown_before_there_are_streams(connect, old_world):
    """There is nothing to release, and nothing to commit."""
    connector = connect()
    connector.commit_offsets()
    connector.shutdown()

    assert old_world.offsets() == {}


def test_second_member_takes_a_share_and_gives_it_back(old_world, connect):
    """The first stops reading what it has released, and commits it before."""
    old_world.world.write("a")
    old_world.world.write("b", partition=1)
    one = connect(autocommit_interval_ms=10**6, autooffset_reset="smallest")
    (first,) = pages_of(one, old_world)
    assert sorted(read(first)) == ["a", "b"]
    two = connect("two", autooffset_reset="smallest")
    (second,) = pages_of(two, old_world)
    old_world.advance(1000)
    assert old_world.offsets()[1] == 1
    old_world.world.write("c")
    old_world.world.write("d", partition=1)
    old_world.advance(2000)
    assert [read(first), read(second)] == [["c"], ["d"]]

    two.shutdown()
    old_world.advance(5000)
    old_world.world.write("e", partition=1)
    old_world.advance(2000)
    assert read(first) == ["e"]


def test_lost_session_stops_the_reading_until_the_partitions_are_taken_again(old_world, connect):
    """From the committed offsets: what was not committed comes again."""
    old_world.world.write("a", "b")
    connector = connect(autocommit_enable=False, autooffset_reset="smallest")
    (stream,) = pages_of(connector, old_world)
    next(stream)
    connector.commit_offsets()
    next(stream)
    old_world.registries[0].expire()
    old_world.advance(10_000)

    assert read(stream) == ["b"]
    assert old_world.names(f"{GROUP}/ids") == ["g_one"]
    connector.commit_offsets()
    assert old_world.offsets()[0] == 2


def test_stream_that_is_full_is_filled_again_when_it_was_read(old_world, connect):
    """queuedchunks.max bounds what waits; the rest is fetched later, in order."""
    for number in range(20):
        old_world.world.write(*(f"{number}-{n}" for n in range(200)))
    connector = connect(queuedchunks_max=1, autooffset_reset="smallest")
    (stream,) = pages_of(connector, old_world)
    found = []
    for _ in range(4000):
        found.append(next(stream).message)
        old_world.advance(1)

    assert found == [f"{number}-{n}" for number in range(20) for n in range(200)]


def test_full_stream_does_not_hold_up_another(old_world, connect):
    """Each is full for itself."""
    for _ in range(5):
        old_world.world.write(*map(str, range(2000)))
    old_world.world.write("x", partition=1)
    connector = connect(queuedchunks_max=1, autooffset_reset="smallest")
    _, second = pages_of(connector, old_world, 2)
    assert read(second) == ["x"]
    old_world.world.write("y", partition=1)
    old_world.advance(2000)

    assert read(second) == ["y"]


def test_offset_that_the_log_does_not_have_is_reset(old_world, connect):
    """The offset is reset as autooffset.reset says."""
    old_world.world.write("a")
    old_world.commit(0, 50)
    (stream,) = pages_of(connect(autooffset_reset="smallest"), old_world)
    old_world.advance(2000)

    assert read(stream) == ["a"]


def test_error_of_a_fetch_reaches_the_reader(old_world, connect):
    """Who reads the stream gets it."""
    refused = old_world.world.refuse_fetch(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    old_world.cluster[0].on(FetchRequest, refused)
    (stream,) = pages_of(connect(autooffset_reset="smallest"), old_world)
    with pytest.raises(KafkaError) as caught:
        next(stream)

    assert caught.value.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_positions_that_cannot_be_found_reach_the_reader(old_world, connect):
    """The reader gets the reason; autooffset.reset cannot say where to begin."""
    row = ListOffsetsPartitionResponse(
        partition_index=0, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )
    answer = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="pages", partitions=[row])])
    old_world.cluster[0].on(ListOffsetsRequest, answer)
    (stream,) = pages_of(connect(), old_world)
    with pytest.raises(KafkaError) as caught:
        next(stream)

    assert caught.value.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_leader_that_hangs_up_is_asked_again(old_world, connect):
    """The messages come a little later."""
    old_world.world.write("a")
    old_world.cluster[0].on(FetchRequest, HANG_UP, old_world.world.fetch)
    (stream,) = pages_of(connect(autooffset_reset="smallest"), old_world)
    old_world.advance(5000)

    assert read(stream) == ["a"]


def test_brokers_that_have_all_moved_are_found_by_the_registry(old_world, connect):
    """The addresses that the connector knew are nobody's any more."""
    (stream,) = pages_of(connect(autooffset_reset="smallest"), old_world)
    for broker_id, broker in old_world.cluster.brokers.items():
        broker.stop()
        broker.port += 500
        broker.start()
        old_world.remove_broker(broker_id)
        old_world.add_broker(broker_id, broker.port)
    old_world.world.write("a")
    old_world.advance(60_000)

    assert read(stream) == ["a"]


def test_filter_takes_in_topics_that_come_later(old_world, connect):
    """Those that match, and no others."""
    connector = connect(autooffset_reset="smallest")
    (stream,) = connector.create_message_streams_by_filter(Whitelist("p.*"), 1, StringDecoder())
    old_world.world.write("a")
    old_world.add_topic("mail", {0: 0})
    old_world.add_topic("posts", {0: 0})
    old_world.advance(5000)

    found = [next(stream) for _ in range(2)]  # brokers of this world have one log for all topics
    assert sorted((each.topic, each.message) for each in found) == [("pages", "a"), ("posts", "a")]
    assert sorted(old_world.names(f"{GROUP}/owners")) == ["pages", "posts"]
    registration = old_world.node(f"{GROUP}/ids/g_one") or ""
    assert '"white_list"' in registration


def test_streams_are_made_once(connect, old_world):
    """The group would not know which of them to fill."""
    connector = connect()
    pages_of(connector, old_world)
    for call in (
        lambda: connector.create_message_streams({"pages": 1}),
        lambda: connector.create_message_streams_by_filter(Whitelist("p.*")),
    ):
        with pytest.raises(KafkaError, match="only once"):
            call()


@pytest.mark.parametrize(
    "call",
    [
        lambda connector: connector.create_message_streams({"pages": 1, "mail": 0}),
        lambda connector: connector.create_message_streams_by_filter(Whitelist("p.*"), 0),
    ],
)
def test_there_is_one_stream_at_least(connect, old_world, call):
    """Nothing has been done by then: another call may follow."""
    connector = connect()
    with pytest.raises(KafkaError, match="0 streams are too few"):
        call(connector)

    assert len(pages_of(connector, old_world)) == 1


def test_connector_that_cannot_join_is_shut_down(connect, old_world):
    """Another, which is no member, holds the partition and does not release it."""
    old_world.run(ensure_path(old_world.registry, f"{GROUP}/owners/pages"))
    old_world.run(old_world.registry.create(f"{GROUP}/owners/pages/0", b"g_other-0"))
    connector = connect(rebalance_backoff_ms=500)
    began_ms = old_world.runtime.clock.monotonic_ms()
    with pytest.raises(KafkaError, match="cannot take its partitions after 4 retries"):
        connector.create_message_streams({"pages": 1})

    assert old_world.runtime.clock.monotonic_ms() == began_ms + 5 * 500
    with pytest.raises(RuntimeError, match="shut down"):
        connector.commit_offsets()
    assert old_world.names(f"{GROUP}/ids") == []


def test_changes_in_the_cluster_are_no_failures_to_take_partitions(connect, old_world):
    """Each is followed by another attempt, as is a release, and only vain waits are counted."""
    registry, owner = old_world.registry, f"{GROUP}/owners/pages/0"
    old_world.run(ensure_path(registry, f"{GROUP}/owners/pages"))
    old_world.run(registry.create(owner, b"g_other-0"))
    node = BrokerNode(("PLAINTEXT://mock:9000",), {}, "mock", 9000, 0)

    async def change() -> None:
        for number in range(10, 20):
            await pause(old_world.runtime.scheduler, 100)
            await registry.create(paths.broker(number), node.encode(), ephemeral=True)
        await pause(old_world.runtime.scheduler, 100)
        await registry.delete(owner)

    old_world.soon(change())
    connect(rebalance_backoff_ms=500).create_message_streams({"pages": 1})

    assert old_world.node(owner) == "g_one-0"
    assert 1100 <= old_world.runtime.clock.monotonic_ms() < 1200


@pytest.fixture
def watched(monkeypatch) -> list[str]:
    """The nodes that any client watches, once for each watch."""
    found: list[str] = []

    class Noted:
        """A watch that is taken off the list when it is cancelled."""

        def __init__(self, path: str, watch: Watch) -> None:
            self.path, self.watch = path, watch
            found.append(path)

        def cancel(self) -> None:
            found.remove(self.path)
            self.watch.cancel()

    for name in ("watch_data", "watch_children"):
        watch = getattr(TreeRegistry, name)
        monkeypatch.setattr(
            TreeRegistry,
            name,
            lambda self, path, call, watch=watch: Noted(path, watch(self, path, call)),
        )
    return found


def test_nodes_are_watched_as_long_as_they_matter(old_world, connect, watched):
    """Owners while they are waited for, topics while they are read, all until the shutdown."""
    old_world.add_topic("posts", {0: 0})
    owner = f"{GROUP}/owners/pages/0"
    old_world.run(ensure_path(old_world.registry, f"{GROUP}/owners/pages"))
    old_world.run(old_world.registry.create(owner, b"g_other-0"))

    async def change() -> None:
        await pause(old_world.runtime.scheduler, 100)
        assert owner in watched
        await old_world.registry.delete(owner)

    old_world.soon(change())
    connector = connect(rebalance_backoff_ms=500)
    connector.create_message_streams_by_filter(Whitelist("p.*"))
    group = [f"{GROUP}/ids", paths.BROKER_IDS, paths.TOPICS]
    assert sorted(watched) == sorted([*group, paths.topic("pages"), paths.topic("posts")])
    old_world.run(old_world.remove_topic("posts"))
    old_world.advance(1000)
    assert sorted(watched) == sorted([*group, paths.topic("pages")])
    connector.shutdown()

    assert watched == []


def test_owner_that_goes_before_it_is_watched_is_noticed(old_world, connect, monkeypatch):
    """The partition is taken at once, and not after the backoff."""
    owner, registrations = f"{GROUP}/owners/pages/0", ConsumerNodes.registrations
    old_world.run(ensure_path(old_world.registry, f"{GROUP}/owners/pages"))
    old_world.run(old_world.registry.create(owner, b"g_other-0"))
    calls = []

    async def look(self):
        calls.append(owner)
        if len(calls) == 2:  # the first look was followed by an attempt to take it
            await old_world.registry.delete(owner)
        return await registrations(self)

    monkeypatch.setattr(ConsumerNodes, "registrations", look)
    connect(rebalance_backoff_ms=500).create_message_streams({"pages": 1})

    assert old_world.node(owner) == "g_one-0"
    assert old_world.runtime.clock.monotonic_ms() < 100


def test_name_is_taken_over_when_its_node_is_gone_and_not_when_it_changes(old_world, connect):
    """A change of its data says only that the other member lives."""
    path = f"{GROUP}/ids/g_one"
    node = ConsumerRegistration({"pages": 1}).encode()
    old_world.run(ensure_path(old_world.registry, f"{GROUP}/ids"))
    old_world.run(old_world.registry.create(path, node))

    async def change() -> None:
        for _ in range(3):
            await pause(old_world.runtime.scheduler, 100)
            await old_world.registry.set(path, node)
        await pause(old_world.runtime.scheduler, 100)
        await old_world.registry.delete(path)

    old_world.soon(change())
    connect().create_message_streams({"pages": 1})

    assert 400 <= old_world.runtime.clock.monotonic_ms() < 500
    assert old_world.names(f"{GROUP}/ids") == ["g_one"]


def tell(world: OldWorld, *states: SessionState) -> None:
    """Have ZooKeeper fall silent, or be heard of again."""

    async def call() -> None:
        for state in states:
            for watch in world.registries[0]._session_watches:
                watch.callback(state)

    world.run(call())


def test_silence_of_the_registry_ends_the_reading_when_the_session_may_have_ended(
    old_world, connect
):
    """Where it has not, the partitions are released, taken again and read on."""
    connector = connect(autooffset_reset="smallest", zk_sessiontimeout_ms=3000)
    (stream,) = pages_of(connector, old_world)
    tell(old_world, SessionState.SUSPENDED)
    old_world.world.write("a")
    old_world.advance(500)
    tell(old_world, SessionState.RESUMED)
    old_world.advance(5000)
    assert read(stream) == ["a"]
    connector.commit_offsets()
    tell(old_world, SessionState.SUSPENDED)
    old_world.advance(999)
    old_world.world.write("b")
    old_world.advance(200)
    assert read(stream) == []
    tell(old_world, SessionState.RESUMED)
    old_world.advance(1000)

    assert read(stream) == ["b"]
    assert old_world.names(f"{GROUP}/owners/pages") == ["0", "1"]


@pytest.mark.parametrize("fault", ["error", "silence"])
def test_partitions_whose_offsets_could_not_be_read_are_taken_again(
    old_world, connect, monkeypatch, fault
):
    """They are owned by then, and not read: by an error, or as the session may have ended."""
    old_world.world.write("a")
    faults, offsets = [fault], ConsumerNodes.offsets

    async def faulty(self, partitions):
        if faults:
            if faults.pop() == "error":
                raise RegistryFailedError("no answer")
            for state in (SessionState.SUSPENDED, SessionState.RESUMED):
                for watch in old_world.registries[0]._session_watches:
                    watch.callback(state)
        return await offsets(self, partitions)

    monkeypatch.setattr(ConsumerNodes, "offsets", faulty)
    (stream,) = pages_of(connect(autooffset_reset="smallest"), old_world)
    old_world.advance(5000)

    assert read(stream) == ["a"]


def test_partition_that_could_not_be_released_is_read_again_if_it_stays(
    old_world, connect, monkeypatch
):
    """The member that was to get it has left meanwhile."""
    (stream,) = pages_of(connect(autooffset_reset="smallest"), old_world)
    faults, give_up = ["once"], ConsumerNodes.give_up

    async def faulty(self, partitions):
        if faults:
            faults.pop()
            raise RegistryFailedError("no answer")
        await give_up(self, partitions)

    monkeypatch.setattr(ConsumerNodes, "give_up", faulty)
    other, path = ConsumerRegistration({"pages": 1}), f"{GROUP}/ids/g_other"
    old_world.run(old_world.registry.create(path, other.encode()))
    old_world.advance(100)
    assert faults == []
    old_world.run(old_world.registry.delete(path))
    old_world.world.write("a", partition=1)
    old_world.advance(5000)

    assert read(stream) == ["a"]


def test_full_stream_takes_no_more(old_world, connect):
    """What the application does not read is not fetched and kept in memory."""
    for _ in range(20):
        old_world.world.write(*map(str, range(200)))
    (stream,) = pages_of(connect(queuedchunks_max=1, autooffset_reset="smallest"), old_world)
    old_world.advance(5000)

    assert 0 < len(read(stream)) <= 1000


def test_messages_are_bytes_where_there_is_no_decoder(connect, old_world):
    """DefaultDecoder leaves the whole message."""
    old_world.world.write("a")
    connector = connect(autooffset_reset="smallest")
    (stream,) = connector.create_message_streams({"pages": 1})["pages"]
    old_world.advance()

    assert next(stream).message.payload == b"a"


def test_consumer_is_named_by_its_host_and_a_number_if_it_has_no_name(runtime):
    """No two are the same."""
    config = ZooKeeperConsumerConfig.parse({"zk.connect": "zookeeper", "groupid": "g"})
    names = {consumer_name(runtime, config) for _ in range(10)}

    assert len(names) == 10
    assert all(name.startswith("g_") and name.count("-") >= 2 for name in names)


@pytest.mark.parametrize(
    ("host", "expected"), [("h", "h:9092"), ("10.0.0.1", "10.0.0.1:9092"), ("::1", "[::1]:9092")]
)
def test_address_of_a_broker_is_as_settings_have_it(host, expected):
    """The address has brackets where the host has colons."""
    assert address(Node(0, host, 9092)) == expected


def test_owners_are_ephemeral(connect, old_world):
    """A member that is gone owns nothing."""
    pages_of(connect(), old_world)
    old_world.registries[0].end_session()

    assert old_world.names(f"{GROUP}/owners/pages") == []
    assert old_world.names(paths.BROKER_IDS) == ["0", "1"]
