"""The core of a consumer: what wakes it, what it does in a poll besides fetching, how it ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import weakref

import pytest
from consumer_world import ConsumerWorld
from mock_kafka import Later

from ottla.clients.committed_offsets import NO_MEMBERSHIP
from ottla.clients.consumer.consumer_core import WakeupError
from ottla.clients.consumer.subscription_state import RebalanceEvent, RebalanceListener
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.fetch import FetchRequest
from ottla.protocol.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from ottla.protocol.list_offsets import ListOffsetsRequest
from ottla.protocol.metadata import MetadataRequest
from ottla.protocol.offsets import OffsetCommitRequest, OffsetFetchRequest
from ottla.structs import TopicPartition

FIRST, SECOND = TopicPartition("pages", 0), TopicPartition("pages", 1)
HOUR_MS = 3_600_000
REBALANCE = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


@pytest.fixture
def member(runtime, cluster) -> ConsumerWorld:
    """The only member of a group, which has both partitions and nothing more to do."""
    return joined(ConsumerWorld(runtime, cluster, group_id="g", auto_commit_interval_ms=HOUR_MS))


def joined(world: ConsumerWorld) -> ConsumerWorld:
    world.subscribe()
    poll_until_settled(world)
    return world


def poll_until_settled(world: ConsumerWorld) -> None:
    for _ in range(20):
        world.poll(100)
        if world.core.is_settled:
            return
    raise AssertionError("there is always something left to do")


def elapsed(world: ConsumerWorld, call, *arguments) -> int:
    """How many milliseconds of virtual time a call takes."""
    began_ms = world.runtime.clock.monotonic_ms()
    call(*arguments)
    return world.runtime.clock.monotonic_ms() - began_ms


CALLS = {
    "subscribe": lambda core: core.subscribe(["orders"], None),
    "unsubscribe": lambda core: core.unsubscribe(),
    "seek": lambda core: core.seek(FIRST, 0),
    "reset": lambda core: core.reset([FIRST], -2),
    "wakeup": lambda core: core.wakeup(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_call_that_makes_work_ends_the_wait_for_records(member, call):
    """The poll under way does it, and the next one does not take records past it."""
    assert member.core.is_settled

    async def poll_and_call() -> object:
        poll = asyncio.ensure_future(member.core.poll(member.deadline(HOUR_MS)))
        await asyncio.sleep(0)
        waiting = call(member.core)
        if waiting is not None:
            await waiting
        seen = member.core.is_settled
        member.core.wakeup()
        with pytest.raises(WakeupError):
            await poll
        return seen

    assert member.run(poll_and_call()) is False


def test_assignment_by_hand_makes_work(runtime, cluster):
    """The new partition gets its position, although the other one has records all the time."""
    world = ConsumerWorld(runtime, cluster)
    world.assign(0)
    poll_until_settled(world)
    world.assign(0, 1)
    assert not world.core.is_settled
    poll_until_settled(world)

    assert world.core.subscriptions.has_all_positions


def test_member_is_not_settled_while_its_group_rebalances(member, cluster):
    """A poll that ends meanwhile leaves the rest of the rebalance to the next one."""
    cluster[0].on(HeartbeatRequest, REBALANCE, HeartbeatResponse())
    cluster[0].on(JoinGroupRequest, "hold")
    member.advance(3_000)
    member.poll(100)
    assert not member.core.is_settled
    held = cluster[0].held.pop()
    cluster[0].on(JoinGroupRequest, member.join)
    held.answer(member.join(held.request, 9))
    poll_until_settled(member)


def test_more_is_fetched_when_a_poll_returns_records(runtime, cluster):
    """Records of a poll are followed by a fetch without another poll."""
    world = ConsumerWorld(runtime, cluster)
    world.assign(0)
    for value in "abc":
        world.write(value)
    world.poll()
    before = len(cluster[0].sent(FetchRequest))
    for value in "defg":
        world.write(value)
        world.advance(1000)
    assert len(cluster[0].sent(FetchRequest)) > before
    waiting = len(cluster[0].sent(FetchRequest))
    world.poll()
    world.advance(1)

    assert len(cluster[0].sent(FetchRequest)) > waiting


def test_resumed_partition_is_fetched_at_once(runtime, cluster):
    """The fetch does not wait for the next poll."""
    world = ConsumerWorld(runtime, cluster)
    world.assign(0)
    world.poll(100)
    world.call(world.core.pause, [FIRST], True)
    world.advance(2000)
    before = len(cluster[0].sent(FetchRequest))
    world.advance(2000)
    assert len(cluster[0].sent(FetchRequest)) == before
    world.call(world.core.pause, [FIRST], False)
    world.advance(1)

    assert len(cluster[0].sent(FetchRequest)) == before + 1


@pytest.mark.parametrize("end", ["unsubscribe", "close"])
def test_position_that_is_looked_up_for_nothing_holds_up_nobody(runtime, cluster, end):
    """What is read next is looked up at once; and nothing goes on after the end."""
    world = ConsumerWorld(runtime, cluster)
    tasks = set(asyncio.all_tasks(runtime.scheduler.loop))
    world.write("b", partition=1)
    world.assign(0)
    cluster[0].on(ListOffsetsRequest, "hold", world.list_offsets)
    assert world.poll(100) == []
    if end == "close":
        world.run(world.core.close(world.deadline()))
        runtime.advance(100)
        assert not cluster[0].connections
        assert set(asyncio.all_tasks(runtime.scheduler.loop)) <= tasks
    else:
        world.run(world.core.unsubscribe())
        world.assign(1)
        assert world.values(1000) == ["b"]


def test_closed_consumer_asks_for_nothing(runtime, cluster):
    """Neither a fetch that was to be repeated nor old metadata bring it back."""
    tasks = set(asyncio.all_tasks(runtime.scheduler.loop))
    world = ConsumerWorld(runtime, cluster, group_id="g", retry_backoff_ms=1000)
    joined(world)
    cluster[0].on(FetchRequest, world.refuse_fetch(ErrorCode.OFFSET_NOT_AVAILABLE))
    world.poll(100)
    world.run(world.core.close(world.deadline()))
    runtime.advance(100)
    before = len(cluster[0].requests)
    runtime.advance(2 * HOUR_MS)

    assert len(cluster[0].requests) == before
    assert not cluster[0].connections
    assert set(asyncio.all_tasks(runtime.scheduler.loop)) <= tasks


@pytest.mark.parametrize("answers", [True, False])
def test_closed_consumer_is_let_go_of(runtime, cluster, caplog, answers):
    """No timer keeps it, and none finds it closed: whether a fetch is under way or was refused."""
    caplog.set_level(logging.ERROR)
    world = ConsumerWorld(runtime, cluster)
    refusal = world.refuse_fetch(ErrorCode.OFFSET_NOT_AVAILABLE)
    cluster[0].on(FetchRequest, refusal if answers else None)
    world.assign(0)
    world.poll(50)
    assert len(cluster[0].sent(FetchRequest)) == 1
    world.run(world.core.close(world.deadline()))
    core = world.core
    parts = [weakref.ref(each) for each in (core, core.client, core.metadata, core.fetcher)]
    del core, world.core
    runtime.advance(1)
    gc.collect()

    assert [part() for part in parts] == [None] * 4
    runtime.advance(1000)
    assert caplog.records == []


def test_lookup_whose_error_nobody_asks_for_is_no_noise(runtime, cluster, caplog):
    """The application closes its consumer before the next poll would raise."""
    caplog.set_level(logging.ERROR)
    world = ConsumerWorld(runtime, cluster, auto_offset_reset="none", group_id="g")
    world.assign(0)
    world.poll(0)
    world.advance(1000)
    world.run(world.core.close(world.deadline()))
    gc.collect()

    assert caplog.records == []


def test_group_metadata_are_those_of_the_last_poll(member, cluster):
    """A rebalance since then may have given the partitions to others."""
    first = member.core.group_metadata().membership
    assert (first.generation, first.member_id) == (1, "member-0")
    cluster[0].on(HeartbeatRequest, REBALANCE, HeartbeatResponse())
    member.advance(3_000)
    poll_until_settled(member)
    second = member.core.group_metadata().membership
    cluster[0].on(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
    member.advance(3_000)

    assert second.generation == 2
    assert member.core.coordinator.member.membership == NO_MEMBERSHIP
    assert member.core.group_metadata().membership == second


def test_group_metadata_before_the_first_poll_are_those_of_no_member(runtime, cluster):
    """Assigned partitions have them as well; without a group there are none."""
    world = ConsumerWorld(runtime, cluster, group_id="g")
    world.subscribe()
    assert world.core.group_metadata() == ("g", NO_MEMBERSHIP, {})
    other = ConsumerWorld(runtime, cluster, group_id="g")
    other.assign(0)
    other.poll(100)
    assert other.core.group_metadata() == ("g", NO_MEMBERSHIP, {})
    alone = ConsumerWorld(runtime, cluster)
    with pytest.raises(KafkaError, match=r"group\.id"):
        alone.core.group_metadata()


def test_automatic_commit_comes_after_each_interval(runtime, cluster):
    """The first poll commits nothing, and all polls of an interval are committed once."""
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 1000, "group_id": "g"}
    world = ConsumerWorld(runtime, cluster, **settings)
    world.assign(0)
    world.call(world.core.seek, FIRST, 0)
    commits = []
    for _ in range(8):
        world.poll(0)
        world.advance(250)
        commits.append(len(cluster[0].sent(OffsetCommitRequest)))

    assert commits == [0, 0, 0, 0, 1, 1, 1, 1]


def test_records_that_wait_do_not_keep_an_automatic_commit_away(runtime, cluster):
    """The interval makes work for the next poll."""
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 1000, "group_id": "g"}
    world = ConsumerWorld(runtime, cluster, **settings)
    world.assign(0)
    poll_until_settled(world)
    world.advance(1000)

    assert not world.core.is_settled


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_reader_of_committed_records_asks_for_offsets_that_stay(runtime, cluster, level):
    """Offsets in an open transaction are waited for (KIP-447), when looked up and when asked."""
    world = ConsumerWorld(runtime, cluster, group_id="g", isolation_level=level)
    world.committed[FIRST] = 3
    found = world.run(world.core.committed([FIRST, SECOND], world.deadline()))
    world.assign(0)
    world.poll(100)
    requests = cluster[0].sent(OffsetFetchRequest)

    assert {partition: each.offset for partition, each in found.items()} == {FIRST: 3}
    assert [each.require_stable for each in requests] == [level == "read_committed"] * 2


def test_committed_offsets_that_may_not_be_seen_are_an_error(runtime, cluster):
    """It is raised; nothing is asked again."""
    world = ConsumerWorld(runtime, cluster, group_id="g")

    def refuse(request, version):
        response = world.fetch_offsets(request, version)
        response.groups[0].error_code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return response

    cluster[0].on(OffsetFetchRequest, refuse)
    with pytest.raises(KafkaError) as caught:
        world.run(world.core.committed([FIRST], world.deadline()))

    assert caught.value.error is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert len(cluster[0].sent(OffsetFetchRequest)) == 1


@pytest.mark.parametrize(
    ("level", "lag"), [("read_uncommitted", 2), ("read_committed", 1)], ids=str
)
def test_lag_is_not_known_without_a_position(runtime, cluster, level, lag):
    """Before the first fetch the lag is not known either; it ends at the last readable record."""
    world = ConsumerWorld(runtime, cluster, isolation_level=level, max_poll_records=1)
    world.write("a", "b", "c")

    def fetch(request, version):
        response = world.fetched(request, {})
        response.responses[0].partitions[0].last_stable_offset = 2
        return Later(10, response)

    cluster[0].on(FetchRequest, fetch)
    world.assign(0)
    lags = [world.core.current_lag(FIRST)]
    world.poll()
    lags.append(world.core.current_lag(FIRST))
    world.call(world.core.reset, [FIRST], -1)
    lags.append(world.core.current_lag(FIRST))

    assert lags == [None, lag, None]


def test_position_is_looked_up_until_the_time_is_over(runtime, cluster):
    """Then the error names the partition."""
    world = ConsumerWorld(runtime, cluster)
    world.assign(0)
    assert world.run(world.core.position(FIRST, world.deadline())) == 0
    cluster[0].on(ListOffsetsRequest, None)
    world.call(world.core.reset, [FIRST], -1)
    with pytest.raises(KafkaError, match=r"the position of .*pages.* was not found"):
        world.run(world.core.position(FIRST, world.deadline(500)))


def test_pattern_is_matched_with_fresh_metadata_at_once(runtime, cluster):
    """Topics of the brokers' own are left out, unless they are wanted."""
    cluster.topics |= {"pages-2": 1, "other": 1, "__pages": 1}

    def metadata(request, version):
        response = cluster.metadata(request)
        for topic in response.topics:
            topic.is_internal = topic.name.startswith("__")
        return response

    cluster[0].on(MetadataRequest, metadata)
    found = []
    for hides in (True, False):
        world = ConsumerWorld(runtime, cluster, group_id="g", exclude_internal_topics=hides)
        pattern = re.compile(r".*pages.*")
        world.run(world.core.subscribe_pattern(pattern, None, world.deadline()))
        found.append(world.core.subscriptions.topics)
        assert not world.core.is_settled
    alone = ConsumerWorld(runtime, cluster)
    with pytest.raises(KafkaError, match=r"group\.id"):
        alone.run(alone.core.subscribe_pattern(pattern, None, alone.deadline()))

    assert found == [{"pages", "pages-2"}, {"pages", "pages-2", "__pages"}]


