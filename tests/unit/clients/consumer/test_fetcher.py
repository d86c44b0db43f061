"""Fetching: what arrives, what is passed over, and what each error leads to."""

from __future__ import annotations

from uuid import UUID

import pytest
from consumer_world import ConsumerWorld
from crc32c import crc32c
from mock_kafka import HANG_UP, Later, MockBroker, MockCluster

from ottla.clients.topic_offsets import OffsetSpec
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.fetch import AbortedTransaction, FetchRequest, FetchResponse
from ottla.protocol.list_offsets import ListOffsetsRequest
from ottla.protocol.metadata import MetadataRequest
from ottla.record.compression import CompressionType
from ottla.record.record import CorruptRecordError
from ottla.record.record_batch import assign_offset
from ottla.structs import NO_UUID, TopicPartition

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
    """The setting auto.offset.reset=earliest begins at the first record."""
    world.write("a")
    world.call(world.core.seek, PARTITION, 99)

    assert world.values(3000) == ["a"]


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
def test_leader_that_is_cut_off_does_not_decide_that_an_offset_is_out_of_range(
    runtime, cluster, reset
):
    """A position that was committed without a leader epoch is beyond the log that it has."""
    world = ConsumerWorld(runtime, cluster, auto_offset_reset=reset)
    world.write("a", "b")
    world.write("c")
    successor = cluster.brokers[1] = MockBroker(cluster, 1)
    successor.on(FetchRequest, world.fetch)
    world.assign(0)
    world.call(world.core.seek, PARTITION, 2)

    def refuse_and_lose(request, version):
        cluster.leaders["pages", 0] = 1  # which the next metadata say
        return world.refuse_fetch(ErrorCode.OFFSET_OUT_OF_RANGE)(request, version)

    cluster[0].on(FetchRequest, refuse_and_lose)
    assert world.values(3000) == ["c"]


def test_offset_is_out_of_range_once_newer_metadata_name_the_same_leader(world, cluster):
    """Metadata that cannot be had decide nothing either."""
    world.write("a")
    world.values()
    asked = len(cluster[0].sent(FetchRequest))
    serve = cluster[0].answers[MetadataRequest]
    cluster[0].on(MetadataRequest, None)
    world.call(world.core.seek, PARTITION, 99)
    assert world.values(1000) == []
    assert len(cluster[0].sent(FetchRequest)) > asked + 1
    cluster[0].on(MetadataRequest, serve)

    assert world.values(60_000) == ["a"]


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
    world.advance(600)
    assert cluster[0].sent(FetchRequest)[-1].topics[0].partitions[0].fetch_offset == 2

    assert world.values() == ["b"]
    assert world.values(5000) == ["b"]


def test_paused_partition_keeps_what_has_arrived(runtime, cluster):
    """In order, for when it is resumed; the others are read meanwhile."""
    world = ConsumerWorld(runtime, cluster)
    world.assign(0, 1)
    assert world.values(100) == []
    world.write("a")
    world.advance(600)
    world.write("b")
    world.write("x", partition=1)
    world.advance(600)
    world.call(world.core.pause, [PARTITION], True)
    assert world.values() == ["x"]
    world.call(world.core.pause, [PARTITION], False)

    assert world.values() + world.values() == ["a", "b"]


def test_fetch_that_fails_is_repeated_with_pauses_at_the_leader_that_is_there(runtime):
    """The metadata are fetched again after each failure."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 1
    world = ConsumerWorld(runtime, cluster)
    cluster[0].on(FetchRequest, HANG_UP)
    world.write("a")
    world.assign(0)
    assert world.values(2000) == []
    assert 2 < len(cluster[0].sent(FetchRequest)) <= 21
    cluster.leaders["pages", 0] = 1
    cluster.epochs["pages", 0] = 1

    assert world.values(2000) == ["a"]


@pytest.mark.parametrize(
    "code",
    [ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.KAFKA_STORAGE_ERROR],
)
def test_replica_that_cannot_be_read_is_left_for_the_leader(runtime, code):
    """It may be behind; its word about offsets does not count."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 1
    world = ConsumerWorld(runtime, cluster, auto_offset_reset="none")

    def prefer_broker_1(request, version):
        response = world.fetched(request, {})
        data = response.responses[0].partitions[0]
        data.records, data.preferred_read_replica = b"", 1
        return response

    world.write("a", "b", "c", epoch=0)
    cluster[0].on(FetchRequest, world.fetch, prefer_broker_1, world.fetch)
    cluster[1].on(FetchRequest, world.refuse_fetch(code))
    world.assign(0)
    world.call(world.core.seek, PARTITION, 0)
    assert world.values() == ["a", "b", "c"]
    world.write("d", epoch=0)
    assert world.values(5000) == ["d"]
    (request,) = cluster[1].sent(FetchRequest)

    assert request.topics[0].partitions[0].last_fetched_epoch == -1, "a follower may lag behind"


