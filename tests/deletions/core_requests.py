"""Asks a broker for what every broker serves: produce, fetch, join, sync and a transaction.

It is run in a process of its own, which imports the copy of Ottla that a test has made.
"""

from __future__ import annotations

import sys

import ottla
from ottla.testing import InProcessBroker, wait_until

LIMIT_S = 60


def produce(servers: str) -> None:
    with ottla.Producer(servers) as producer:
        producer.send("t", b"sent").result(LIMIT_S)


def transact(servers: str) -> None:
    with ottla.Producer(servers, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"committed")
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send("t", b"aborted")
        producer.abort_transaction()


def consume(servers: str) -> set[bytes]:
    """The committed records, read by a member of a group."""
    found: set[bytes] = set()
    with ottla.Consumer(
        servers, group_id="g", auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.subscribe(["t"])
        wait_until(
            lambda: len(found) >= 2,
            "the records",
            LIMIT_S,
            meanwhile=lambda: found.update(record.value for record in consumer.poll(200)),
        )
        consumer.commit()
    return found


def main(folder: str) -> None:
    assert ottla.__file__.startswith(folder), ottla.__file__
    with InProcessBroker() as broker:
        produce(broker.bootstrap_servers)
        transact(broker.bootstrap_servers)
        assert consume(broker.bootstrap_servers) == {b"sent", b"committed"}


if __name__ == "__main__":
    main(sys.argv[1])
