"""Fetching: what arrives, what is passed over, and what each error leads to."""

from __future__ import annotations

import pytest
from consumer_world import ConsumerWorld
from mock_kafka import HANG_UP, Later, MockBroker

from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.fetch import AbortedTransaction, FetchRequest, FetchResponse
from ottla.protocol.offsets import ListOffsetsRequest
from ottla.structs import TopicPartition

PARTITION = TopicPartition("pages", 0)


@pytest.fixture
def world(runtime, cluster) -> ConsumerWorld:
    """A consumer that reads partition 0 by hand, from the beginning."""
    world = ConsumerWorld(runtime, cluster)
    world.assign(0)
    return world


def position(world) -> int | None:
    return world.core.subscriptions.state(PARTITION).position


def test_poll_returns_what_the_log_has(world):
    """In order, over several batches; then nothing, in the time that was given."""
    world.write("a", "b")
    world.write("c")

    assert world.values() == ["a", "b", "c"]
    assert position(world) == 3
    before = world.runtime.clock.monotonic_ms()
    assert world.values(200) == []
    assert world.runtime.clock.monotonic_ms() - before >= 200


def test_poll_is_bounded_by_max_poll_records(runtime, cluster):
    """What is left over comes with the next poll, without another fetch."""
    world = ConsumerWorld(runtime, cluster, max_poll_records=2)
    world.write("a", "b", "c")
    world.assign(0)

    assert [world.values(), world.values()] == [["a", "b"], ["c"]]


def test_position_inside_a_batch_skips_what_is_before(world):
    """A broker sends whole batches; records before the position are not returned."""
    world.write("a", "b", "c")
    world.call(world.core.seek, PARTITION, 2)

    assert world.values() == ["c"]


def test_seek_forgets_what_was_fetched(world):
    """Records that were fetched from elsewhere are dropped."""
    world.write("a", "b", "c")
    world.poll()
    world.call(world.core.seek, PARTITION, 1)

    assert world.values() == ["b", "c"]


def test_broker_is_not_asked_while_two_fetches_wait(world, cluster):
    """Reading ahead is bounded."""
    world.write("a")
    world.poll()
    count = len(cluster[0].sent(FetchRequest))
    for value in "bcdef":
        world.write(value)
        world.advance(100)

    assert len(cluster[0].sent(FetchRequest)) <= count + 2


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    ],
)
def test_fetch_is_repeated_after_what_may_pass(world, cluster, code):
    """Quietly, with fresh metadata and after a pause."""
    cluster[0].on(FetchRequest, world.refuse_fetch(code), world.fetch)
    world.write("a")

    assert world.values(3000) == ["a"]


def test_fetch_is_repeated_after_a_lost_connection(world, cluster):
    """The broker is connected to again."""
    cluster[0].on(FetchRequest, HANG_UP, world.fetch)
    world.write("a")

    assert world.values(3000) == ["a"]


def test_error_that_stays_is_raised(world, cluster):
    """The text names the partition; the next poll tries again."""
    cluster[0].on(
        FetchRequest, world.refuse_fetch(ErrorCode.TOPIC_AUTHORIZATION_FAILED), world.fetch
    )
    world.write("a")

    with pytest.raises(KafkaError, match="fetch of pages-0: Not authorized"):
        world.poll()
    assert world.values() == ["a"]


def test_replica_whose_broker_is_not_known_yet_is_read_with_fresh_metadata(world, cluster):
    """The leader named it at once with each fetch, 200 times a second until metadata were old."""

    def prefer_broker_1(request, version):
        response = world.fetched(request, {})
        data = response.responses[0].partitions[0]
        data.records, data.preferred_read_replica = b"", 1
        return Later(5, response)

    cluster[0].on(FetchRequest, prefer_broker_1)
    world.write("a")
    assert world.values(2_000) == []
    assert len(cluster[0].sent(FetchRequest)) <= 21

    cluster.brokers[1] = MockBroker(cluster, 1)
    cluster[1].on(FetchRequest, world.fetch)
    cluster.leaders["pages", 0] = 0
    assert world.values(3_000) == ["a"]


def test_offset_out_of_range_begins_anew(world):
    """auto.offset.reset=earliest."""
    world.write("a")
    world.call(world.core.seek, PARTITION, 99)

    assert world.values(3000) == ["a"]


def test_corrupt_batch_is_raised_where_it_stands(world):
    """What is before it is returned first; a seek goes past it."""
    world.write("a")
    world.write("b")
    world.write("c")
    damaged = bytearray(world.logs[0][1])
    damaged[-2] ^= 1
    world.logs[0][1] = bytes(damaged)

    assert world.values() == ["a"]
    for _ in range(2):
        with pytest.raises(KafkaError, match="CORRUPT_MESSAGE: the batch at offset 1"):
            world.poll()
    world.call(world.core.seek, PARTITION, 2)
    assert world.values() == ["c"]


def test_damage_is_not_looked_for_without_check_crcs(runtime, cluster):
    """check.crcs=false trusts the bytes."""
    world = ConsumerWorld(runtime, cluster, check_crcs=False)
    world.write("ab")
    world.logs[0][0] = world.logs[0][0].replace(b"ab", b"xy")
    world.assign(0)

    assert world.values() == ["xy"]


