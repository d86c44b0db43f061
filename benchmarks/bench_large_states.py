"""Large states: the longest step of the broker's loop while they are read, written or given up.

Each is made of requests that are allowed one by one: a million committed offsets, two hundred
thousand producers, a hundred thousand groups. The number is the processor time of the
longest step, which other work on the machine does not change; the promise is 50 ms.
"""

from __future__ import annotations

import asyncio
import gc
import time
import urllib.request
from asyncio import events
from collections.abc import Coroutine
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from ottla.coordinator.group.member_metadata import ClientContext
from ottla.coordinator.group.offsets import CommittedOffset
from ottla.extensions.measures.measures import Measures
from ottla.protocol.consumer_group import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from ottla.record.batch_builder import build_batch
from ottla.record.record_batch import RecordBatch
from ottla.runtime import FullCollections
from ottla.server.parts import Parts
from ottla.structs import OFFSETS_TOPIC, LeaderAndIsr, PartitionState, TopicPartition
from ottla.testing import InProcessBroker, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROMISE_MS = 50
NOW_MS = int(time.time() * 1000)
GROUPS, OFFSETS_EACH = 200, 5_000
STORED_GROUPS, STORED_EACH = 100, 2_000
PRODUCERS = 200_000
TOPICS = 50
LARGE_GROUP = 500_000
TEN_TOPICS = {f"t{number}" for number in range(10)}


@contextmanager
def steps_measured(found: list[float]) -> Iterator[None]:
    """The processor time of each step of a loop, in ms, as long as this lasts."""
    run = events.Handle._run

    def measured(handle: Any) -> None:
        began = time.thread_time()
        run(handle)
        found.append((time.thread_time() - began) * 1000)

    events.Handle._run = measured
    try:
        yield
    finally:
        events.Handle._run = run


def show(name: str, steps: list[float]) -> None:
    print(
        f"{name:58} longest step {max(steps, default=0):7.1f} ms (promise {PROMISE_MS})  "
        f"{len(steps):6} steps, {sum(steps) / 1000:6.2f} s",
        flush=True,
    )


def measure(name: str, broker: InProcessBroker, work: Callable[[], Any]) -> None:
    """Do it on the broker's loop, and all that follows of it."""

    async def run() -> None:
        result = work()
        if isinstance(result, Coroutine):
            await result

    steps: list[float] = []
    with steps_measured(steps):
        broker.run(run())
        broker.run(settled(broker.broker))
    show(name, steps)


async def settled(broker: Parts) -> None:
    """No work waits for its turn."""
    quiet = 0
    while quiet < 20:
        await asyncio.sleep(0.005)
        is_busy = not broker.runtime.slices.is_idle or broker.coordinators.groups.manager.is_loading
        quiet = 0 if is_busy else quiet + 1


async def coordinator_found(broker: Parts) -> None:
    """The topic of offsets is made."""
    await broker.create_topic(OFFSETS_TOPIC)


async def topics_known(broker: Parts, prefix: str, topics: int, partitions: int) -> None:
    """As if the controller had told of so many topics; this broker leads none of them."""
    brokers, state = list(broker.cache.brokers.values()), LeaderAndIsr(1, 0, (1,))
    for number in range(topics):
        name, topic_id = f"{prefix}{number}", UUID(int=hash((prefix, number)) % 2**100 + 1)
        broker.cache.update(
            [
                PartitionState(TopicPartition(name, each), topic_id, 1, state, (1,))
                for each in range(partitions)
            ],
            brokers,
        )


def committed(count: int) -> dict[TopicPartition, CommittedOffset]:
    return {
        TopicPartition(f"t{n % TOPICS}", n // TOPICS): CommittedOffset(
            n, commit_timestamp_ms=NOW_MS
        )
        for n in range(count)
    }


async def put_offsets(broker: Parts) -> None:
    """A million of them, which the log does not have: its replay is measured with fewer."""
    for number in range(GROUPS):
        group = broker.coordinators.groups.manager.get_or_create_group(f"m{number}")
        for place, (partition, value) in enumerate(committed(OFFSETS_EACH).items()):
            group.offsets.put(place, partition, value)
        await asyncio.sleep(0)


async def put_groups(broker: Parts) -> None:
    for number in range(100_000):
        group = broker.coordinators.groups.manager.get_or_create_group(f"s{number}")
        group.offsets.put(
            0, TopicPartition("t0", 0), CommittedOffset(0, commit_timestamp_ms=NOW_MS)
        )