@pytest.mark.parametrize(
    ("code", "is_raised"),
    [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, True), (ErrorCode.OFFSET_NOT_AVAILABLE, False)],
)
def test_error_of_a_partition_pauses_it_alone(runtime, cluster, code, is_raised):
    """The other one is read on; the error comes again and again, each time once."""
    world = ConsumerWorld(runtime, cluster)
    world.assign(0, 1)
    refused = world.refuse_fetch(code)
    cluster[0].on(FetchRequest, lambda request, version: Later(20, refused(request, version)))
    world.write("x", partition=1)
    found = []
    for _ in range(10):
        try:
            found += world.values(100)
        except KafkaError:
            found.append("error")
    asked = [p.partition for r in cluster[0].sent(FetchRequest) for p in r.topics[0].partitions]

    assert found.count("x") == 1
    assert 4 <= asked.count(0) <= 12
    assert asked.count(1) > 2 * asked.count(0)
    assert found.count("error") in ((asked.count(0) - 1, asked.count(0)) if is_raised else (0,))


@pytest.mark.parametrize(
    ("code", "asks"),
    [(ErrorCode.OFFSET_NOT_AVAILABLE, False), (ErrorCode.UNKNOWN_LEADER_EPOCH, True)],
)
def test_metadata_are_fetched_again_where_they_may_be_old(world, cluster, code, asks):
    """An error that says nothing of the leader is no reason."""
    world.poll(100)
    before = len(cluster[0].sent(MetadataRequest))
    cluster[0].on(FetchRequest, world.refuse_fetch(code), world.fetch)
    world.values(2000)

    assert (len(cluster[0].sent(MetadataRequest)) > before) is asks


def test_fetch_may_wait_for_records_beyond_the_request_timeout(runtime, cluster):
    """fetch.max.wait.ms comes on top of request.timeout.ms."""
    settings = {"request_timeout_ms": 1000, "fetch_max_wait_ms": 800}
    settings |= {"session_timeout_ms": 500, "heartbeat_interval_ms": 100}
    world = ConsumerWorld(runtime, cluster, **settings)
    world.write("a")
    answer = world.fetch
    cluster[0].on(
        FetchRequest, lambda request, version: Later(1500, answer(request, version)), None
    )
    world.assign(0)

    assert world.values(1700) == ["a"]


def test_portions_of_several_partitions_are_bounded_together(runtime, cluster):
    """max.poll.records is for all that a poll returns."""
    world = ConsumerWorld(runtime, cluster, max_poll_records=3)
    world.write("a", "b")
    world.write("x", "y", "z", partition=1)
    world.assign(0, 1)

    assert [world.values(), world.values()] == [["a", "b", "x"], ["y", "z"]]


def test_broker_that_is_gone_is_looked_for_in_fresh_metadata(runtime):
    """Its connection cannot be opened; another one leads by now."""
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 1
    world = ConsumerWorld(runtime, cluster)
    world.assign(0)
    world.poll(100)
    cluster[0].stop()
    world.poll(1000)
    cluster.leaders["pages", 0] = 1
    cluster.epochs["pages", 0] = 1
    world.write("a")

    assert world.values(3000) == ["a"]


@pytest.mark.parametrize("version", [12, 13])
def test_topics_are_named_by_ids_from_version_13_on(runtime, cluster, version):
    """If the metadata have them."""
    cluster.topic_ids["pages"] = UUID(int=7)
    cluster[0].versions[FetchRequest.api_key] = (4, version)
    world = ConsumerWorld(runtime, cluster)
    cluster[0].on(FetchRequest, lambda request, _: Later(20, world.fetched(request, {0: 0})))
    world.write("a")
    world.assign(0)
    assert world.values() == ["a"]
    topics = {(t.topic, t.topic_id) for r in cluster[0].sent(FetchRequest) for t in r.topics}

    assert topics == {("pages", NO_UUID) if version == 12 else ("", UUID(int=7))}


