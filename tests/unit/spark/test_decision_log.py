"""Decisions of a sink: their text is read back as it was, is short, and is written again."""

from __future__ import annotations

import pyarrow as pa
import pytest

import ottla
from ottla.clients.producer.transactions import PreparedTransaction
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.spark import connections, producers
from ottla.spark.decision_log import PIECE_SIZE, DecisionLog, text_of, transactions_of
from ottla.spark.exactly_once import BatchCommitter, TaskAttempt, write_prepared
from ottla.spark.sink_options import SinkOptions
from ottla.structs import TRANSACTION_VERSION
from ottla.testing import InProcessBroker, wait_until

SINK = "ottla-spark-0f4c1f0e-8d4f-4f41-9f5e-4be1cf4e7b55-b0df444f"


def test_transactions_survive_as_text():
    """Transactions of any id are read back as they were."""
    some = [PreparedTransaction("é:,", 2**62, 32767), PreparedTransaction("", 0, 0)]

    assert transactions_of(text_of(some)) == some


def test_decision_of_many_tasks_fits_into_one_offset():
    """Brokers take 4096 bytes, and most batches have fewer tasks."""
    many = [PreparedTransaction(f"{SINK}-{n}-0", 1000 + n, 3) for n in range(300)]

    assert len(text_of(many)) < PIECE_SIZE


@pytest.fixture
def log(ottla_fresh_broker):
    """The log of a sink, and what sets its offset; its client is closed with the broker."""
    servers = ottla_fresh_broker.bootstrap_servers
    with ottla.Admin(servers) as admin:
        admin.create_topics([ottla.NewTopic("out", 1)])
        where = ottla.TopicPartition("out", 0)
        yield (
            DecisionLog(SINK, {"bootstrap.servers": servers}),
            lambda text: admin.alter_group_offsets(SINK, {where: OffsetAndMetadata(5, text)}),
        )
    for client in connections._admins.values():
        client.close()
    connections._admins.clear()


GARBAGE = ("", "x", "1:", "-1:", ":", "1:bm8gemxpYg==", "1:%", "2:eA==", f"1:{text_of([])[:-6]}")


@pytest.mark.parametrize("text", [*GARBAGE, "1:eJxTMFIAAAEwAGM="])
def test_offset_of_somebody_else_is_named(log, text):
    """As of a person who has reset the offsets of the group: it was an error of Python's."""
    decisions, set_offset = log
    assert decisions.newest() is None
    set_offset(text)
    with pytest.raises(
        ValueError, match=f"group {SINK}: its offset is the newest batch .* was set"
    ):
        decisions.newest()


@pytest.mark.parametrize("level", [0, 2])
def test_decider_that_had_nothing_to_decide_for_long_decides_again(level, caplog):
    """The query ended with the first rows after a week, as its transactional id had expired."""
    caplog.set_level("INFO")
    with InProcessBroker(
        transactional_id_expiration_ms=500,
        transaction_remove_expired_transaction_cleanup_interval_ms=10,
    ) as broker:
        broker.create_topic("out", partitions=1)
        servers = broker.bootstrap_servers
        if level:
            with ottla.Admin(servers) as admin:
                admin.update_features({TRANSACTION_VERSION: level})
        options = SinkOptions.for_stream({"kafka.bootstrap.servers": servers, "topic": "out"})
        committer = BatchCommitter(SINK, options.client)
        ids = broker.broker.coordinators.transactions.manager

        def commit(batch_id):
            rows = pa.record_batch([pa.array([b"row"])], ["value"])
            where = TaskAttempt("query", "run", batch_id, 0, 0)
            committer.commit(batch_id, [write_prepared(options, where, iter([rows]))])

        commit(0)
        for batch_id in range(1, 100):  # a transaction may take longer than its id lives
            wait_until(lambda: ids.get(f"{SINK}-driver") is None, "the id to expire")
            try:
                commit(batch_id)
            except ottla.KafkaError:
                continue
            break
        assert committer.has_decided(batch_id)
        assert "deciding again" in caplog.text
        for kept in (
            connections._admins,
            producers._completers,
            producers._transactional_producers,
        ):
            for client in kept.values():
                client.close()
            kept.clear()
