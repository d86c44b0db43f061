"""The clients that talk to one broker: what they ask, and what they make of its answers."""

from __future__ import annotations

import pytest
from mock_kafka import HANG_UP, Later, MockCluster
from virtual_thread import virtual_threads

from ottla import KafkaError
from ottla.clients.legacy import (
    FetchRequest,
    Message,
    OffsetRequest,
    ProducerRequest,
    SimpleConsumer,
    SyncProducer,
)
from ottla.errors import ErrorCode
from ottla.protocol.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.fetch import FetchRequest as ProtocolFetchRequest
from ottla.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.record.record_batch import RecordBatch

MODULE = "ottla.clients.legacy.broker_clients"
ONE = [Message(b"v")]


@pytest.fixture
def cluster(runtime, monkeypatch) -> MockCluster:
    """Two brokers, of which the first leads partitions 0 and 2 of `pages`."""
    virtual_threads(monkeypatch, runtime, MODULE)
    cluster = MockCluster(runtime, 2)
    cluster.topics["pages"] = 3
    return cluster


@pytest.fixture
def consumer(cluster) -> SimpleConsumer:
    with SimpleConsumer("mock", 9000, so_timeout_ms=2000) as consumer:
        yield consumer


@pytest.fixture
def producer(cluster) -> SyncProducer:
    with SyncProducer("mock", 9000) as producer:
        yield producer


def fetched(*rows: tuple[str, int, int, bytes | None], code: int = 0) -> FetchResponse:
    """An answer with topic, partition, error and bytes."""
    response = FetchResponse(error_code=code)
    for topic, partition, error, records in rows:
        data = PartitionData(partition_index=partition, error_code=error, records=records)
        response.responses.append(FetchableTopicResponse(topic=topic, partitions=[data]))
    return response


def batch(value: bytes, offset: int = 0) -> bytes:
    return build_batch([(1000, None, value, ())], base_offset=offset)


def test_fetches_of_several_partitions_are_one_request(consumer, cluster):
    """The request has a limit for each partition and for all; only leaders answer."""
    answer = fetched(("pages", 0, 0, batch(b"a")), ("pages", 2, 0, None), ("orders", 0, 1, b""))
    cluster[0].on(ProtocolFetchRequest, answer)
    requests = [
        FetchRequest("pages", 0, 0, 100),
        FetchRequest("pages", 2, 5, 200),
        FetchRequest("orders", 0, 9, 300),
        FetchRequest("orders", 1, 9, 400),
    ]
    sets = consumer.multifetch(requests, max_wait_ms=50, min_bytes=7)

    assert [[message.payload for message, _ in each] for each in sets[:2]] == [[b"a"], []]
    assert sets[2].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    with pytest.raises(KafkaError, match="offset 9 of orders-1: the answer leaves it out"):
        list(sets[3])
    ((request, version),) = [
        each for each in cluster[0].requests if isinstance(each[0], ProtocolFetchRequest)
    ]
    assert version <= 10
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (50, 7, 1000)
    assert request.topics == [
        FetchTopic(
            topic="pages",
            partitions=[
                FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100),
                FetchPartition(partition=2, fetch_offset=5, partition_max_bytes=200),
            ],
        ),
        FetchTopic(
            topic="orders",
            partitions=[
                FetchPartition(partition=0, fetch_offset=9, partition_max_bytes=300),
                FetchPartition(partition=1, fetch_offset=9, partition_max_bytes=400),
            ],
        ),
    ]


def test_partition_that_is_fetched_twice_makes_two_requests(consumer, cluster):
    """One may have it only once; the sets come in the order in which they were asked for."""

    def answer(request, version):
        (topic,) = request.topics
        (row,) = topic.partitions
        return fetched(
            ("pages", row.partition, 0, batch(b"%d" % row.fetch_offset, row.fetch_offset))
        )

    cluster[0].on(ProtocolFetchRequest, answer)
    sets = consumer.multifetch([FetchRequest("pages", 0, 0), FetchRequest("pages", 0, 4)])

    assert [[message.payload for message, _ in each] for each in sets] == [[b"0"], [b"4"]]