def test_partition_that_the_topic_does_not_have_yet_is_read_when_it_has(world, cluster):
    """The metadata are asked for again."""
    third = TopicPartition("pages", 2)
    world.assign(2)
    world.call(world.core.seek, third, 0)
    assert world.values(500) == []
    world.logs[2] = []
    world.write("a", partition=2)
    cluster.topics["pages"] = 3

    assert world.values(1000) == ["a"]


def test_error_of_each_partition_is_raised(runtime, cluster):
    """One by each poll, although they came together."""
    world = ConsumerWorld(runtime, cluster)
    world.assign(0, 1)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    errors = {0: code, 1: code}
    cluster[0].on(FetchRequest, lambda request, _: Later(10, world.fetched(request, errors)))
    for name in ("pages-0", "pages-1"):
        with pytest.raises(KafkaError, match=name):
            world.poll(50)
    assert world.values(0) == []


def without_partitions(world):
    """Answers to fetches that leave the partitions out."""

    def answer(request: FetchRequest, version: int) -> FetchResponse:
        return FetchResponse()

    return answer


def with_records(world, change):
    """Answers to fetches whose records a function has changed."""

    def answer(request: FetchRequest, version: int) -> FetchResponse:
        response = world.fetched(request, {})
        for topic in response.responses:
            for data in topic.partitions:
                data.records = change(world.logs[0][0])
        return response

    return answer


USELESS = {
    "left out": without_partitions,
    "before the position": lambda world: with_records(world, lambda batch: batch),
    "cut within the first batch": lambda world: with_records(world, lambda batch: batch[:-1]),
    "cut within the first header": lambda world: with_records(world, lambda batch: batch[:40]),
}


@pytest.mark.parametrize("kind", USELESS)
def test_answer_that_brings_nothing_new_is_asked_for_slowly_and_told(world, cluster, caplog, kind):
    """It has come at once, and so would the next one."""
    world.write("a")
    assert world.values() == ["a"]
    count = len(cluster[0].sent(FetchRequest))
    for broker in cluster.brokers.values():
        broker.on(FetchRequest, USELESS[kind](world))
    assert world.values(10_000) == []

    assert 50 < len(cluster[0].sent(FetchRequest)) - count <= 110
    (line,) = (r.getMessage() for r in caplog.records if r.levelname == "WARNING")
    assert line.startswith(
        "reading of pages-0 has failed for 5 s, and is tried again: UNKNOWN_SERVER"
    )
    cluster[0].on(FetchRequest, world.fetch)
    world.write("b")
    assert world.values() == ["b"]