def test_pattern_that_cannot_be_matched_in_time_is_an_error(runtime, cluster):
    """There are no metadata to find the topics in."""
    world = ConsumerWorld(runtime, cluster, group_id="g")
    cluster[0].on(MetadataRequest, None)
    with pytest.raises(KafkaError, match="no metadata"):
        world.run(world.core.subscribe_pattern(re.compile("p.*"), None, world.deadline()))


def test_metadata_of_a_subscription_are_asked_for_before_the_group_has_assigned_anything(
    runtime, cluster
):
    """The metadata are there when the group assigns; a partition gets fetches with its leader."""
    cluster.leaders["pages", 0] = -1
    world = ConsumerWorld(runtime, cluster, group_id="g")
    cluster[0].on(JoinGroupRequest, "hold", world.join)
    world.subscribe()
    world.poll(100)
    assert [t.name for t in cluster[0].sent(MetadataRequest)[-1].topics] == ["pages"]
    world.run(world.core.unsubscribe())
    world.assign(0)
    world.call(world.core.seek, FIRST, 0)
    world.poll(100)
    cluster.leaders["pages", 0] = 0
    cluster.epochs["pages", 0] = 1
    world.advance(1000)

    assert cluster[0].sent(FetchRequest)


def test_member_that_polls_in_vain_is_not_thrown_out(runtime, cluster):
    """Each poll counts, whether there are records or not."""
    world = joined(ConsumerWorld(runtime, cluster, group_id="g", max_poll_interval_ms=10_000))
    for _ in range(4):
        world.poll(4000)

    assert cluster[0].sent(LeaveGroupRequest) == []


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_rebalance_commits_what_was_read(runtime, cluster, strategy):
    """Before the partitions may go to others."""
    settings = {"enable_auto_commit": True, "partition_assignment_strategy": strategy}
    world = ConsumerWorld(runtime, cluster, group_id="g", **settings)
    world.write("a", "b")
    joined(world)
    cluster[0].on(HeartbeatRequest, REBALANCE, HeartbeatResponse())
    world.advance(3_000)
    assert world.committed == {}
    poll_until_settled(world)

    assert world.committed == {FIRST: 2, SECOND: 0}


