"""The text of a decision: what goes in comes out, and it is short."""

from __future__ import annotations

from ottla.clients.producer.transactions import PreparedTransaction
from ottla.spark.decision_log import PIECE_SIZE, text_of, transactions_of

SINK = "ottla-spark-0f4c1f0e-8d4f-4f41-9f5e-4be1cf4e7b55-b0df444f"


def test_transactions_survive_as_text():
    """Transactions of any id are read back as they were."""
    some = [PreparedTransaction("é:,", 2**62, 32767), PreparedTransaction("", 0, 0)]

    assert transactions_of(text_of(some)) == some


def test_decision_of_many_tasks_fits_into_one_offset():
    """Brokers take 4096 bytes, and most batches have fewer tasks."""
    many = [PreparedTransaction(f"{SINK}-{n}-0", 1000 + n, 3) for n in range(300)]

    assert len(text_of(many)) < PIECE_SIZE
