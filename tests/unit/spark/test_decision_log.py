"""The text of a decision: what goes in comes out, and it is short."""

from __future__ import annotations

import pytest

import ottla
from ottla.clients.producer.transactions import PreparedTransaction
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.spark import connections
from ottla.spark.decision_log import PIECE_SIZE, DecisionLog, text_of, transactions_of

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