def test_error_of_a_whole_fetch_is_raised(consumer, cluster):
    """It names the broker."""
    cluster[0].on(ProtocolFetchRequest, fetched(code=ErrorCode.UNKNOWN_SERVER_ERROR))
    with pytest.raises(KafkaError, match="fetch from mock:9000"):
        consumer.fetch(FetchRequest("pages", 0, 0))


@pytest.mark.parametrize(("wait_ms", "answers"), [(0, False), (5000, True)])
def test_broker_may_wait_for_messages_beyond_the_timeout(consumer, cluster, wait_ms, answers):
    """The socket's timeout begins when the broker has to answer."""
    answer = Later(3000, fetched(("pages", 0, 0, batch(b"a"))))
    cluster[0].on(ProtocolFetchRequest, answer)

    def fetch():
        return consumer.fetch(FetchRequest("pages", 0, 0), max_wait_ms=wait_ms)

    if answers:
        assert [message.payload for message, _ in fetch()] == [b"a"]
    else:
        with pytest.raises(KafkaError, match="no answer to FetchRequest within 2000 ms"):
            fetch()


def test_request_is_sent_again_where_the_connection_had_broken(consumer, cluster):
    """Once, on a new one; a connection that breaks at its first request is an error."""
    good = fetched(("pages", 0, 0, batch(b"a")))
    cluster[0].on(ProtocolFetchRequest, good, HANG_UP, good, HANG_UP, HANG_UP, HANG_UP)
    for _ in range(2):
        assert list(consumer.fetch(FetchRequest("pages", 0, 0)))
    assert len(cluster[0].sent(ProtocolFetchRequest)) == 3

    for count in (5, 6):
        with pytest.raises(KafkaError) as caught:
            consumer.fetch(FetchRequest("pages", 0, 0))
        assert caught.value.error is ErrorCode.NETWORK_EXCEPTION
        assert len(cluster[0].sent(ProtocolFetchRequest)) == count


def offsets(code: int = 0) -> ListOffsetsResponse:
    row = ListOffsetsPartitionResponse(
        partition_index=2, error_code=code, old_style_offsets=[] if code else [9, 4, 0]
    )
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="pages", partitions=[row])])


def test_starts_of_segments_are_asked_for_in_the_oldest_version(consumer, cluster):
    """Later ones have one offset."""
    cluster[0].on(ListOffsetsRequest, offsets())

    assert consumer.get_offsets_before("pages", 2, OffsetRequest.LATEST_TIME, 7) == [9, 4, 0]
    ((request, version),) = [
        each for each in cluster[0].requests if isinstance(each[0], ListOffsetsRequest)
    ]
    assert version == 0
    row = ListOffsetsPartition(partition_index=2, timestamp=-1, max_num_offsets=7)
    assert request.topics == [ListOffsetsTopic(name="pages", partitions=[row])]


