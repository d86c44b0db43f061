"""What flushes and transactions show of themselves, read over HTTP."""

from __future__ import annotations

from http_pages import bean, metrics_of, scrape

import ottla
from ottla.testing import InProcessBroker, wait_until


def test_flushes_are_timed():
    """Each fsync of a log counts, with how long it took."""
    with InProcessBroker(metrics_listener="http://127.0.0.1:0") as broker:
        url = str(metrics_of(broker.broker).end_point)
        broker.create_topic("flushed", flush_messages=1)
        name = "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"
        before = bean(url, name)["Count"]
        with ottla.Producer(broker.bootstrap_servers) as producer:
            producer.send("flushed", b"x").result(60)

        assert bean(url, name)["Count"] > before


def test_directory_that_has_failed_is_told_by_its_path():
    """An alert can say which disk it is."""
    name = "kafka_log_logmanager_"
    with InProcessBroker(metrics_listener="http://127.0.0.1:0") as broker:
        url = str(metrics_of(broker.broker).end_point)
        (log_dir,) = broker.broker.log_manager.dirs
        tags = (("logDirectory", log_dir.path),)
        for failed in (0, 1):
            log_dir.is_offline = bool(failed)
            found = scrape(url, name)
            assert found[f"{name}logdirectoryoffline", tags] == failed
            assert found[f"{name}offlinelogdirectorycount", ()] == failed
        log_dir.is_offline = False


def test_open_transactions_are_confirmed_timed_and_late_at_last():
    """A coordinator is asked about the first batch; one that never ends is an alert."""
    of_verifier = "kafka.server:type=AddPartitionsToTxnManager,name="
    late = "kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount"
    with InProcessBroker(metrics_listener="http://127.0.0.1:0") as broker:
        url = str(metrics_of(broker.broker).end_point)
        broker.create_topic("moves")
        with ottla.Producer(broker.bootstrap_servers, transactional_id="mover") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("moves", b"x").result(60)
            assert bean(url, of_verifier + "VerificationTimeMs")["Count"] == 1
            assert bean(url, of_verifier + "VerificationFailureRate")["Count"] == 0
            assert bean(url, late)["Value"] == 0
            (partition,) = (
                each
                for each in broker.broker.replica_manager.partitions.values()
                if each.topic_partition.topic == "moves"
            )
            for entry in partition.log.producer_state_manager.producers.values():
                entry.last_timestamp_ms -= 19 * 60 * 1000
                assert bean(url, late)["Value"] == 0
                entry.last_timestamp_ms -= 2 * 60 * 1000
            assert bean(url, late)["Value"] == 1
            producer.commit_transaction()
        wait_until(lambda: bean(url, late)["Value"] == 0, "the end of the transaction")
