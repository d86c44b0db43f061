"""Why a produce request is refused, in whole or in part, and what its answer says."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import UUID

import pytest
from apis_world import Context
from produce_world import PARTITION, TOPIC_ID, ProduceWorld

from ottla.errors import ErrorCode
from ottla.protocol.produce import (
    FIRST_VERSION_WITH_IDS,
    FIRST_VERSION_WITH_LEADERS,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.record.batch_builder import build_batch
from ottla.record.compression import CompressionType
from ottla.replication.append_results import PartitionAppendResult
from ottla.replication.replica_manager import ReplicaManager
from ottla.server.handlers.produce import ProduceHandler, refuse_records
from ottla.server.handlers.transactional_produce import TransactionalProduce
from ottla.structs import NO_UUID, TopicPartition, TxnProducer

T0, T1 = PARTITION, TopicPartition("t", 1)
HEADER_BYTES = 61
NO_NAMES = {}.get
BATCH = build_batch([(1, b"k", b"v", ())])
ZSTD = build_batch([(1, b"k", b"v" * 500, ())], CompressionType.ZSTD)


def header(length, magic=2, size=HEADER_BYTES):
    """The beginning of a batch that says how long it is behind its own length."""
    data = bytearray(size)
    data[8:12] = length.to_bytes(4, "big")
    data[16] = magic
    return bytes(data)


@pytest.mark.parametrize(
    ("records", "version", "error", "why"),
    [
        (BATCH, 9, None, ""),
        (header(HEADER_BYTES - 12), 9, None, ""),
        (ZSTD, 7, None, ""),
        (ZSTD, 6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ""),
        (None, 9, ErrorCode.CORRUPT_MESSAGE, "0 bytes are too few"),
        (None, 2, ErrorCode.CORRUPT_MESSAGE, "0 bytes are too few"),
        (b"x" * 12, 9, ErrorCode.CORRUPT_MESSAGE, "12 bytes are too few"),
        (b"x" * 12, 2, None, ""),
        (BATCH[:60], 2, ErrorCode.CORRUPT_MESSAGE, "60 bytes are too few"),
        (header(49, magic=1), 3, ErrorCode.INVALID_RECORD, "magic 1 is not 2, the only one that"),
        (header(49, magic=1), 2, None, ""),
        (header(50), 9, ErrorCode.INVALID_RECORD, "its length is 62 and 61 bytes were sent"),
        (header(20, size=70), 2, ErrorCode.INVALID_RECORD, "is 32 and 70 bytes were sent"),
        (BATCH * 2, 9, ErrorCode.INVALID_RECORD, f"is {len(BATCH)} and {2 * len(BATCH)} bytes"),
    ],
)
def test_what_is_not_one_batch_is_refused_with_the_reason(records, version, error, why):
    """Old requests may have message sets, and a lone header may come; the log looks at both."""
    refused = refuse_records(None if records is None else memoryview(records), version)

    assert (None if refused is None else refused.error) == error
    assert why in (getattr(refused, "error_message", None) or "")


class Replicas(ReplicaManager):
    """It notes what is appended, and each batch is refused or taken as `errors` says."""

    def __init__(self):
        self.errors = {}
        self.partitions = {}
        self.appended = {}

    def append_records(self, timeout_ms, acks, entries, respond, *, wait_for):
        self.appended = {tp: bytes(records) for tp, records in entries.items()}
        none = ErrorCode.NONE
        respond({tp: PartitionAppendResult(self.errors.get(tp, none), 5) for tp in entries})


class Leaders:
    """Broker 3 leads everything."""

    def find(self, topic_partition, listener_name, endpoints):
        endpoints[3] = NodeEndpoint(node_id=3, host=listener_name, port=9092)
        return LeaderIdAndEpoch(leader_id=3, leader_epoch=topic_partition.partition)


def produce(handler, batches, version=FIRST_VERSION_WITH_LEADERS, topic_id=NO_UUID, **fields):
    """The answer to batches of topic t by partition."""
    parts = [PartitionProduceData(index=index, records=data) for index, data in batches.items()]
    topic = TopicProduceData(name="t", topic_id=topic_id, partition_data=parts)
    body = ProduceRequest(**{"acks": 1, "topic_data": [topic], **fields})
    context = Context(version)
    handler.handle_produce(context, body)
    (answer,) = context.answers
    return answer


@pytest.mark.parametrize("version", [FIRST_VERSION_WITH_LEADERS - 1, FIRST_VERSION_WITH_LEADERS])
def test_producer_that_should_ask_elsewhere_is_told_the_leader(version):
    """With its address, of partitions that another broker leads, in versions that have it."""
    replicas = Replicas()
    replicas.errors = {T1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    handler = ProduceHandler(replicas, TransactionalProduce(replicas, None), Leaders(), NO_NAMES)
    answer = produce(handler, {0: memoryview(BATCH), 1: memoryview(BATCH)}, version)
    first, second = answer.responses[0].partition_responses
    is_told = version >= FIRST_VERSION_WITH_LEADERS

    assert (first.error_code, first.base_offset) == (0, 5)
    assert second.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    expected = LeaderIdAndEpoch(leader_id=3, leader_epoch=1) if is_told else None
    assert [first.current_leader, second.current_leader] == [None, expected]
    assert [node.host for node in answer.node_endpoints] == ["PLAINTEXT"] * is_told


def test_message_set_without_a_message_needs_its_partition():
    """It is appended nowhere, and is no error where the partition is led here."""
    world = ProduceWorld()

    assert world.error(b"", 2) is ErrorCode.NONE
    world.lead(leader=9, epoch=2)
    assert world.error(b"", 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER


BY_ID = FIRST_VERSION_WITH_IDS
GONE, NEW = UUID(int=6), UUID(int=7)


def test_topic_is_known_by_its_id():
    """Names do not count where the request has ids, and ids do not where it has names."""
    world = ProduceWorld()

    assert world.error(BATCH, BY_ID) is ErrorCode.NONE
    world.topic_id = GONE
    assert world.error(BATCH, BY_ID) is ErrorCode.UNKNOWN_TOPIC_ID
    assert world.error(BATCH, FIRST_VERSION_WITH_IDS - 1) is ErrorCode.NONE
    assert world.end_offset == 2


@pytest.mark.parametrize("asked", [TOPIC_ID, NEW])
def test_nothing_is_appended_to_another_topic_of_the_name(asked):
    """Metadata and logs hear of a topic that is made again one after the other."""
    world = ProduceWorld()
    world.names |= {NEW: world.names.pop(TOPIC_ID)}
    world.topic_id = asked

    assert world.error(BATCH, BY_ID) is ErrorCode.UNKNOWN_TOPIC_ID
    assert world.end_offset == 0


@pytest.mark.usefixtures("core_source")
def test_log_without_an_id_takes_what_its_name_is_sent():
    """One that another system has left, before a controller has given it an id."""
    replicas = Replicas()
    replicas.partitions = {T0: SimpleNamespace(topic_id=NO_UUID)}
    names = {NEW: "t"}.get
    handler = ProduceHandler(replicas, TransactionalProduce(replicas, None), Leaders(), names)
    answer = produce(handler, {0: memoryview(BATCH)}, BY_ID, topic_id=NEW)

    (topic,) = answer.responses
    assert (topic.topic_id, topic.partition_responses[0].error_code) == (NEW, 0)


def test_topics_are_answered_each_by_its_id():
    """Unknown ones in their places, also several with partitions of one number."""
    replicas = Replicas()
    names = {NEW: "t"}.get
    handler = ProduceHandler(replicas, TransactionalProduce(replicas, None), Leaders(), names)
    ids = [GONE, NEW, UUID(int=8)]
    body = ProduceRequest(
        acks=1,
        topic_data=[
            TopicProduceData(
                topic_id=each,
                partition_data=[PartitionProduceData(index=0, records=memoryview(BATCH))],
            )
            for each in ids
        ],
    )
    context = Context(BY_ID)
    handler.handle_produce(context, body)
    (answer,) = context.answers
    unknown = ErrorCode.UNKNOWN_TOPIC_ID

    assert [topic.topic_id for topic in answer.responses] == ids
    lines = [topic.partition_responses[0] for topic in answer.responses]
    assert [line.error_code for line in lines] == [unknown, 0, unknown]
    assert not any(str(each) in (line.error_message or "") for line in lines for each in ids)
    assert list(replicas.appended) == [T0]


# Transactions


def transactional(producer_id=7):
    return build_batch(
        [(1, b"k", b"v", ())],
        is_transactional=True,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=4,
    )


class Verifier:
    """It keeps the questions, for the test to answer."""

    def __init__(self):
        self.asked = []

    def verify(self, producer, sequences, on_verified, *, adds):
        self.asked.append((producer, sequences, adds))
        self.answer = on_verified


def test_transactional_request_has_one_producer():
    """Batches of two are refused; the coordinator is not even asked."""
    replicas, verifier = Replicas(), Verifier()
    handler = ProduceHandler(
        replicas, TransactionalProduce(replicas, verifier), Leaders(), NO_NAMES
    )
    batches = {
        0: memoryview(transactional()),
        1: memoryview(transactional(8)),
        2: memoryview(BATCH),
    }
    answer = produce(handler, batches, transactional_id="x")

    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    (topic,) = answer.responses
    assert [each.error_code for each in topic.partition_responses] == [mapping, mapping, 0]
    assert list(replicas.appended) == [TopicPartition("t", 2)]
    assert verifier.asked == []


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE])
def test_batch_is_appended_as_it_came_when_its_transaction_is_confirmed(error):
    """The network's buffer has other bytes by then."""
    replicas, verifier, answers = Replicas(), Verifier(), []
    body = ProduceRequest(transactional_id="x", acks=1, topic_data=[])
    frame = bytearray(transactional())
    entries = {T0: memoryview(frame)}
    append = TransactionalProduce(replicas, verifier).append
    append(Context(11), body, entries, dict, answers.append)
    frame[:] = bytes(len(frame))
    assert verifier.asked == [(TxnProducer("x", 7, 0), {T0: 4}, False)]
    assert answers == []
    verifier.answer({T0: error} if error else {})

    assert list(replicas.appended.values()) == ([] if error else [transactional()])
    ((result,),) = (answer.values() for answer in answers)
    assert result.error is (ErrorCode.TRANSACTION_ABORTABLE if error else ErrorCode.NONE)


@pytest.mark.usefixtures("core_source")
@pytest.mark.parametrize("is_made_again", [False, True])
def test_topic_that_is_made_again_while_a_transaction_is_confirmed_takes_nothing(is_made_again):
    """The coordinator's answer may come after the topic of the batch has gone."""
    replicas, verifier = Replicas(), Verifier()
    partition = replicas.partitions[T0] = SimpleNamespace(topic_id=NEW, leadership=None)
    names = {NEW: "t"}.get
    handler = ProduceHandler(replicas, TransactionalProduce(replicas, verifier), Leaders(), names)
    part = PartitionProduceData(index=0, records=memoryview(transactional()))
    topic = TopicProduceData(topic_id=NEW, partition_data=[part])
    context = Context(BY_ID)
    handler.handle_produce(
        context, ProduceRequest(transactional_id="x", acks=1, topic_data=[topic])
    )
    if is_made_again:
        partition.topic_id = GONE
    verifier.answer({})
    (answer,) = context.answers
    (line,) = answer.responses[0].partition_responses

    assert line.error_code == (ErrorCode.UNKNOWN_TOPIC_ID if is_made_again else ErrorCode.NONE)
    assert list(replicas.appended) == [T0] * (not is_made_again)
