"""No transaction holds up the readers of committed data for ever."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading

import pytest
from command_here import run_here
from first_values import LIMIT_SECONDS, first_values

from ottla import Admin, Producer, TopicPartition

TOPIC = "held"
LONG_MS = 600_000

DIES = """
import os, sys
from ottla import Producer
servers, topic, timeout_ms = sys.argv[1:]
producer = Producer(servers, transactional_id="dies", transaction_timeout_ms=int(timeout_ms))
producer.init_transactions()
producer.begin_transaction()
producer.send(topic, b"never", partition=0).result(60)
os._exit(9)
"""


def die_in_a_transaction(broker, topic=TOPIC, timeout_ms=LONG_MS):
    """A producer in a process of its own, which ends with its transaction open."""
    command = [sys.executable, "-c", DIES, broker.bootstrap_servers, topic, str(timeout_ms)]
    assert subprocess.run(command, timeout=LIMIT_SECONDS, check=False).returncode == 9


def stable_offset(broker, topic):
    """Up to where readers of committed data see."""
    partition = TopicPartition(topic, 0)
    with Admin(broker.bootstrap_servers) as admin:
        return admin.list_offsets({partition: -1}, "read_committed")[partition].offset


def ottla(broker, *words):
    """What `ottla transactions` prints below the header, as rows of cells."""
    done = run_here("transactions", "--bootstrap-server", broker.bootstrap_servers, *words)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()[1:]]


def read_committed(broker, count, topic=TOPIC):
    return first_values(broker.bootstrap_servers, TopicPartition(topic, 0), count)


def write_behind_an_open_transaction(broker):
    """A record that is held up; the topic.

    On a busy machine the time of the transaction may be over before it is looked at: then another
    one gets more of it.
    """
    for timeout_ms in (1000, 4000, 16_000, 48_000):
        topic = f"{TOPIC}-for-{timeout_ms}"
        die_in_a_transaction(broker, topic, timeout_ms)
        with Producer(broker.bootstrap_servers) as producer:
            producer.send(topic, b"behind", partition=0)
        if stable_offset(broker, topic) == 0:
            return topic
    raise AssertionError("no transaction was seen to be open")


def test_transaction_of_a_producer_that_died_is_aborted_when_its_time_is_over(start_broker):
    """A reader that waits behind it goes on by itself."""
    broker = start_broker(transaction_abort_timed_out_transaction_cleanup_interval_ms=200)
    topic = write_behind_an_open_transaction(broker)

    assert read_committed(broker, 1, topic) == [b"behind"]
    while (rows := ottla(broker, "list"))[0][3:] == ["PrepareAbort"]:
        pass  # a reader may have seen the marker before its coordinator hears that it is there
    assert [row[:1] + row[3:] for row in rows] == [["dies", "CompleteAbort"]]


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
