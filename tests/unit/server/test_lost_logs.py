"""A broker whose disk has lost logs starts first: the records that others have must stay."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from ottla import Admin, Producer
from ottla.config.broker_config import BrokerConfig
from ottla.controller.topic_store import StoredState, TopicReader
from ottla.errors import KafkaError
from ottla.log.log_files import PARTITION_METADATA
from ottla.log.log_manager import LogManager
from ottla.registry.tree import SessionEndedError
from ottla.replication import replica_manager
from ottla.runtime import SystemClock
from ottla.server import log_dir_failure_handler, lost_logs
from ottla.structs import ElectionType, LeaderAndIsr, TopicPartition
from ottla.testing import InProcessCluster, mock_runtime, wait_until
from ottla.testing.memory_disk import MemoryDisk
from ottla.testing.waiting import wait_until_async

BROKERS = (1, 2, 3)
RECORDS = 20
WAITS = "another replica must lead first"
T = TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch) -> None:
    """Registry and controller are asked again after a moment."""
    monkeypatch.setattr(lost_logs, "REGISTRY_RETRY_MS", 50)
    monkeypatch.setattr(log_dir_failure_handler, "LOG_RETRY_MS", 100)


@pytest.fixture
def cluster() -> InProcessCluster:
    """Three brokers, all in sync, with records of a topic that broker 1 leads."""
    settings = {"zookeeper_session_timeout_ms": 100}
    with InProcessCluster(**settings) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics(["t"])
        send(cluster)
        yield cluster


def send(cluster) -> None:
    with Producer(cluster.bootstrap_servers, acks="all") as producer:
        for future in [producer.send("t", b"%d" % i, partition=0) for i in range(RECORDS)]:
            future.result()


def values(cluster) -> list[int]:
    return [int(record.value) for record in cluster.records("t", 0)]


def write_state_again(cluster, topic: str = "t") -> None:
    """Its leader is started again, as in any cluster that has been restarted."""
    cluster.wait_until_in_sync(topic)
    leader = cluster.leader(topic)
    cluster.stop_broker(leader)
    cluster.start_broker(leader)
    cluster.wait_until_in_sync(topic)


async def end_all(cluster) -> None:
    """All end in one moment: none sees another one die."""
    lives = [cluster._living(each) for each in cluster.live_brokers]
    await asyncio.gather(*(life.kill() for life in lives))


def lose(cluster, broker_id: int) -> None:
    """The disk of a broker is replaced by an empty one."""
    disk = cluster.disks[broker_id] = MemoryDisk()
    disk.make_dirs("/data")


async def start_with(cluster, broker_id, caplog, *others) -> None:
    """Start a broker, and the others as soon as it waits for them."""
    starting = asyncio.create_task(cluster._start(broker_id))
    await wait_until_async(lambda: starting.done() or WAITS in caplog.text, "it waits")
    for other in others:
        await cluster._start(other)
    await starting


async def cut_off_start(cluster, broker_id, caplog) -> None:
    """A process that is killed while it waits for the others."""
    starting = asyncio.create_task(cluster._start(broker_id))
    await wait_until_async(lambda: WAITS in caplog.text, "it waits")
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)


def told(caplog) -> list[str]:
    """What starts have said of lost logs."""
    return [each.getMessage() for each in caplog.records if each.name == lost_logs.__name__]


@pytest.mark.parametrize("is_young", [True, False])
def test_broker_without_its_log_lets_others_lead_first(cluster, caplog, monkeypatch, is_young):
    """It led, alone in sync, and the others cut their logs to its empty one."""
    cluster.wait_until_in_sync("t")
    if is_young:  # the wait is short where the topic may be new
        monkeypatch.setattr(lost_logs, "EXPIRY_SLACK_MS", 60_000)
    else:
        write_state_again(cluster)
    cluster.run(end_all(cluster))
    lose(cluster, 1)
    cluster.run(start_with(cluster, 1, caplog, 2, 3))
    cluster.wait_until_in_sync("t")

    assert values(cluster) == list(range(RECORDS))
    assert WAITS in caplog.text


def test_broker_that_was_last_in_sync_does_not_lead_an_empty_log(cluster, caplog, monkeypatch):
    """The others ended in order, before it: they have all that was acknowledged."""
    write_state_again(cluster)
    cluster.wait_until_in_sync("t")
    for broker_id in (3, 2, 1):
        cluster.stop_broker(broker_id)
    lose(cluster, 1)
    for broker_id in BROKERS:  # with each one that starts, leaders are looked for again
        cluster.start_broker(broker_id)

    async def is_leaderless() -> bool:
        found = cluster._living(1).broker.cache.topic("t")
        return found is not None and found.partitions[0].leader not in BROKERS

    wait_until(lambda: cluster.run(is_leaderless()), "nobody leads")
    caplog.set_level("DEBUG", replica_manager.__name__)  # an error is told once
    refused = caplog.text.count(f"the log of {T} is lost")
    wait_until(lambda: caplog.text.count(f"the log of {T} is lost") > refused + 1, "it is refused")
    assert cluster.run(is_leaderless())
    assert "an unclean election gives them to another" in caplog.text
    with Admin(cluster.bootstrap_servers) as admin:
        assert admin.elect_leaders(ElectionType.UNCLEAN, [T]) == {T: None}
    assert cluster.leader("t") in (2, 3)
    cluster.wait_until_in_sync("t")
    assert values(cluster) == list(range(RECORDS))


def test_patience_ends(cluster, caplog, monkeypatch):
    """Where nobody else comes, it serves the rest, and does not lead what it has lost."""
    write_state_again(cluster)
    cluster.run(end_all(cluster))
    lose(cluster, 1)
    monkeypatch.setattr(lost_logs, "PATIENCE_MS", 0)
    cluster.start_broker(1)

    assert cluster.broker(1).replica_manager.lost_logs >= {T}


def test_topic_whose_state_was_never_written_again_is_as_safe_once_it_is_old(cluster, monkeypatch):
    """It has records although its first leader leads it still."""
    cluster.wait_until_in_sync("t")
    cluster.run(end_all(cluster))
    lose(cluster, 1)
    monkeypatch.setattr(lost_logs, "PATIENCE_MS", 0)
    monkeypatch.setattr(lost_logs, "YOUNG_MS", 0)
    cluster.start_broker(1)

    assert cluster.broker(1).replica_manager.lost_logs >= {T}


@pytest.mark.parametrize("starts", [1, 2])
def test_young_topic_is_as_safe_where_the_disk_is_younger(cluster, caplog, monkeypatch, starts):
    """It led such a topic after a wait as long as a session, and the others were cut."""
    cluster.wait_until_in_sync("t")
    cluster.run(end_all(cluster))
    lose(cluster, 1)
    if starts > 1:  # the first one does not come so far that it gives its place up
        cluster.run(cut_off_start(cluster, 1, caplog))
    monkeypatch.setattr(lost_logs, "EXPIRY_SLACK_MS", 0)
    monkeypatch.setattr(lost_logs, "PATIENCE_MS", 500)
    for broker_id in BROKERS:
        cluster.start_broker(broker_id)
    cluster.wait_until_in_sync("t")

    assert values(cluster) == list(range(RECORDS))


DAY_MS = 24 * 3_600_000


class OtherClock(SystemClock):
    """Wrong by so much, or right where all others are wrong."""

    def __init__(self, ahead_ms: int) -> None:
        self.ahead_ms = ahead_ms

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@pytest.fixture
def registry_ahead(ahead_ms) -> InProcessCluster:
    """The same, and the clock of the registry, which stamps its nodes, is not that of brokers."""
    cluster = InProcessCluster(zookeeper_session_timeout_ms=100)
    cluster._tree._clock = OtherClock(ahead_ms)
    with cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics(["t"])
        send(cluster)
        cluster.wait_until_in_sync("t")
        cluster.run(end_all(cluster))
        yield cluster


@pytest.mark.parametrize("ahead_ms", [-1_000 * DAY_MS, -DAY_MS, 0, DAY_MS, 1_000 * DAY_MS])
def test_no_clock_makes_a_topic_younger_than_the_disk(registry_ahead, monkeypatch):
    """It was as if made after the disk where the broker's was behind: it led an empty log."""
    cluster = registry_ahead
    lose(cluster, 1)
    monkeypatch.setattr(lost_logs, "PATIENCE_MS", 0)
    cluster.start_broker(1)

    assert cluster.broker(1).replica_manager.lost_logs >= {T}