def test_error_of_the_offsets_is_raised(consumer, cluster):
    """It names the partition."""
    cluster[0].on(ListOffsetsRequest, offsets(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    with pytest.raises(KafkaError, match="offsets of pages-2"):
        consumer.get_offsets_before("pages", 2, OffsetRequest.LATEST_TIME, 7)


def test_closed_clients_have_no_connection(runtime, cluster):
    """Leaving the block ends it."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name="pages")])
    with SimpleConsumer("mock", 9000) as consumer:
        assert len(consumer.send(request).topics[0].partitions) == 3
        assert len(cluster[0].connections) == 1
    with SyncProducer("mock", 9000) as producer:
        cluster[0].on(ProduceRequest, produced())
        producer.send("pages", ONE, 0)
        assert cluster[0].connections
    runtime.advance(100)

    assert not cluster[0].connections


def produced(*codes: int):
    """An answer that gives partition 0 the first of the codes, and so on; others are well."""

    def answer(request: ProduceRequest, version: int) -> ProduceResponse:
        response = ProduceResponse()
        for topic in request.topic_data:
            rows = [
                PartitionProduceResponse(
                    index=data.index,
                    error_code=codes[data.index] if data.index < len(codes) else 0,
                )
                for data in topic.partition_data
            ]
            response.responses.append(
                TopicProduceResponse(name=topic.name, partition_responses=rows)
            )
        return response

    return answer


def sent(cluster) -> list[list[tuple[str, int, list[tuple]]]]:
    """By request: topic, partition, and timestamp, key and value of each record."""
    return [
        [
            (topic.name, data.index, [(r.timestamp_ms, r.key, r.value) for r in records])
            for topic in request.topic_data
            for data in topic.partition_data
            for records in [RecordBatch(data.records).records()]
        ]
        for request in cluster[0].sent(ProduceRequest)
    ]


def test_messages_of_several_partitions_are_one_request(producer, cluster, runtime):
    """The request has their keys, and their times if they have any."""
    cluster[0].on(ProduceRequest, produced())
    runtime.advance(10_000)
    now_ms = runtime.clock.now_ms()
    messages = [Message(b"a", b"k"), Message(b"b", timestamp_ms=5)]
    producer.multi_send(
        [
            ProducerRequest("pages", 0, messages),
            ProducerRequest("orders", 1, ONE),
            ProducerRequest("pages", 2, ONE),
        ]
    )

    assert sent(cluster) == [
        [
            ("pages", 0, [(now_ms, b"k", b"a"), (5, None, b"b")]),
            ("pages", 2, [(now_ms, None, b"v")]),
            ("orders", 1, [(now_ms, None, b"v")]),
        ]
    ]
    ((request),) = cluster[0].sent(ProduceRequest)
    assert (request.acks, request.timeout_ms) == (1, 30_000)


def test_refused_messages_are_an_error(producer, cluster):
    """It names the partition and the broker; nothing is sent twice."""
    cluster[0].on(ProduceRequest, produced(0, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    with pytest.raises(KafkaError, match=r"pages-1 at mock:9000") as caught:
        producer.multi_send([ProducerRequest("pages", p, ONE) for p in (0, 1)])

    assert caught.value.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(sent(cluster)) == 1


def test_topic_that_there_is_not_is_created_by_a_question(producer, cluster):
    """What was refused for that is sent once more, after a request for the topic's metadata."""
    cluster[0].on(ProduceRequest, produced(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), produced())
    producer.multi_send([ProducerRequest("pages", p, ONE) for p in (0, 1)])

    assert [[row[:2] for row in request] for request in sent(cluster)] == [
        [("pages", 0), ("pages", 1)],
        [("pages", 1)],
    ]
    ((request),) = cluster[0].sent(MetadataRequest)
    assert [topic.name for topic in request.topics] == ["pages"]
    assert request.allow_auto_topic_creation


def test_without_acks_nothing_is_waited_for(runtime, cluster):
    """The broker does not answer."""
    cluster[0].on(ProduceRequest, None)
    with SyncProducer("mock", 9000, acks=0) as producer:
        producer.send("pages", ONE, 0)
        runtime.advance(10)

        assert [[row[:2] for row in request] for request in sent(cluster)] == [[("pages", 0)]]
    assert runtime.clock.monotonic_ms() < 1000


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_batches_are_compressed_as_they_were_asked_to_be(cluster, codec):
    """The codec is that of the batch."""
    cluster[0].on(ProduceRequest, produced())
    with SyncProducer("mock", 9000, compression=codec) as producer:
        producer.send("pages", ONE, 0)

    (request,) = cluster[0].sent(ProduceRequest)
    records = request.topic_data[0].partition_data[0].records
    assert RecordBatch(records).compression is CompressionType.of(codec)


def test_zstd_needs_a_broker_that_knows_it(cluster):
    """Older ones could not read it; another codec they can."""
    cluster[0].on(ProduceRequest, produced())
    cluster[0].versions[ProduceRequest.api_key] = (0, 6)
    with (
        SyncProducer("mock", 9000, compression="zstd") as producer,
        pytest.raises(KafkaError) as caught,
    ):
        producer.send("pages", ONE, 0)
    assert caught.value.error is ErrorCode.UNSUPPORTED_VERSION
    with SyncProducer("mock", 9000, compression="gzip") as producer:
        producer.send("pages", ONE, 0)
    assert len(sent(cluster)) == 1


def test_partition_that_is_not_named_is_one_that_the_broker_leads(producer, cluster):
    """The broker's own metadata decide: partition 1 has another leader."""
    cluster[0].on(ProduceRequest, produced())
    for _ in range(20):
        producer.send("pages", ONE)

    assert {request[0][1] for request in sent(cluster)} == {0, 2}


def test_broker_behind_another_address_is_the_only_one(runtime, cluster, monkeypatch):
    """Where the metadata have one broker, it is the one that was asked."""
    cluster[0].on(ProduceRequest, produced())
    del cluster.brokers[1]
    cluster.leaders = {("pages", 0): 0, ("pages", 1): 5, ("pages", 2): 5}
    runtime.network.serve("balancer", 1, lambda: _connection_of(cluster))
    with SyncProducer("balancer", 1) as producer:
        for _ in range(10):
            producer.send("pages", ONE)

    assert {request[0][1] for request in sent(cluster)} == {0}


def _connection_of(cluster):
    from mock_kafka import MockConnection

    return MockConnection(cluster[0])


@pytest.mark.parametrize("brokers", [1, 2])
def test_broker_that_leads_nothing_is_not_sent_to(producer, cluster, brokers):
    """The error names it, and the topic."""
    cluster.leaders = {("pages", p): 7 for p in range(3)}
    with pytest.raises(KafkaError, match=r"mock:9000.* leads no partition of pages"):
        producer.send("pages", ONE)


def test_behind_an_address_that_no_broker_has_nothing_is_led(runtime, cluster):
    """Of several, any could be the one."""
    runtime.network.serve("balancer", 1, lambda: _connection_of(cluster))
    with (
        SyncProducer("balancer", 1) as producer,
        pytest.raises(KafkaError, match=r"balancer:1.* leads no partition of pages"),
    ):
        producer.send("pages", ONE)


def test_topic_that_may_not_be_is_an_error(producer, cluster):
    """That of the metadata."""
    cluster.errors["bad"] = ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(KafkaError, match="topic bad") as caught:
        producer.send("bad", ONE)

    assert caught.value.error is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_simple_consumer_reads_what_a_sync_producer_has_sent(broker, unique):
    """Chunk after chunk, from any offset; the starts of segments are places to begin at."""
    topic = unique("simple")
    broker.create_topic(topic, 2, segment_bytes=2000)
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    with SyncProducer("127.0.0.1", port) as producer:
        for number in range(50):
            producer.send(topic, [Message(b"%03d" % number * 40)], 0)
    with SimpleConsumer("127.0.0.1", port) as consumer:
        found, offset = [], 0
        while chunk := list(consumer.fetch(FetchRequest(topic, 0, offset, 1000))):
            found += [int(message.payload[:3]) for message, _ in chunk]
            offset = chunk[-1].next_offset
        starts = consumer.get_offsets_before(topic, 0, OffsetRequest.LATEST_TIME, 100)

        assert found == list(range(50))
        assert starts == sorted(starts, reverse=True)
        assert (starts[0], starts[-1], len(starts) > 3) == (50, 0, True)
        assert consumer.get_offsets_before(topic, 0, OffsetRequest.EARLIEST_TIME, 9) == [0]