def test_control_batches_are_passed_over(world):
    """Markers take up offsets, and are never returned."""
    world.write("marker", is_control=True, is_transactional=True, producer_id=1)
    world.write("a")

    assert [(record.offset, record.value) for record in world.poll()] == [(1, b"a")]


def abort_marker(world, producer_id: int) -> None:
    from ottla.record.batch_builder import build_batch

    marker = (1000, b"\0\0\0\0", b"\0\0\0\0\0\0", ())
    world.logs[0].append(
        build_batch(
            [marker],
            base_offset=world.end(0),
            is_control=True,
            is_transactional=True,
            producer_id=producer_id,
        )
    )


def test_aborted_transactions_are_hidden_from_read_committed(runtime, cluster):
    """Batches of an aborted producer up to its marker; those of others are not affected."""
    world = ConsumerWorld(runtime, cluster, isolation_level="read_committed")
    world.write("lost", is_transactional=True, producer_id=7)
    world.write("kept", is_transactional=True, producer_id=8)
    abort_marker(world, 7)
    world.write("later", is_transactional=True, producer_id=7)
    world.aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    world.assign(0)

    assert world.values() == ["kept", "later"]


def test_position_lookup_is_repeated(world, cluster):
    """ListOffsets may fail for a while."""
    world.write("a")
    cluster[0].on(ListOffsetsRequest, HANG_UP, world.list_offsets)

    assert world.values(3000) == ["a"]


def test_versions_without_topic_ids_are_used_where_ids_are_unknown(world, cluster):
    """The mock's topics have no ids, so Fetch stays at version 12 or below."""
    world.write("a")
    world.poll()

    assert {v for r, v in cluster[0].requests if isinstance(r, FetchRequest)} == {12}


def test_broker_is_not_asked_for_quiet_partitions_beside_a_busy_one(runtime, cluster):
    """It would wait for their records while what has arrived of the other is read."""
    world = ConsumerWorld(runtime, cluster, max_poll_records=1)
    world.write("a", "b", "c")
    world.write("d", "e")
    world.assign(0, 1)
    assert world.values() == ["a"]
    world.write("f")
    world.advance(5000)
    count = len(cluster[0].sent(FetchRequest))
    world.write("x", partition=1)
    world.advance(5000)
    assert len(cluster[0].sent(FetchRequest)) == count

    found: list[str] = []
    while len(found) < 6:
        found += world.values()
    assert sorted(found) == ["b", "c", "d", "e", "f", "x"]


def test_partition_without_a_leader_is_read_when_it_has_one(runtime, cluster):
    """The metadata are asked for again."""
    cluster.leaders["pages", 0] = -1
    world = ConsumerWorld(runtime, cluster)
    world.assign(0)
    world.call(world.core.seek, PARTITION, 0)
    world.write("a")
    assert world.values(500) == []
    cluster.leaders["pages", 0] = 0
    cluster.epochs["pages", 0] = 1

    assert world.values(1000) == ["a"]


def test_broker_that_is_too_old_is_an_error_of_the_poll(world, cluster):
    """Its fetches have no batches."""
    cluster[0].versions[FetchRequest.api_key] = (0, 3)
    with pytest.raises(KafkaError) as caught:
        world.values()

    assert caught.value.error is ErrorCode.UNSUPPORTED_VERSION
    assert cluster[0].sent(FetchRequest) == []


@pytest.mark.parametrize(
    ("code", "is_raised"),
    [(ErrorCode.UNKNOWN_SERVER_ERROR, False), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, True)],
)
def test_error_of_a_whole_fetch_is_raised_unless_it_may_pass(world, cluster, code, is_raised):
    """Once; the next fetch comes after a pause."""
    world.write("a")
    cluster[0].on(FetchRequest, FetchResponse(error_code=code), world.fetch)
    if is_raised:
        with pytest.raises(KafkaError, match="fetch: 0") as caught:
            world.values()
        assert caught.value.error is code

    assert world.values() == ["a"]


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_records_that_have_arrived_are_read_before_the_log_is_found_to_be_shorter(
    runtime, cluster, reset
):
    """Then it is detected again: reset, or raised."""
    world = ConsumerWorld(runtime, cluster, max_poll_records=1, auto_offset_reset=reset)
    world.write("a", "b")
    world.assign(0)
    world.call(world.core.seek, PARTITION, 0)
    assert world.values() == ["a"]
    refused = world.refuse_fetch(ErrorCode.OFFSET_OUT_OF_RANGE)

    def answer(request, version):
        ((partition,),) = (topic.partitions for topic in request.topics)
        return (refused if partition.fetch_offset else world.fetch)(request, version)

    cluster[0].on(FetchRequest, answer)
    world.write("c")
    world.advance(1000)

    assert world.values() == ["b"]
    if reset == "none":
        with pytest.raises(KafkaError, match="seek to one"):
            world.values()
    else:
        assert world.values(3000) == ["a"]


def test_records_that_have_arrived_are_read_before_the_logs_are_found_to_part(runtime, cluster):
    """Then the position is taken back to where they part."""
    world = ConsumerWorld(runtime, cluster, max_poll_records=1)
    world.write("a", "b", epoch=3)
    world.assign(0)
    assert world.values() == ["a"]
    diverging = world.diverging(3, 1)
    cluster[0].on(FetchRequest, diverging, diverging, diverging, world.fetch)
    world.advance(200)

    assert world.values() == ["b"]
    assert world.values(5000) == ["b"]