@pytest.mark.parametrize("ahead_ms", [-1_000 * DAY_MS, -DAY_MS, 0, DAY_MS, 1_000 * DAY_MS])
def test_topic_that_was_never_made_is_led_by_the_first(registry_ahead, monkeypatch):
    """All ended before they had its log: nothing is lost, and it is not waited for long."""
    cluster = registry_ahead
    for broker_id in BROKERS:
        cluster.disks[broker_id].remove_tree(f"/data/{T}")
    monkeypatch.setattr(lost_logs, "EXPIRY_SLACK_MS", 0)
    cluster.start_broker(1)

    assert cluster.leader("t") == 1


def test_registry_without_a_clock_is_believed_to_have_that_of_the_broker(cluster, monkeypatch):
    """Its node may not be written to, where its ACLs are another user's: the start goes on."""
    cluster.wait_until_in_sync("t")
    cluster.run(end_all(cluster))
    lose(cluster, 1)
    monkeypatch.setattr(lost_logs, "PATIENCE_MS", 0)
    monkeypatch.setattr(lost_logs.paths, "BROKER_SEQUENCE", "/brokers/nothing")
    cluster.start_broker(1)

    assert cluster.broker(1).replica_manager.lost_logs >= {T}


def test_unclean_elections_wait_for_nobody(cluster, caplog, monkeypatch):
    """The operator prefers a topic that can be written to one that is whole."""
    monkeypatch.setattr(lost_logs, "PATIENCE_MS", 1_000)  # for topics with settings of their own
    write_state_again(cluster)
    cluster.run(end_all(cluster))
    lose(cluster, 1)
    cluster.settings["unclean.leader.election.enable"] = "true"
    cluster.start_broker(1)

    assert cluster.leader("t") == 1
    assert not [each for each in told(caplog) if str(T) in each]


