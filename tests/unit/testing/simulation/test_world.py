"""The simulated world: what a seed decides, what a fault does, and what clients are promised."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.registry.tree import NoNodeError, SessionState
from ottla.replication.replica_manager import DelayedFetch
from ottla.structs import TopicPartition
from ottla.testing.simulation.cluster import SimulatedCluster
from ottla.testing.simulation.copier import Copier
from ottla.testing.simulation.group_ledger import GROUP, GroupLedger, GroupReader
from ottla.testing.simulation.group_story import count_removals
from ottla.testing.simulation.invariants import History, check_in_the_end
from ottla.testing.simulation.workload import Reader, TopicMaker, Writer
from ottla.testing.simulation.world import SimulatedProcess, World
from ottla.testing.simulation.zookeeper import HOST, SimulatedRegistry, SimulatedZooKeeper

ONE_BROKER: dict[str, str | int] = {
    "min_insync_replicas": 1,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
}


@pytest.fixture
def world() -> Iterator[World]:
    """A world with the seed 1, which is taken apart in the end."""
    world = World(1)
    yield world
    world.close()


def write_through_a_crash(world: World) -> tuple[SimulatedCluster, History]:
    """One broker, one writer and one reader; the broker is killed and comes back."""
    cluster, history = SimulatedCluster(world, 1, **ONE_BROKER), History()
    make_topic(world, cluster, history, "story")
    writer = Writer(cluster, "writer0", history)
    writer.process.spawn(writer.run("story", 100), "write")
    reader = Reader(cluster, "reader", history)
    reader.process.spawn(reader.run([TopicPartition("story", 0)]), "read")
    world.run(3_000)
    cluster.hosts[0].kill()
    world.run(2_000)
    cluster.hosts[0].start()
    world.run(15_000)
    writer.is_told_to_stop = True
    assert world.run_until(lambda: writer.is_done, 60_000)
    return cluster, history


def make_topic(world: World, cluster: SimulatedCluster, history: History, topic: str) -> None:
    maker = TopicMaker(cluster, "maker", history)
    maker.process.spawn(maker.create(topic, 1, 1), "create the topic")
    assert world.run_until(lambda: maker.is_done, 60_000)


def test_a_broker_that_was_killed_keeps_every_record_and_its_order(world: World) -> None:
    """Everything sent is acknowledged once, read once, and in the log at the promised offset."""
    cluster, history = write_through_a_crash(world)
    partition = TopicPartition("story", 0)
    assert len(history.acknowledged[partition]) == len(history.sent[partition]) > 50
    assert history.seen[partition]
    assert history.violations == []
    assert check_in_the_end(cluster, history, "story") == []


def test_the_same_seed_gives_the_same_history() -> None:
    """Two worlds with one seed do the same in as many steps; another seed does something else."""
    outcomes = []
    for seed in (7, 7, 8):
        world = World(seed)
        _, history = write_through_a_crash(world)
        outcomes.append((world.step_count, history.acknowledged))
        world.close()
    assert outcomes[0] == outcomes[1] != outcomes[2]


def test_a_fetch_that_is_never_answered_is_noticed(world: World, monkeypatch) -> None:
    """Not as long as waits just end without a record."""
    cluster, history = SimulatedCluster(world, 1, **ONE_BROKER), History()
    make_topic(world, cluster, history, "story")
    reader = Reader(cluster, "reader", history)
    reader.process.spawn(reader.run([TopicPartition("story", 0)]), "read")
    world.run(20_000)
    assert cluster.hosts[0].forgotten == []

    monkeypatch.setattr(DelayedFetch, "on_complete", lambda self: None)
    world.run(20_000)
    assert cluster.hosts[0].forgotten


def test_copies_in_transactions_are_made_once_though_a_copier_dies(world: World) -> None:
    """Two copiers in a group, one killed at work: readers of committed records see each once."""
    cluster, history = SimulatedCluster(world, 1, **ONE_BROKER), History()
    for topic in ("story", "copy"):
        make_topic(world, cluster, history, topic)
    writer = Writer(cluster, "writer0", history)
    writer.process.spawn(writer.run("story", 200), "write")
    ledger = GroupLedger(history)
    copiers = [Copier(cluster, f"copier{n}", ledger, "story", "copy") for n in range(2)]
    for copier in copiers:
        copier.process.spawn(copier.run(), "copy")
    reader = Reader(cluster, "reader", history, "read_committed")
    copy = TopicPartition("copy", 0)
    reader.process.spawn(reader.run([copy]), "read")
    world.run(6_000)
    next(copier for copier in copiers if copier.committed_count).process.kill()
    world.run(2_000)
    writer.is_told_to_stop = True
    assert world.run_until(lambda: writer.is_done, 60_000)
    sent = history.sent[TopicPartition("story", 0)]
    assert world.run_until(lambda: len(history.seen.get(copy, {})) >= len(sent), 60_000)
    assert [value for _, value in sorted(history.seen[copy].items())] == sent
    assert history.violations == []


def test_removed_group_is_known_by_its_log(world: World) -> None:
    """One that all have left and that has no offsets; not one that goes on in the new protocol."""
    period_ms = 60_000
    settings = {**ONE_BROKER, "offsets_retention_check_interval_ms": period_ms}
    cluster, history = SimulatedCluster(world, 1, **settings), History()
    make_topic(world, cluster, history, "story")
    ledger = GroupLedger(history)

    def read_for_a_while(protocol: str) -> None:
        member = GroupReader(cluster, "member", ledger, "story", protocol)
        member.process.spawn(member.run(), "read in a group")
        world.run(5_000)
        member.is_told_to_stop = True
        assert world.run_until(lambda: member.is_done, 60_000)

    for protocol in ("classic", "consumer"):
        read_for_a_while(protocol)
        assert count_removals(cluster, GROUP) == 0
    world.run(period_ms)
    assert count_removals(cluster, GROUP) == 1

    read_for_a_while("classic")
    world.run(period_ms)
    assert count_removals(cluster, GROUP) == 2


def test_a_cut_link_holds_what_is_sent_until_it_is_healed(world: World) -> None:
    """What is sent one way over a cut link arrives, in order, after it was healed."""
    zookeeper = SimulatedZooKeeper(world)
    client = SimulatedProcess(world, "client")
    registry = SimulatedRegistry(client, 60_000)
    opened = client.spawn(registry.start(), "open")
    assert world.run_until(opened.done, 1_000)
    world.network.cut("client", HOST)
    created = [client.spawn(registry.create(f"/{n}", b""), "create") for n in range(3)]
    world.run(2_000)
    assert not any(task.done() for task in created)
    world.network.heal("client", HOST)
    assert world.run_until(lambda: all(task.done() for task in created), 1_000)
    assert [zookeeper.tree.find(f"/{n}").stat().created_id for n in range(3)] == [1, 2, 3]


def test_a_session_that_is_not_heard_of_expires_with_its_ephemeral_nodes(world: World) -> None:
    """The server ends the session of a client that is cut off, which hears of it afterwards."""
    zookeeper = SimulatedZooKeeper(world)
    client = SimulatedProcess(world, "client")
    registry = SimulatedRegistry(client, 3_000)
    states: list[SessionState] = []
    registry.watch_session(states.append)

    async def register() -> None:
        await registry.start()
        await registry.create("/here", b"", ephemeral=True)

    registered = client.spawn(register(), "register")
    assert world.run_until(registered.done, 1_000)
    world.network.cut("client", HOST)
    world.run(8_000)
    with pytest.raises(NoNodeError):
        zookeeper.tree.find("/here")
    assert SessionState.EXPIRED not in states
    world.network.heal("client", HOST)
    assert world.run_until(lambda: SessionState.RENEWED in states, 30_000)
    assert states == [SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.RENEWED]


def test_a_paused_process_does_late_what_it_would_have_done(world: World) -> None:
    """Timers of a paused process run when it goes on, and not before."""
    process = SimulatedProcess(world, "client")
    rang_ms: list[int] = []
    process.scheduler.call_later(100, lambda: rang_ms.append(world.now_ms))
    process.pause()
    world.run(500)
    assert rang_ms == []
    process.resume()
    world.run(0)
    assert rang_ms == [500]