def test_partition_that_is_refused_for_long_is_a_warning(world, cluster, caplog):
    """Errors that may pass are not raised: this one does not pass."""
    cluster[0].on(FetchRequest, world.refuse_fetch(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert world.values(4000) == []
    assert caplog.records == []
    assert world.values(20_000) == []

    (line,) = (r.getMessage() for r in caplog.records if r.levelname == "WARNING")
    assert line.startswith(
        "reading of pages-0 has failed for 5 s, and is tried again: UNKNOWN_SERVER"
    )


@pytest.mark.parametrize("offset", [2**63 - 1, 2**63 - 2])
def test_batch_without_a_next_offset_is_malformed(world, cluster, offset):
    """The position behind it would have no place in a request."""

    def at_the_end(batch: bytes) -> bytes:
        moved = bytearray(batch)
        assign_offset(moved, 0, offset, 0)
        return bytes(moved)

    world.write("a", "b")
    cluster[0].on(FetchRequest, with_records(world, at_the_end))
    with pytest.raises(CorruptRecordError, match=f"the batch at offset {offset} has no next one"):
        world.values()


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
@pytest.mark.parametrize(("limit", "counts"), [(0, [1] * 6), (2500, [3, 3]), (100_000, [6])])
def test_poll_is_bounded_by_the_bytes_without_their_codecs(runtime, cluster, codec, limit, counts):
    """Some kB that were fetched may be a GB of records; none of them is lost for that."""
    world = ConsumerWorld(runtime, cluster, fetch_max_bytes=limit)
    for letter in "abcdef":
        world.write(letter * 1000, compression=codec)
    world.assign(0)
    found = [world.values() for _ in counts]

    assert [len(values) for values in found] == counts
    assert [value[0] for values in found for value in values] == list("abcdef")
    assert world.values() == []


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_batch_of_which_compaction_has_left_nothing_to_return_ends_no_poll(runtime, cluster, size):
    """However large it was: the poll took nothing else, and waited for another answer."""
    world = ConsumerWorld(runtime, cluster, fetch_max_bytes=10)
    world.write("a" * size)
    world.logs[0] = [with_last_offset(world.logs[0][0], 5)]
    world.write("b", partition=1)
    world.assign(0, 1)
    world.call(world.core.seek, PARTITION, 3)
    world.call(world.core.seek, TopicPartition("pages", 1), 0)
    world.call(world.core.fetcher.send_fetches)
    world.advance(10)

    assert [record.value for record in world.call(world.core.collect)[0]] == [b"b"]


def with_last_offset(batch: bytes, last: int) -> bytes:
    """A batch that has lost its last records, and keeps their offsets."""
    kept = batch[21:23] + last.to_bytes(4, "big") + batch[27:]
    return batch[:17] + crc32c(kept).to_bytes(4, "big") + kept


def test_records_of_one_batch_are_taken_in_portions_however_large_it_is(runtime, cluster):
    """It is decoded as a whole, once, and does not count for the second of them."""
    world = ConsumerWorld(runtime, cluster, fetch_max_bytes=10, max_poll_records=2)
    world.write("a" * 1000, "b", "c")
    world.write("d")
    world.assign(0)

    assert [[value[0] for value in world.values()] for _ in range(2)] == [["a", "b"], ["c", "d"]]


def test_fetch_that_the_close_of_the_consumer_ends_is_no_trouble(world, cluster, caplog):
    """Even where fetches had failed for long."""
    cluster[0].on(FetchRequest, world.refuse_fetch(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert world.values(10_000) == []
    cluster[0].on(FetchRequest, lambda request, version: None)
    world.advance(1000)
    caplog.clear()
    world.run(world.core.close(world.deadline()))
    world.advance(1000)

    assert caplog.records == []


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize("first", [0, 1, 2, 3])
def test_batches_that_are_put_back_come_next(world, cluster, moves, first):
    """As they were fetched, with no other fetch; where their partition has moved, by another."""
    for letter in "abcd":
        world.write(letter)
    collect = world.core.fetcher.collect_batches
    (fetched,) = world.run(world.core.poll_for(collect, world.deadline()))
    assert position(world) == 4
    asked = len(cluster[0].sent(FetchRequest))
    if moves:
        world.call(world.core.rewind, PARTITION, 4)
    left = fetched._replace(position=first, batches=fetched.batches[first:])
    world.call(world.core.fetcher.put_back, [left])

    assert position(world) == first
    found = [record.value.decode() for record in world.call(world.core.collect)[0]]
    assert found == ([] if moves else list("abcd"[first:]))
    assert len(cluster[0].sent(FetchRequest)) == asked
    assert found + world.values() == list("abcd"[first:])
    assert position(world) == 4


def test_batches_of_a_partition_that_has_gone_are_not_put_back(world):
    """They are another member's."""
    world.write("a")
    collect = world.core.fetcher.collect_batches
    fetched = world.run(world.core.poll_for(collect, world.deadline()))
    world.assign(1)
    world.call(world.core.fetcher.put_back, fetched)

    assert world.values(10) == []


def test_batches_are_not_put_back_where_the_application_has_sought_another_place(world):
    """Its own word counts, whatever has become of them meanwhile."""
    for letter in "abcd":
        world.write(letter)
    seek, reset = world.core.seek, world.core.reset
    for sought, values in (
        (lambda: seek(PARTITION, 3), ["d"]),
        (lambda: seek(PARTITION, 1), ["b", "c", "d"]),
        (lambda: reset([PARTITION], OffsetSpec.LATEST), []),
        (lambda: reset([PARTITION], OffsetSpec.EARLIEST), ["a", "b", "c", "d"]),
    ):
        world.call(seek, PARTITION, 0)
        collect = world.core.fetcher.collect_for_table
        (fetched,) = world.run(world.core.poll_for(collect, world.deadline()))
        world.call(sought)
        world.call(world.core.fetcher.put_back, [fetched._replace(position=2)])
        world.call(world.core.fetcher.taken.rewind, PARTITION, 2)
        assert world.values(1000) == values


def test_batches_are_not_put_back_behind_the_place_at_which_the_log_parts(world):
    """It was truncated meanwhile, and has other records from there on."""
    for letter in "abcd":
        world.write(letter)
    collect = world.core.fetcher.collect_for_table
    (fetched,) = world.run(world.core.poll_for(collect, world.deadline()))
    world.call(world.core.subscriptions.state(PARTITION).seek, 1)
    world.call(world.core.fetcher.put_back, [fetched._replace(position=2)])

    assert world.values() == ["b", "c", "d"]