def test_lost_disk_is_filled_again_while_others_lead(cluster, caplog):
    """The controller has taken the broker out of those in sync: it copies, and waits for nobody."""
    cluster.wait_until_in_sync("t")
    cluster.kill_broker(1)
    cluster.wait_until_in_sync("t", replicas=2)
    lose(cluster, 1)
    cluster.start_broker(1)
    cluster.wait_until_in_sync("t")

    assert values(cluster) == list(range(RECORDS))
    assert not told(caplog)


@pytest.mark.parametrize("method", ["marked_for_deletion", "names", "read", "read_states"])
def test_session_that_ends_meanwhile_ends_no_start_and_hides_no_loss(
    cluster, caplog, monkeypatch, method
):
    """A topic that could not be read was left alone, as one whose node is damaged."""
    write_state_again(cluster)
    cluster.wait_until_in_sync("t")
    cluster.run(end_all(cluster))
    lose(cluster, 1)
    answer, ended = getattr(TopicReader, method), []

    async def end_once(reader, *questions):
        if type(reader) is TopicReader and questions not in ended:  # not that of a controller
            ended.append(questions)
            raise SessionEndedError("the session has ended")
        return await answer(reader, *questions)

    monkeypatch.setattr(TopicReader, method, end_once)
    cluster.run(start_with(cluster, 1, caplog, 2, 3))
    cluster.wait_until_in_sync("t")

    assert values(cluster) == list(range(RECORDS))
    assert ended
    assert WAITS in caplog.text


def test_replica_that_comes_late_leads(cluster, monkeypatch):
    """The first one gave its place in sync up: its controller made it the only one in sync."""
    monkeypatch.setattr(lost_logs, "PATIENCE_MS", 0)
    write_state_again(cluster)
    cluster.wait_until_in_sync("t")
    cluster.run(end_all(cluster))
    lose(cluster, 1)
    for broker_id in BROKERS:
        cluster.start_broker(broker_id)
    cluster.wait_until_in_sync("t")

    assert values(cluster) == list(range(RECORDS))


def test_brokers_that_wait_for_each_other_lead_what_they_have(caplog, monkeypatch):
    """Each has lost one log: neither is registered, so that no leader can come."""
    monkeypatch.setattr(lost_logs, "PATIENCE_MS", 1_000)
    with InProcessCluster(2, zookeeper_session_timeout_ms=100) as cluster:
        with Admin(cluster.bootstrap_servers) as admin:
            admin.create_topics(["t", "u"])
        send(cluster)
        for topic in ("t", "u"):
            write_state_again(cluster, topic)
        cluster.run(end_all(cluster))
        for broker_id, topic in ((1, "t"), (2, "u")):
            cluster.disks[broker_id].rename(f"/data/{topic}-0", "/data/elsewhere")
        cluster.run(start_with(cluster, 1, caplog, 2))
        for topic in ("t", "u"):
            cluster.wait_until_in_sync(topic)

        assert values(cluster) == list(range(RECORDS))
        assert sum("waiting for up to" in text for text in told(caplog)) == 2


def test_log_of_an_older_topic_is_none(cluster, caplog):
    """It was put away when the broker led, and the log that it made was empty."""
    disk = cluster.disks[1]
    with Admin(cluster.bootstrap_servers) as admin:
        former = disk.read_bytes(f"/data/{T}/{PARTITION_METADATA}")
        admin.delete_topics(["t"])
        wait_until(lambda: "t" not in admin.list_topics(), "it is deleted")
        admin.create_topics(["t"])
    send(cluster)
    write_state_again(cluster)
    cluster.wait_until_in_sync("t")
    cluster.run(end_all(cluster))
    disk.replace(f"/data/{T}/{PARTITION_METADATA}", former)
    cluster.run(start_with(cluster, 1, caplog, 2, 3))
    cluster.wait_until_in_sync("t")

    assert values(cluster) == list(range(RECORDS))


