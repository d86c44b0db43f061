"""Requests of a transaction that arrive when the next one has begun are refused."""

from __future__ import annotations

import confluent_kafka
import pytest
from first_values import LIMIT_SECONDS, first_values
from frame_proxy import FrameProxy

from ottla import Admin, KafkaError, NewTopic, Producer, TopicPartition
from ottla.errors import ErrorCode
from ottla.protocol.produce import ProduceRequest
from ottla.protocol.transactions import EndTxnRequest
from ottla.runtime.free_port import free_port

TOPIC = "delayed"
PARTITION = TopicPartition(TOPIC, 0)
LONG_MS = 3000


@pytest.fixture
def proxy():
    """In front of the broker, which tells clients to come by it."""
    proxy = FrameProxy()
    yield proxy
    proxy.close()


@pytest.fixture(params=[0, 2], ids="transaction.version {}".format)
def level(request):
    """Without and with an epoch for each transaction."""
    return request.param


@pytest.fixture
def broker(start_broker, proxy, level):
    """A broker behind the proxy, with transaction.version at that level."""
    port = free_port("127.0.0.1")
    start_broker(
        listeners=f"PLAINTEXT://127.0.0.1:{port}",
        advertised_listeners=f"PLAINTEXT://127.0.0.1:{proxy.port}",
    )
    proxy.start(port)
    with Admin(f"127.0.0.1:{proxy.port}") as admin:
        admin.create_topics([NewTopic(TOPIC, 1, 1)])
        if level:
            admin.update_features({"transaction.version": level})


@pytest.fixture
def producer(broker, proxy):
    """A producer that does not wait long for answers, but long enough where a machine is busy."""
    limits = {"request_timeout_ms": 3000, "delivery_timeout_ms": 3000, "linger_ms": 0}
    with Producer(f"127.0.0.1:{proxy.port}", transactional_id="till", **limits) as producer:
        producer.init_transactions()
        yield producer


def send(producer, value):
    """Send a record and wait until the broker has it."""
    producer.begin_transaction()
    producer.send(TOPIC, value, partition=0).result(LIMIT_SECONDS)


def read(proxy, isolation, count):
    return first_values(f"127.0.0.1:{proxy.port}", PARTITION, count, isolation)


def stable_offset(proxy):
    """Up to where readers of committed data see."""
    with Admin(f"127.0.0.1:{proxy.port}") as admin:
        return admin.list_offsets({PARTITION: -1}, "read_committed")[PARTITION].offset


def test_produce_that_comes_in_the_next_transaction_is_refused(proxy, producer):
    """Its producer has given it up, and has aborted; it must not get into what is open now."""
    producer.begin_transaction()
    proxy.hold(ProduceRequest)
    late = producer.send(TOPIC, b"late", partition=0)
    proxy.wait_until_held()
    with pytest.raises(KafkaError):
        late.result(LIMIT_SECONDS)
    producer.abort_transaction()
    send(producer, b"next")

    answer = proxy.release().responses[0].partition_responses[0]
    assert ErrorCode.of(answer.error_code) is ErrorCode.INVALID_PRODUCER_EPOCH
    producer.commit_transaction()
    send(producer, b"last")
    producer.commit_transaction()
    assert read(proxy, "read_uncommitted", 2) == [b"next", b"last"]
    assert read(proxy, "read_committed", 2) == [b"next", b"last"]


def test_end_that_comes_in_the_next_transaction_is_refused(proxy, producer, level):
    """A commit that was sent twice must not commit what its producer then aborts."""
    send(producer, b"first")
    proxy.hold(EndTxnRequest, hangs_up=True)
    producer.commit_transaction()
    proxy.wait_until_held()
    send(producer, b"torn")
    began = stable_offset(proxy)

    refusal = ErrorCode.PRODUCER_FENCED if level else ErrorCode.NOT_COORDINATOR
    assert ErrorCode.of(proxy.release().error_code) is refusal
    assert stable_offset(proxy) == began
    producer.abort_transaction()
    send(producer, b"second")
    producer.commit_transaction()
    assert read(proxy, "read_uncommitted", 3) == [b"first", b"torn", b"second"]
    assert read(proxy, "read_committed", 2) == [b"first", b"second"]


def test_batch_whose_answer_was_lost_before_an_abort_does_not_swallow_the_next_one(broker, proxy):
    """librdkafka numbers the next transaction's batch as the one that it gave up; it is kept."""
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{proxy.port}",
            "transactional.id": "gives-up",
            "linger.ms": 0,
            "retry.backoff.ms": LONG_MS,
            "retry.backoff.max.ms": LONG_MS,
        }
    )
    producer.init_transactions(LIMIT_SECONDS)
    producer.begin_transaction()
    proxy.hold(ProduceRequest, hangs_up=True)
    producer.produce(TOPIC, b"given up", partition=0)
    proxy.wait_until_held()
    proxy.release()
    producer.abort_transaction(LIMIT_SECONDS)

    commit(producer, b"kept")

    assert read(proxy, "read_committed", 1) == [b"kept"]


def commit(producer, value):
    """Commit a record by as many transactions as it takes, as librdkafka asks its users to do."""
    while True:
        producer.begin_transaction()
        producer.produce(TOPIC, value, partition=0)
        try:
            producer.commit_transaction(LIMIT_SECONDS)
        except confluent_kafka.KafkaException as refused:
            if not refused.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(LIMIT_SECONDS)
        else:
            return
