"""Defaults of one layer fit those of the next: sizes go up, and who waits waits for longer.

The numbers are read where they are declared: in the tables of settings, and beside the code that
has a number of its own.
"""

from __future__ import annotations

import pytest

from ottla.cli import connect as cli
from ottla.clients.dead_letter_headers import LARGEST_LETTER
from ottla.clients.partition_reader import SCAN_FETCH_BYTES
from ottla.clients.producer import bulk
from ottla.clients.producer.producer_batch import RECORD_OVERHEAD
from ottla.config.broker_config import BrokerConfig
from ottla.config.client_config import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.config.config_def import ConfigTable
from ottla.config.connect_config import DistributedConfig, SinkConnectorConfig, WorkerConfig
from ottla.config.legacy_config import LegacyProducerConfig, ZooKeeperConsumerConfig
from ottla.config.mirror_config import MirrorConfig
from ottla.config.topic_config import TopicConfig
from ottla.connect import (
    distributed_herder,
    exactly_once,
    redrive,
    rest,
    source_task,
    tolerance,
    worker,
)
from ottla.connect.connectors import http, log_folder, mqtt, warehouse
from ottla.extensions.audit import audit_log
from ottla.mirror import flow
from ottla.mirror import source_task as mirror
from ottla.pipelines import access_log, topics, web_traffic
from ottla.record.record import LOG_OVERHEAD
from ottla.record.record_batch import BATCH_OVERHEAD
from ottla.server import slicing
from ottla.spark import checkpoint_topic, decision_log
from ottla.spark import exactly_once as spark

UNITS_MS = {"ms": 1, "seconds": 1000, "minutes": 60_000, "hours": 3_600_000}


def default(table: type[ConfigTable], key: str) -> int:
    """The default of a setting; a number, or the test has to be written anew."""
    found = table.keys[key].default
    assert type(found) is int, key
    return found


def broker(key: str) -> int:
    return default(BrokerConfig, key)


def producer(key: str) -> int:
    return default(ProducerConfig, key)


def consumer(key: str) -> int:
    return default(ConsumerConfig, key)


def worker_of(key: str) -> int:
    return default(DistributedConfig, key)


LARGEST_RECORD = producer("max.request.size") - BATCH_OVERHEAD - RECORD_OVERHEAD
SIZES = {
    "a producer's batch and a broker's": [
        producer("batch.size"),
        producer("max.request.size"),
        broker("message.max.bytes"),
        broker("log.segment.bytes"),
    ],
    "a producer's request and a broker's": [
        producer("max.request.size"),
        producer("buffer.memory"),
        broker("socket.request.max.bytes"),
    ],
    "what is fetched of a partition, and at once": [
        consumer("max.partition.fetch.bytes"),
        consumer("fetch.max.bytes"),
        broker("fetch.max.bytes"),
    ],
    "what a follower fetches": [
        broker("replica.fetch.max.bytes"),
        broker("replica.fetch.response.max.bytes"),
    ],
    "a batch that a follower, or a consumer, asks for, with its place in the log": [
        broker("message.max.bytes"),
        broker("replica.fetch.max.bytes") + LOG_OVERHEAD,
    ],
    "the same of a consumer": [
        broker("message.max.bytes"),
        consumer("max.partition.fetch.bytes") + LOG_OVERHEAD,
    ],
    "segments of the brokers' own topics": [
        broker("message.max.bytes"),
        broker("offsets.topic.segment.bytes"),
    ],
    "segments of transactions": [
        broker("message.max.bytes"),
        broker("transaction.state.log.segment.bytes"),
    ],
    "records of the audit log": [audit_log.MAX_BATCH_BYTES, broker("message.max.bytes")],
    "metrics of a client": [broker("telemetry.max.bytes"), slicing.MAX_FRAME_BYTES],
    "metadata of an offset that redrive writes": [
        redrive.METADATA_CHARACTERS,
        broker("offset.metadata.max.bytes"),
    ],
    "metadata of an offset that Spark's sink writes": [
        decision_log.PIECE_SIZE,
        broker("offset.metadata.max.bytes"),
    ],
    "a batch of Spark's sink": [
        bulk.MIN_BATCH_BYTES,
        bulk.DEFAULT_BATCH_BYTES,
        LARGEST_RECORD,
    ],
    "a piece of a checkpoint": [checkpoint_topic.PIECE_BYTES, LARGEST_RECORD],
    "what Spark's source fetches": [
        SCAN_FETCH_BYTES,
        consumer("fetch.max.bytes"),
    ],
    "a batch of a source connector": [source_task.MOST_BATCH_BYTES, LARGEST_RECORD],
    "a line of a log folder": [
        default(log_folder.LogFolderSettings, "max.line.bytes") + log_folder.ENVELOPE_BYTES,
        producer("max.request.size"),
    ],
    "the largest record as a dead letter": [
        broker("message.max.bytes") + (1 << 16),
        LARGEST_LETTER,
        int(tolerance.FOR_LETTERS["max.message.bytes"]),
    ],
    "what the producer of dead letters keeps": [LARGEST_LETTER, producer("buffer.memory")],
    "a request of dead letters": [LARGEST_LETTER, broker("socket.request.max.bytes")],
    "a batch that a mirror copies": [
        broker("message.max.bytes"),
        flow.LARGEST_REQUEST,
        int(mirror.PRODUCER_SETTINGS["max.request.size"]),
        int(mirror.PRODUCER_SETTINGS["buffer.memory"]),
        broker("socket.request.max.bytes"),
    ],
    "a dead letter of a mirror": [flow.LARGEST_REQUEST, LARGEST_LETTER],
    "what a mirror fetches": [mirror.FETCH_BYTES, consumer("fetch.max.bytes")],
    "a line of a log that is published": [
        access_log.LONGEST_LINE + topics.OVERHEAD,
        producer("max.request.size"),
    ],
    "a dead letter of a pipeline": [
        web_traffic.LONGEST_LETTER + topics.OVERHEAD,
        producer("max.request.size"),
    ],
    "a row with a line that did not parse, as JSON": [
        log_folder.MOST_ESCAPED * web_traffic.LONGEST_RAW,
        LARGEST_RECORD,
    ],
    "a message of an old producer": [
        default(LegacyProducerConfig, "max.message.size") + LOG_OVERHEAD + RECORD_OVERHEAD,
        default(ZooKeeperConsumerConfig, "fetch.size"),
    ],
    "what a new producer writes, for an old consumer": [
        producer("max.request.size"),
        default(ZooKeeperConsumerConfig, "fetch.size"),
    ],
}
"""Numbers of bytes, none of them greater than the next."""