def test_unclean_election_takes_a_replica_with_records(cluster, monkeypatch):
    """The broker that lost its log would have been the first one, out of sync as the other is."""
    monkeypatch.setattr(lost_logs, "PATIENCE_MS", 0)
    write_state_again(cluster)
    cluster.wait_until_in_sync("t")
    cluster.stop_broker(3)
    cluster.wait_until_in_sync("t", replicas=2)
    cluster.run(end_all(cluster))
    lose(cluster, 1)
    cluster.start_broker(1)
    cluster.start_broker(3)

    assert cluster.broker(1).replica_manager.lost_logs >= {T}
    with Admin(cluster.bootstrap_servers) as admin:
        assert admin.elect_leaders(ElectionType.UNCLEAN, [T]) == {T: None}
    assert cluster.leader("t") == 3
    cluster.wait_until_in_sync("t", replicas=2)
    assert values(cluster) == list(range(RECORDS))


def test_time_without_a_registry_is_no_wait(monkeypatch):
    """The others were cut off as well: an empty log of a young topic was led at once."""
    runtime, answers = mock_runtime(), 0
    state = StoredState(LeaderAndIsr(1, 0, (1, 2)), 1, 1, runtime.clock.now_ms())
    parts = SimpleNamespace(
        runtime=runtime,
        config=BrokerConfig.parse({}),
        broker_id=1,
        registry=None,
        log_manager=SimpleNamespace(live_dirs=[]),
    )
    logs = lost_logs.LostLogs(parts)

    async def nothing():
        return []

    async def lost(missing):
        nonlocal answers
        answers += 1
        if answers == 2:  # it answers after a long time
            await lost_logs.pause(runtime.scheduler, 10 * lost_logs.PATIENCE_MS)
        return {T: state} if answers < 4 else {}

    monkeypatch.setattr(logs, "_missing", nothing)
    monkeypatch.setattr(logs, "_lost", lost)
    task = runtime.scheduler.spawn(logs.wait(), "wait")
    runtime.advance(11 * lost_logs.PATIENCE_MS)

    assert task.result() == set()
    assert answers == 4


def test_place_that_is_given_up_stops_no_leader_that_lives(cluster):
    """Sessions may last longer than the patience of a start: the leader goes on meanwhile.

    Its changes were refused as those of an older epoch, and nobody told it of the new one.
    """
    cluster.wait_until_in_sync("t")
    cluster.stop_broker(1)
    cluster.start_broker(1)
    cluster.wait_until_in_sync("t")
    assert 1 not in (cluster.leader("t"), cluster.controller_id())
    broker = cluster.broker(1)

    async def give_up():
        (stored,) = (await TopicReader(broker.registry).read_states([T])).items()
        await lost_logs.LostLogs(broker)._give_up(stored)

    cluster.run(give_up())
    cluster.kill_broker(1)
    cluster.wait_until_in_sync("t", replicas=2)
    cluster.start_broker(1)
    cluster.wait_until_in_sync("t")
    send(cluster)

    assert values(cluster) == [*range(RECORDS)] * 2


@pytest.mark.parametrize("session_ms", [200, 600])
def test_second_process_of_a_broker_is_refused_and_gives_no_place_up(
    cluster, monkeypatch, session_ms
):
    """It has no logs, and took the running broker's leaderships away, a minute later.

    A session may last longer than the patience of a start, or not as long.
    """
    write_state_again(cluster)
    monkeypatch.setattr(lost_logs, "PATIENCE_MS", 400)
    monkeypatch.setattr(lost_logs, "EXPIRY_SLACK_MS", 0)
    broker = cluster.broker(1)
    second = SimpleNamespace(
        runtime=broker.runtime,
        config=broker.config.replace(zookeeper_session_timeout_ms=session_ms),
        broker_id=1,
        registry=broker.registry,
        dynamic_config=broker.dynamic_config,
        log_manager=LogManager(broker.runtime, broker.config, broker.dynamic_config.topic_config),
    )

    async def states():
        return (await TopicReader(broker.registry).read_states([T]))[T].state

    before = cluster.run(states())
    with pytest.raises(KafkaError, match="a broker of this id is registered already"):
        cluster.run(lost_logs.LostLogs(second).wait())

    assert cluster.run(states()) == before
    assert 1 in before.isr
