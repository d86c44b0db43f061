"""A process with state in memory that another takes over, from its journal, after it was killed.

    python examples/uses/take_over.py --bootstrap-server localhost:9092 --fail-after 150
    python examples/uses/take_over.py --bootstrap-server localhost:9092

The state is the balance of each account; every change goes to a compacted
journal in the same transaction as the offset of the payment that made it. Whoever comes next with
the same transactional id shuts out the one before, reads the journal, and goes on: no payment is
counted twice and none is lost, wherever the first one stopped.
"""

from __future__ import annotations

import argparse
import os

from ottla import Admin, Consumer, KafkaError, NewTopic, Producer, TopicPartition

PAYMENTS = TopicPartition("payments", 0)
JOURNAL = TopicPartition("balances", 0)
GROUP = "ledger"
BATCH = 20


class Ledger:
    """The balances, restored from the journal when it begins."""

    def __init__(self, servers: str) -> None:
        self.producer = Producer(servers, transactional_id=GROUP)
        self.producer.init_transactions()  # from here on, a predecessor that still runs is refused
        self.balances: dict[bytes, int] = {}
        self.restored = self._restore(servers)
        self.consumer = Consumer(
            servers,
            group_id=GROUP,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_poll_records=BATCH,
        )
        self.consumer.assign([PAYMENTS])

    def _restore(self, servers: str) -> int:
        """Read the journal up to its end, committed transactions only."""
        count = 0
        with Consumer(servers, isolation_level="read_committed") as journal:
            journal.assign([JOURNAL])
            journal.seek_to_beginning([JOURNAL])
            end = journal.end_offsets([JOURNAL])[JOURNAL]
            while journal.position(JOURNAL) < end:
                for record in journal.poll(timeout_ms=500):
                    self.balances[record.key] = int(record.value)
                    count += 1
        return count

    def handle(self, fail_after: int | None = None) -> int:
        """Handle payments up to the end of the topic; returns how many.

        With `fail_after` the process is gone after so many, within a transaction.
        """
        handled = 0
        end = self.consumer.end_offsets([PAYMENTS])[PAYMENTS]
        while self.consumer.position(PAYMENTS) < end:
            records = self.consumer.poll(timeout_ms=500)
            with self.producer.transaction():
                for record in records:
                    balance = self.balances.get(record.key, 0) + int(record.value)
                    self.balances[record.key] = balance
                    self.producer.send(JOURNAL.topic, str(balance), key=record.key)
                    handled += 1
                    if handled == fail_after:
                        self.producer.flush()
                        print(f"killed after {handled} payments, within a transaction", flush=True)
                        os._exit(1)
                offsets = {PAYMENTS: self.consumer.position(PAYMENTS)}
                self.producer.send_offsets_to_transaction(offsets, self.consumer.group_metadata())
        return handled

    def close(self) -> None:
        self.consumer.close()
        self.producer.close()


def pay(servers: str, count: int) -> None:
    """Make the topics, and payments of 1 to each of ten accounts in turn; once."""
    with Admin(servers) as admin:
        try:
            admin.create_topics(
                [
                    NewTopic(PAYMENTS.topic, num_partitions=1),
                    NewTopic(
                        JOURNAL.topic, num_partitions=1, configs={"cleanup.policy": "compact"}
                    ),
                ]
            )
        except KafkaError as error:
            if error.error.name != "TOPIC_ALREADY_EXISTS":
                raise
            return
    with Producer(servers, acks="all", linger_ms=5) as producer:
        for number in range(count):
            producer.send(PAYMENTS.topic, "1", key=f"account {number % 10}")


def run(servers: str, count: int = 400, fail_after: int | None = None) -> dict[bytes, int]:
    """Be the ledger until all payments are handled; returns the balances."""
    pay(servers, count)
    ledger = Ledger(servers)
    print(f"restored {len(ledger.balances)} accounts from {ledger.restored} changes", flush=True)
    handled = ledger.handle(fail_after)
    total = sum(ledger.balances.values())
    print(f"handled {handled} payments; the accounts hold {total}, of {count} that were paid")
    ledger.close()
    return ledger.balances


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--bootstrap-server", default="localhost:9092")
    arguments.add_argument("--fail-after", type=int, metavar="PAYMENTS")
    given = arguments.parse_args()
    run(given.bootstrap_server, fail_after=given.fail_after)