@pytest.mark.parametrize("by_pattern", [False, True])
def test_other_subscription_takes_effect_without_other_metadata(runtime, cluster, by_pattern):
    """The member joins again with the next poll."""
    cluster.topics["orders"] = 1
    world = ConsumerWorld(runtime, cluster, group_id="g")
    if by_pattern:
        first, second = (
            world.core.subscribe_pattern(re.compile(name), None, world.deadline())
            for name in ("pages|orders", "pages")
        )
        world.run(first)
    else:
        world.call(world.core.subscribe, ["pages", "orders"], None)
    poll_until_settled(world)
    joins = len(cluster[0].sent(JoinGroupRequest))
    if by_pattern:
        world.run(second)
    else:
        cluster[0].on(MetadataRequest, None)
        world.call(world.core.subscribe, ["pages"], None)
    poll_until_settled(world)

    assert len(cluster[0].sent(JoinGroupRequest)) == joins + 1


def test_poll_begins_to_join_and_returns_records_in_one_go(runtime, cluster):
    """It is woken at each step, with a listener and without."""
    for listener in (None, RebalanceListener()):
        world = ConsumerWorld(runtime, cluster, group_id="g", auto_commit_interval_ms=HOUR_MS)
        world.write("a")
        world.subscribe(listener)
        assert elapsed(world, world.poll, 60_000) < 100
        world.run(world.core.close(world.deadline()))