TIMES = {
    "pauses of a client": [producer("retry.backoff.ms"), producer("retry.backoff.max.ms")],
    "pauses of a connection": [
        producer("reconnect.backoff.ms"),
        producer("reconnect.backoff.max.ms"),
        producer("socket.connection.setup.timeout.ms"),
        producer("request.timeout.ms"),
    ],
    "a record": [
        producer("linger.ms") + producer("request.timeout.ms"),
        producer("delivery.timeout.ms"),
    ],
    "a record while a follower hangs": [
        broker("replica.lag.time.max.ms") + producer("request.timeout.ms"),
        producer("delivery.timeout.ms"),
    ],
    "a record while a broker is lost": [
        broker("zookeeper.session.timeout.ms") + producer("request.timeout.ms"),
        producer("delivery.timeout.ms"),
    ],
    "a sequence number that is tried again": [
        producer("delivery.timeout.ms"),
        broker("producer.id.expiration.ms"),
    ],
    "a send that blocks": [producer("request.timeout.ms"), producer("max.block.ms")],
    "a call of a consumer": [
        consumer("fetch.max.wait.ms"),
        consumer("request.timeout.ms"),
        consumer("default.api.timeout.ms"),
    ],
    "a call of an admin client": [
        default(AdminConfig, "request.timeout.ms"),
        default(AdminConfig, "default.api.timeout.ms"),
    ],
    "a commit": [broker("offsets.commit.timeout.ms"), consumer("request.timeout.ms")],
    "a connection that is not used": [
        consumer("connections.max.idle.ms"),
        broker("connections.max.idle.ms"),
    ],
    "a fetch of a follower": [
        broker("replica.fetch.wait.max.ms"),
        broker("replica.lag.time.max.ms"),
        broker("replica.socket.timeout.ms"),
    ],
    "a member that lives": [
        3 * consumer("heartbeat.interval.ms"),
        consumer("session.timeout.ms"),
        consumer("max.poll.interval.ms"),
    ],
    "a session as brokers allow it": [
        broker("group.min.session.timeout.ms"),
        worker_of("session.timeout.ms"),
        consumer("session.timeout.ms"),
        broker("group.max.session.timeout.ms"),
    ],
    "a worker that lives": [
        3 * worker_of("heartbeat.interval.ms"),
        worker_of("session.timeout.ms"),
        worker_of("rebalance.timeout.ms"),
        worker_of("scheduled.rebalance.max.delay.ms"),
    ],
    "a session of the consumer protocol": [
        3 * broker("group.consumer.heartbeat.interval.ms"),
        broker("group.consumer.min.session.timeout.ms"),
        broker("group.consumer.session.timeout.ms"),
        broker("group.consumer.max.session.timeout.ms"),
    ],
    "heartbeats of the consumer protocol": [
        broker("group.consumer.min.heartbeat.interval.ms"),
        broker("group.consumer.heartbeat.interval.ms"),
        broker("group.consumer.max.heartbeat.interval.ms"),
    ],
    "the first members of a group": [
        broker("group.initial.rebalance.delay.ms"),
        consumer("session.timeout.ms"),
    ],
    "offsets of what is kept": [
        60 * broker("log.retention.hours"),
        broker("offsets.retention.minutes"),
    ],
    "a transaction": [
        broker("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        producer("transaction.timeout.ms"),
        broker("transaction.max.timeout.ms"),
        broker("transactional.id.expiration.ms"),
    ],
    "a request in a transaction": [
        producer("request.timeout.ms"),
        producer("transaction.timeout.ms"),
    ],
    "a transaction of an exactly-once source": [
        default(WorkerConfig, "offset.flush.interval.ms") + exactly_once.TIMEOUT_MS,
        exactly_once.LONGEST_TIMEOUT_MS,
        broker("transaction.max.timeout.ms"),
    ],
    "a transaction of Spark's sink": [
        int(spark.TRANSACTION_TIMEOUT_MS),
        broker("transaction.max.timeout.ms"),
    ],
    "offsets of sources": [
        worker_of("offset.flush.timeout.ms"),
        worker_of("offset.flush.interval.ms"),
    ],
    "the end of a task, within a rebalance": [
        worker_of("offset.flush.timeout.ms"),
        worker_of("task.shutdown.graceful.timeout.ms"),
        worker_of("rebalance.timeout.ms") - worker_of("offset.flush.timeout.ms"),
    ],
    "the end of a driver of the warehouse": [
        int(warehouse.STOP_S * 1000),
        worker_of("task.shutdown.graceful.timeout.ms"),
    ],
    "a call of a plug-in, a request for it, and the command that waits for the answer": [
        worker_of("plugin.call.warn.ms"),
        int(worker.PLUGIN_LIMIT_S * 1000),
        int(rest.REQUEST_LIMIT_S * 1000),
        int(cli.LIMIT_S * 1000) - 1,
    ],
    "a change of a connector": [
        distributed_herder.WRITE_LIMIT_MS,
        int(rest.REQUEST_LIMIT_S * 1000),
    ],
    "a sink that tries again, within its poll interval": [
        default(SinkConnectorConfig, "errors.retry.delay.max.ms"),
        consumer("max.poll.interval.ms"),
    ],
    "a put of HttpSink": [
        http.LONGEST_PUT_MS + default(http.HttpSinkSettings, "request.timeout.ms"),
        consumer("max.poll.interval.ms"),
    ],
    "a put of MqttSink": [
        default(mqtt.MqttSettings, "request.timeout.ms"),
        consumer("max.poll.interval.ms"),
    ],
    "pauses of an endpoint": [
        default(http.HttpSettings, "retry.backoff.ms"),
        default(http.HttpSettings, "retry.backoff.max.ms"),
        http.MOST_PAUSE_MS,
    ],
    "offsets of a mirror and its checkpoints": [
        default(MirrorConfig, "offset.flush.interval.ms"),
        1000 * default(MirrorConfig, "emit.checkpoints.interval.seconds"),
    ],
    "tokens": [
        broker("delegation.token.expiry.check.interval.ms"),
        broker("delegation.token.expiry.time.ms"),
        broker("delegation.token.max.lifetime.ms"),
    ],
}
"""Times, in milliseconds if they have no other unit, none of them longer than the next."""


@pytest.mark.parametrize("name", [*SIZES, *TIMES])
def test_defaults_do_not_contradict(name):
    """What one layer hands on, or waits for, is no more than the next takes, or allows."""
    numbers = (SIZES | TIMES)[name]
    assert numbers == sorted(numbers)


def test_defaults_of_topics_are_those_of_their_broker():
    """A topic without a setting of its own has the broker's, in whatever unit that is written."""
    wrong = []
    for name, row in TopicConfig.keys.items():
        defaults = [_in_ms(key) for key in row.broker_keys if key in BrokerConfig.keys]
        found = next((value for value in defaults if value is not None), None)
        if row.broker_keys and found != row.default:
            wrong.append((name, row.default, row.broker_keys, defaults))
    assert not wrong


def _in_ms(key: str) -> object:
    found = BrokerConfig.keys[key].default
    unit = UNITS_MS.get(key.rpartition(".")[2], 1)
    return found * unit if isinstance(found, int) and unit > 1 else found
