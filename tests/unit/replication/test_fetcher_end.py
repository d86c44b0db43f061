"""A fetcher's beginning and end: when it looks again, and that nothing of it is left."""

from __future__ import annotations

from replica_world import T0

from ottla.errors import ErrorCode, KafkaError
from ottla.replication.fetcher import TOUCH_ALL_MS
from ottla.replication.follower_partition import FollowerPartition
from ottla.structs import TopicPartition

T1 = TopicPartition("t", 1)


def the_fetcher(world, broker_id=2):
    (fetcher,) = world.brokers[broker_id].manager.fetchers._fetchers.values()
    return fetcher


def test_partition_that_comes_to_an_idle_fetcher_is_copied_at_once(world):
    """It waits for news, not for a timer."""
    fetcher = the_fetcher(world)
    follower = fetcher.followers[T0]
    fetcher.remove(T0)
    world.advance(2_000)
    world.append(1, b"a", acks=1)
    asked = fetcher.copied.requests
    fetcher.add(type(follower)(follower.partition, follower._log_manager))
    world.run()

    assert fetcher.copied.requests > asked
    assert world.values(2) == [(0, b"a")]


def test_fetcher_that_waits_out_an_error_begins_with_what_is_new(world):
    """A new partition does not wait for the backoff of others."""
    world.cut_off(2)
    world.advance(20_000)  # the backoff is at its longest
    world.heal()
    world.append(1, b"a", acks=1)
    world.create(topic_partition=T1)
    world.run()

    assert world.values(2) == [(0, b"a")]


def test_closed_fetcher_leaves_its_logs_and_its_connection(world):
    """What is on its way is not taken; the coroutine ends."""
    fetcher = the_fetcher(world)
    follower, task = fetcher.followers[T0], fetcher._task
    (connection,) = world.brokers[2].connections
    is_current = follower.is_current
    fetcher.close()
    world.run()

    assert is_current
    assert not follower.is_current
    assert fetcher.followers == {}
    assert task.done()
    assert connection.open == []


def test_end_of_all_fetchers_forgets_them(world):
    """What is added later gets a fetcher of its own."""
    fetchers = world.brokers[2].manager.fetchers
    fetcher = the_fetcher(world)
    fetchers.shutdown()
    world.run()

    assert len(fetchers) == 0
    assert fetcher._task.done()
    fetchers.remove(T0)  # it has no place any more
    fetchers.on_flushed(T0)
    fetchers.add(world.brokers[2].manager.partition(T0), world.node(1), fetcher.cluster)
    world.append(1, b"a", acks=1)
    world.advance(1_000)
    assert world.values(2) == [(0, b"a")]


def test_partitions_of_a_leader_at_another_address_go_with_it(world):
    """Those that are not named again, too: they would ask the old address for ever."""
    world.create(topic_partition=T1)
    fetchers = world.brokers[2].manager.fetchers
    older, cluster = the_fetcher(world), the_fetcher(world).cluster
    moved = world.node(1)._replace(port=9999)
    fetchers.add(world.brokers[2].manager.partition(T1), moved, cluster)
    world.run()
    followed = {
        topic_partition: fetcher.leader
        for fetcher in fetchers._fetchers.values()
        for topic_partition in fetcher.followers
    }

    assert followed == {T0: moved, T1: moved}
    assert older._task.done()


def test_follower_tells_its_readers_how_far_is_committed(world):
    """A reader of the nearest replica waits at a follower."""
    told: list[TopicPartition] = []
    fetcher = the_fetcher(world)
    fetcher._on_progress = told.append
    world.append(1, b"a")
    world.advance(1_000)

    assert T0 in told
    assert world.brokers[2].log().high_watermark == 1


def test_partition_that_sits_out_is_logged_with_its_reason(world, caplog, monkeypatch):
    """Once, also where the reason came up while it was asked for the end of an epoch."""
    caplog.set_level("INFO", "ottla.replication.fetcher")
    fetcher = the_fetcher(world)
    fetcher._delay([fetcher.followers[T0]], "a reason")
    fetcher._log_who_sits_out()
    fetcher._log_who_sits_out()

    assert caplog.text.count("t-0 sits out for") == 1
    assert "a reason" in caplog.text


def test_change_without_a_signal_is_noticed_after_a_while(world):
    """A log whose retention has moved its start is named to the leader again."""
    fetcher = the_fetcher(world)
    world.append(1, b"a", b"b")
    world.advance(1_000)
    log = world.brokers[2].log()
    log.maybe_increment_log_start_offset(1)
    world.advance(2 * TOUCH_ALL_MS)

    assert fetcher._wanted[T0].log_start_offset == 1
    leadership = world.brokers[1].manager.partition(T0).leadership
    assert leadership.follower(2, True).log_start_offset == 1


def test_only_what_is_throttled_counts_against_the_rate(world, core_source):
    """No partition is, where no setting says so."""
    fetcher = the_fetcher(world)
    counted: list[int] = []
    fetcher._quota.record = counted.append
    world.append(1, b"a")
    world.advance(1_000)

    assert world.values(2) == [(0, b"a")]
    assert counted == []


def test_what_was_copied_from_a_leader_is_counted_over_its_fetchers(world):
    """A fetcher that ends and comes again does not set the metrics back."""
    fetchers = world.brokers[2].manager.fetchers
    (copied,) = fetchers.copied.values()
    before = copied.requests
    world.elect(2)
    assert len(fetchers) == 0
    world.elect(1)
    world.append(1, b"a")
    world.advance(1_000)

    assert before > 0
    assert list(fetchers.copied.values()) == [copied]
    assert copied.requests > before
    assert copied.bytes > 0


def test_state_of_the_same_epoch_does_not_disturb_the_copying(world):
    """The in-sync replicas have changed: the log has been compared with the leader's already."""
    fetchers = world.brokers[2].manager.fetchers
    follower = fetchers.follower(T0)
    state = world.states[T0]
    newer = state.leader_and_isr._replace(version=5, isr=(1, 2))
    world.states[T0] = state._replace(leader_and_isr=newer)
    world.tell()

    assert follower is not None
    assert fetchers.follower(T0) is follower
    assert fetchers.follower(T1) is None
    assert world.brokers[2].manager.partition(T0).version == 5


def test_partition_without_an_answer_is_logged_before_the_others_are_waited_for(
    world, caplog, monkeypatch, core_source
):
    """The line has the time at which it happened, and not that of the end of a long poll."""
    caplog.set_level("INFO", "ottla.replication.fetcher")

    async def refuse(self):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "planted")

    world.append(1, b"a", acks=1)
    world.create(topic_partition=T1)
    world.advance(1_000)
    monkeypatch.setattr(FollowerPartition, "truncate_without_epochs", refuse)
    world.elect(1, topic_partition=T1)

    assert "t-1 sits out" in caplog.text
