"""`ReplicaReader`, which asks every replica, and what a fetch's bytes are taken for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mock_kafka import HANG_UP, Later, MockCluster
from virtual_thread import VirtualThread, virtual_threads

from ottla.clients.partition_reader import ReplicaReader, UnreadRange, chunk_of, replica_data
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.record.batch_builder import build_batch, build_end_transaction_marker
from ottla.record.control_record import ControlRecordType, EndTransactionMarker
from ottla.record.record_batch import assign_offset
from ottla.structs import IsolationLevel, TopicPartition

FIRST, SECOND = TopicPartition("pages", 0), TopicPartition("pages", 1)
PRODUCER_ID = 7


def stored(offset: int, count: int = 1, epoch: int = 3, **header) -> bytes:
    """A batch as a leader stores it."""
    batch = bytearray(build_batch([(1000, None, b"v", ())] * count, **header))
    assign_offset(batch, 0, offset, epoch)
    return bytes(batch)


def in_transaction(offset: int) -> bytes:
    producer = {"producer_id": PRODUCER_ID, "producer_epoch": 0, "base_sequence": 0}
    return stored(offset, is_transactional=True, **producer)


def abort(offset: int) -> bytes:
    end = EndTransactionMarker(ControlRecordType.ABORT, coordinator_epoch=0)
    batch = bytearray(build_end_transaction_marker(end, 1000, PRODUCER_ID, 0))
    assign_offset(batch, 0, offset, 3)
    return bytes(batch)


def unreadable(offset: int) -> bytes:
    batch = bytearray(stored(offset))
    batch[8:12] = bytes(4)  # its length
    return bytes(batch)


def fetched(*rows: PartitionData) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic="pages", partitions=list(rows))])


@pytest.fixture
def cluster(runtime, monkeypatch) -> MockCluster:
    """Two brokers, which have `pages`."""
    virtual_threads(monkeypatch, runtime, "ottla.clients.partition_reader")
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 2
    return cluster


@pytest.fixture
def reader(cluster) -> Iterator[ReplicaReader]:
    settings = {"max.partition.fetch.bytes": 100, "fetch.max.wait.ms": 700}
    with ReplicaReader(cluster.bootstrap_servers, settings) as reader:
        yield reader


def test_each_replica_is_asked_for_itself(reader, cluster):
    """Replicas that do not lead answer as well: the reader is a debugging consumer to them."""
    for number, broker in cluster.brokers.items():
        row = PartitionData(partition_index=1, high_watermark=5 + number, records=stored(4))
        refused = PartitionData(
            partition_index=0, error_code=ErrorCode.REPLICA_NOT_AVAILABLE, records=None
        )
        broker.on(FetchRequest, fetched(refused, row))
    found = reader.fetch({0: {FIRST: 0, SECOND: 4}, 1: {FIRST: 1, SECOND: 3}})

    assert list(found) == [0, 1]
    for number in (0, 1):
        assert found[number][SECOND].high_watermark == 5 + number
        assert [batch.base_offset for batch in found[number][SECOND].batches] == [4]
        assert found[number][FIRST].error is ErrorCode.REPLICA_NOT_AVAILABLE
    (request,) = cluster[1].sent(FetchRequest)
    assert request.replica_id == -2
    assert request.max_wait_ms == 700
    assert request.topics == [
        FetchTopic(
            topic="pages",
            partitions=[
                FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=100),
                FetchPartition(partition=1, fetch_offset=3, partition_max_bytes=100),
            ],
        )
    ]


def test_broker_that_does_not_answer_leaves_the_others(reader, cluster):
    """Each of its partitions has the error."""
    good = fetched(PartitionData(partition_index=0, records=None))
    cluster[0].on(FetchRequest, HANG_UP)
    cluster[1].on(FetchRequest, good)
    found = reader.fetch({0: {FIRST: 0, SECOND: 0}, 1: {FIRST: 0}})

    assert [error.error for error in found[0].values()] == [ErrorCode.NETWORK_EXCEPTION] * 2
    assert found[1][FIRST].batches == []


def test_replica_may_wait_for_records_beyond_the_request_timeout(runtime, cluster):
    """fetch.max.wait.ms comes on top of request.timeout.ms."""
    answer = Later(1500, fetched(PartitionData(partition_index=0, records=stored(0))))
    cluster[0].on(FetchRequest, answer)
    settings = {"request.timeout.ms": 1000, "fetch.max.wait.ms": 800}
    settings |= {"session.timeout.ms": 500, "heartbeat.interval.ms": 100}
    with ReplicaReader(cluster.bootstrap_servers, settings) as reader:
        found = reader.fetch({0: {FIRST: 0}})

    assert len(found[0][FIRST].batches) == 1


def test_reader_waits_as_long_as_its_requests_may_take(runtime, cluster, monkeypatch):
    """The thread gives a call more time than the slowest broker has."""

    class PatientThread(VirtualThread):
        def run(self, call, limit_ms=None):
            began_ms = runtime.clock.monotonic_ms()
            found = super().run(call, limit_ms)
            assert runtime.clock.monotonic_ms() - began_ms < limit_ms
            return found

        def begin_with(self, call):
            return super().run(call)

    name = "ottla.clients.partition_reader.IoThread"
    monkeypatch.setattr(name, lambda name: PatientThread(runtime))
    cluster[0].on(FetchRequest, None)
    settings = {"request.timeout.ms": 20_000, "fetch.max.wait.ms": 19_000}
    with ReplicaReader(cluster.bootstrap_servers, settings) as reader:
        found = reader.fetch({0: {FIRST: 0}})

    assert isinstance(found[0][FIRST], KafkaError)


def test_closed_reader_has_no_connection(runtime, reader, cluster, caplog):
    """A closed reader sends no request later either."""
    for broker in cluster.brokers.values():
        broker.on(FetchRequest, fetched(PartitionData(partition_index=0, records=None)))
    reader.fetch({0: {FIRST: 0}, 1: {FIRST: 0}})
    assert all(broker.connections for broker in cluster.brokers.values())
    reader.close()
    runtime.advance(1000)
    requests = [len(broker.requests) for broker in cluster.brokers.values()]
    runtime.advance(3_600_000)

    assert not any(broker.connections for broker in cluster.brokers.values())
    assert [len(broker.requests) for broker in cluster.brokers.values()] == requests
    assert caplog.records == []


def test_replica_gives_the_batches_before_bytes_that_it_cannot_read():
    """If there are none, the error is the answer."""
    good = replica_data(FIRST, PartitionData(records=stored(0) + unreadable(1)))
    assert [batch.base_offset for batch in good.batches] == [0]

    assert isinstance(replica_data(FIRST, PartitionData(records=unreadable(0))), KafkaError)


def unread(start: int, end: int, level=IsolationLevel.READ_UNCOMMITTED) -> UnreadRange:
    return UnreadRange(FIRST, start, end, level)


def lengths(chunk) -> list[int]:
    return [len(view) for view in chunk.views]


def test_chunk_ends_where_the_range_ends():
    """Batches before it begins and after its end are left out; adjacent ones are one view."""
    batches = [stored(offset, 2) for offset in (0, 2, 4, 6)]
    data = PartitionData(records=b"".join(batches))

    chunk = chunk_of(unread(2, 6), data)
    assert lengths(chunk) == [len(batches[1] + batches[2])]
    assert chunk.next_offset == 6
    chunk = chunk_of(unread(3, 5), data)
    assert lengths(chunk) == [len(batches[1] + batches[2])]
    assert chunk.next_offset == 5
    chunk = chunk_of(unread(1, 100), data)
    assert (lengths(chunk), chunk.next_offset) == ([len(data.records)], 8)


def test_chunk_of_nothing_stays_where_it_is():
    """An answer without records."""
    chunk = chunk_of(unread(2, 6), PartitionData(records=None))

    assert (chunk.views, chunk.next_offset) == ([], 2)


def test_chunk_ends_before_bytes_that_cannot_be_read():
    """If nothing comes before these, they are an error."""
    chunk = chunk_of(unread(0, 6), PartitionData(records=stored(0) + unreadable(1)))
    assert chunk.next_offset == 1

    with pytest.raises(KafkaError):
        chunk_of(unread(1, 6), PartitionData(records=unreadable(1)))


def test_refusal_of_a_fetch_names_offset_and_partition():
    """The refusal is raised with offset and partition."""
    with pytest.raises(KafkaError, match="offset 2 of pages-0") as caught:
        chunk_of(unread(2, 6), PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))

    assert caught.value.error is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("level", "hidden"),
    [(IsolationLevel.READ_UNCOMMITTED, []), (IsolationLevel.READ_COMMITTED, [1])],
)
def test_aborted_batches_cut_the_view_of_a_reader_of_committed_data(level, hidden):
    """Markers cut that of any reader."""
    parts = [stored(0), in_transaction(1), abort(2), stored(3)]
    data = PartitionData(
        records=b"".join(parts),
        aborted_transactions=[AbortedTransaction(producer_id=PRODUCER_ID, first_offset=1)],
    )
    chunk = chunk_of(unread(0, 9, level), data)

    first = parts[0] if hidden else parts[0] + parts[1]
    assert [bytes(view) for view in chunk.views] == [first, parts[3]]
    assert chunk.next_offset == 4


def test_reader_of_committed_data_does_not_need_a_list_of_aborted_ones():
    """Brokers leave it out where nothing was aborted."""
    data = PartitionData(records=in_transaction(0), aborted_transactions=None)

    assert len(chunk_of(unread(0, 9, IsolationLevel.READ_COMMITTED), data).views) == 1
