"""No transaction holds up the readers of committed data for ever."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading

import pytest
from first_values import LIMIT_SECONDS, first_values

from ottla import Admin, Producer, TopicPartition

TOPIC = "held"
PARTITION = TopicPartition(TOPIC, 0)

DIES = """
import os, sys
from ottla import Producer
producer = Producer(sys.argv[1], transactional_id="dies", transaction_timeout_ms=1000)
producer.init_transactions()
producer.begin_transaction()
producer.send("held", b"never", partition=0).result(30)
os._exit(9)
"""


def die_in_a_transaction(broker):
    """A producer in a process of its own, which ends with its transaction open."""
    command = [sys.executable, "-c", DIES, broker.bootstrap_servers]
    assert subprocess.run(command, timeout=LIMIT_SECONDS, check=False).returncode == 9


def ottla(broker, *words):
    """What `ottla transactions` prints below the header, as rows of cells."""
    command = [sys.executable, "-m", "ottla", "transactions"]
    done = subprocess.run(
        [*command, "--bootstrap-server", broker.bootstrap_servers, *words],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()[1:]]


def read_committed(broker, count):
    return first_values(broker.bootstrap_servers, PARTITION, count)


def test_transaction_of_a_producer_that_died_is_aborted_when_its_time_is_over(start_broker):
    """A reader that waits behind it goes on by itself (F41)."""
    broker = start_broker(transaction_abort_timed_out_transaction_cleanup_interval_ms=200)
    die_in_a_transaction(broker)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(TOPIC, b"behind", partition=0)
    with Admin(broker.bootstrap_servers) as admin:
        assert admin.list_offsets({PARTITION: -1}, "read_committed")[PARTITION].offset == 0

    assert read_committed(broker, 1) == [b"behind"]
    (row,) = ottla(broker, "list")
    assert row[:1] + row[3:] == ["dies", "CompleteAbort"]


@pytest.mark.parametrize("names_the_producer", [False, True])
def test_transaction_that_its_coordinator_has_lost_is_found_and_aborted(
    start_broker, names_the_producer
):
    """The log of the coordinators is gone; the partition still has the transaction open."""
    broker = start_broker(transaction_state_log_num_partitions=1)
    die_in_a_transaction(broker)
    broker.kill()
    shutil.rmtree(broker.data_dir / "__transaction_state-0")
    broker.start()
    waiting = threading.Thread(target=read_committed, args=(broker, 1))
    with Producer(broker.bootstrap_servers) as producer:
        producer.send(TOPIC, b"behind", partition=0)
    waiting.start()

    assert ottla(broker, "list") == []
    (hanging,) = ottla(broker, "find-hanging", "--topic", TOPIC, "--max-transaction-timeout", "0")
    topic, partition, producer_id, epoch, coordinator_epoch, start, *_ = hanging
    where = ("--topic", topic, "--partition", partition)
    which = ["--start-offset", start]
    if names_the_producer:
        which = ["--producer-id", producer_id, "--producer-epoch", epoch]
        which += ["--coordinator-epoch", coordinator_epoch]
    assert ottla(broker, "abort", *where, *which) == []
    assert ottla(broker, "find-hanging", *where, "--max-transaction-timeout", "0") == []
    waiting.join(LIMIT_SECONDS)
    assert not waiting.is_alive()
    assert read_committed(broker, 1) == [b"behind"]