async def put_large_group(broker: Parts, count: int) -> None:
    group = broker.coordinators.groups.manager.get_or_create_group("one")
    for place in range(count):
        partition = TopicPartition(f"t{place % TOPICS}", place // TOPICS)
        group.offsets.put(place, partition, CommittedOffset(place, commit_timestamp_ms=NOW_MS))


async def store_offsets(broker: Parts) -> None:
    manager = broker.coordinators.groups.manager
    for number in range(STORED_GROUPS):
        group = manager.get_or_create_group(f"g{number}")
        manager.store_offsets(group, committed(STORED_EACH), lambda error: None)
        await asyncio.sleep(0)


def offsets(broker: InProcessBroker) -> None:
    """Rows of committed offsets."""
    groups = broker.broker.coordinators.groups

    def expire() -> None:
        broker.broker.runtime.begin(groups.expire_offsets(), "expiry")

    broker.run(store_offsets(broker.broker))
    measure("200,000 offsets are unloaded", broker, lambda: groups.on_resignation(0))
    measure("200,000 offsets are loaded", broker, lambda: groups.on_election(0))
    broker.run(put_offsets(broker.broker))
    measure("1,200,000 offsets: expiry is looked for", broker, expire)
    drop = groups.manager.drop_topics
    measure("1,200,000 offsets: a topic is deleted", broker, lambda: drop({"none"}))
    measure("1,200,000 offsets: topics are compared", broker, groups.manager.drop_deleted_topics)
    measure("1,200,000 offsets are unloaded", broker, lambda: groups.on_resignation(0))
    broker.run(put_groups(broker.broker))
    measure("100,000 groups are unloaded", broker, lambda: groups.on_resignation(0))
    measure("200,000 offsets are loaded again", broker, lambda: groups.on_election(0))


def large_group(broker: InProcessBroker) -> None:
    """Rows of one group with half a million offsets; then it is deleted."""
    manager = broker.broker.coordinators.groups.manager
    name = f"a group with {LARGE_GROUP:,} offsets"

    def expire() -> None:
        broker.broker.runtime.begin(broker.broker.coordinators.groups.expire_offsets(), "expiry")

    broker.run(put_large_group(broker.broker, LARGE_GROUP))
    measure(f"{name}: expiry is looked for", broker, expire)
    measure(f"{name}: ten topics are deleted", broker, lambda: manager.drop_topics(TEN_TOPICS))
    group = manager.get_or_create_group("one")
    measure(f"{name} is deleted", broker, lambda: manager.delete_group(group, lambda error: None))


def beat(broker: InProcessBroker, name: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
    """A row of one heartbeat of a member of a consumer group, and its answer."""
    client, request = ClientContext("app", "/10.0.0.1", 1), ConsumerGroupHeartbeatRequest(**fields)
    found: list[ConsumerGroupHeartbeatResponse] = []
    groups = broker.broker.coordinators.groups
    measure(name, broker, lambda: groups.consumer_group_heartbeat(request, client, found.append))
    wait_until(lambda: found, "an answer")
    return found[0]


def large_members(broker: InProcessBroker) -> None:
    """Rows of two members of the consumer protocol (KIP-848) that share 100,000 partitions."""
    names = [f"t{number}" for number in range(TOPICS)]
    joining = {
        "group_id": "members",
        "rebalance_timeout_ms": 300_000,
        "subscribed_topic_names": names,
        "topic_partitions": [],
    }
    epoch = beat(broker, "a member gets 100,000 partitions", member_id="a", **joining).member_epoch
    beat(broker, "another one joins, and has to wait", member_id="b", **joining)
    known = {"group_id": "members", "member_id": "a", "member_epoch": epoch}
    answer = beat(broker, "the first one is told to give half of them up", **known)
    assert answer.assignment is not None
    left = [
        ConsumerGroupHeartbeatRequestTopicPartitions(
            topic_id=each.topic_id, partitions=each.partitions
        )
        for each in answer.assignment.topic_partitions
    ]
    beat(broker, "it has given them up", topic_partitions=left, **known)
    groups = broker.broker.coordinators.groups
    groups.on_resignation(0)
    measure("their group is loaded", broker, lambda: groups.on_election(0))


async def page_read(url: str) -> None:
    await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=60).read())


def metrics(broker: InProcessBroker, url: str) -> None:
    """Rows of what is shown of offsets whose ends another broker has not told."""
    measure("GET /metrics, 200,000 offsets without known ends", broker, lambda: page_read(url))
    broker.run(put_large_group(broker.broker, 100_000))
    measure("GET /metrics, a group with 100,000 offsets", broker, lambda: page_read(url))


async def written(broker: Parts) -> None:
    """The log has a record."""
    partition = broker.replica_manager.partition(TopicPartition("records", 0))
    batch = build_batch([(NOW_MS, b"k", b"v", ())])
    partition.append_records_to_leader(memoryview(batch), 1, NOW_MS)


def producers(broker: InProcessBroker) -> None:
    """Rows of a log with many idempotent producers."""
    broker.run(written(broker.broker))
    log = broker.broker.replica_manager.partition(TopicPartition("records", 0)).log
    state = log.producer_state_manager

    async def fill() -> None:
        for each in range(PRODUCERS):
            numbers = {"producer_id": each, "producer_epoch": 0, "base_sequence": 0}
            batch = RecordBatch(build_batch([(NOW_MS, None, b"", ())], **numbers))
            state.append(batch, each, NOW_MS)

    broker.run(fill())
    name = f"{PRODUCERS:,} producers"
    measure(f"{name}: a segment is rolled", broker, log.roller.roll)
    logs = broker.broker.log_manager
    begin = broker.broker.runtime.begin
    work = logs.remove_expired_producers
    measure(f"{name}: expiry is looked for", broker, lambda: begin(work(), "expiry"))
    for entry in state.producers.values():
        entry.seen_ms = -state.expiration_ms
    measure(f"{name} expire", broker, lambda: begin(work(), "expiry"))


def main() -> None:
    with InProcessBroker(metrics_listener="http://127.0.0.1:0") as broker:
        gc.collect()
        gc.freeze()
        gc.callbacks.append(FullCollections().on_collection)  # as in a process of a broker
        broker.create_topic("records")
        broker.run(coordinator_found(broker.broker))
        broker.run(topics_known(broker.broker, "t", TOPICS, 2_000))
        wait_until(lambda: not broker.broker.coordinators.groups.availability("g"), "groups")
        offsets(broker)
        listener = broker.broker.find(Measures).listener
        metrics(broker, f"{listener.end_point}/metrics")
        large_members(broker)
        producers(broker)
        large_group(broker)


if __name__ == "__main__":
    main()