def test_event_is_returned_until_it_is_acknowledged(runtime, cluster):
    """The application may call poll again before it was told, and gets nothing else."""
    world = ConsumerWorld(runtime, cluster, group_id="g")
    world.write("a")
    world.subscribe(RebalanceListener())
    events = [world.run(world.core.poll(world.deadline())) for _ in range(2)]

    assert events[0] == events[1]
    assert isinstance(events[0], RebalanceEvent)
    world.call(world.core.acknowledge)
    assert [record.value for record in world.poll()] == [b"a"]


def test_sharing_of_a_new_partition_comes_with_its_metadata(runtime, cluster):
    """A topic that grows makes its group rebalance."""
    world = joined(ConsumerWorld(runtime, cluster, group_id="g"))
    world.logs[2] = []
    cluster.topics["pages"] = 3
    world.run(world.core.metadata.update(world.deadline()))
    poll_until_settled(world)

    assert [each.partition for each in world.core.subscriptions.assigned] == [0, 1, 2]
    assert len(cluster[0].sent(SyncGroupRequest)) == 2


def test_metrics_count_records_and_name_partitions_whose_lag_is_known(runtime, cluster):
    """Records that are returned as they are stored count as well."""
    world = ConsumerWorld(runtime, cluster)
    world.write("a", "b", "c")
    cluster.leaders["pages", 1] = -1
    world.assign(0, 1)
    world.poll()
    group = "consumer-fetch-manager-metrics"
    metrics = world.core.read_metrics()
    assert metrics[group]["records-consumed-total"] == 3
    assert metrics[group]["bytes-consumed-total"] == len(world.logs[0][0])
    assert metrics[f"{group}.pages-0"] == {"records-lag": 0}
    assert f"{group}.pages-1" not in metrics
    world.write("d", "e")
    collect = world.core.fetcher.collect_batches
    (found,) = world.run(world.core.poll_for(collect, world.deadline()))

    assert (found.topic_partition, found.position, len(found.batches)) == (FIRST, 3, 1)
    assert world.core.read_metrics()[group]["records-consumed-total"] == 5


def test_partition_without_a_position_is_not_committed(runtime, cluster):
    """Nothing was read of it yet."""
    world = ConsumerWorld(runtime, cluster, group_id="g")
    world.assign(0, 1)
    world.call(world.core.seek, FIRST, 3)

    assert {p: each.offset for p, each in world.call(world.core.positions).items()} == {FIRST: 3}
