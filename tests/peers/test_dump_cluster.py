"""DumpLogSegments reads what brokers leave: epochs, groups of both protocols, transactions."""

from __future__ import annotations

import json
import re

import pytest
from cluster_load import ClusterView
from confluent_kafka import Consumer, Producer
from dump_log import assert_sane, dump, logs
from peer_cluster import PeerCluster

from ottla import Admin
from ottla.testing import wait_until

LIMIT_S = 60
BROKERS = [1, 2, 3]
COUNT = 40
TOPIC = "led"
REGULAR_EXPRESSION = 16
STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"),
    *("Dead", "PrepareEpochFence"),
)


@pytest.fixture(scope="session")
def stopped_cluster(zookeeper, tmp_path_factory):
    """Stopped: its leaders have died, groups have been mixed, transactions were of two kinds."""
    running = PeerCluster(
        tmp_path_factory.mktemp("dumped"),
        zookeeper=zookeeper,
        chroot="/dumped",
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        log_index_interval_bytes=256,
    ).start()
    view = ClusterView(running.bootstrap_servers)
    try:
        view.create(TOPIC, 1)
        lead_in_turn(running, view)
        share(running.bootstrap_servers)
        for level in (0, 2):
            with Admin(running.bootstrap_servers) as admin:
                admin.update_features({"transaction.version": level})
            transact(running.bootstrap_servers, f"id-{level}")
        for topic in (TOPIC, "__consumer_offsets", "__transaction_state"):
            view.until_all_in_sync(topic, BROKERS)
        assert [running.stop_broker(broker_id) for broker_id in BROKERS] == [0, 0, 0]
        yield running
    finally:
        running.stop()


def lead_in_turn(cluster, view):
    """Records of three leaders, two of which die."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
    for round_ in range(3):
        for number in range(COUNT):
            producer.produce(TOPIC, f"{round_} {number:04d}")
            producer.poll(0)
        assert producer.flush(LIMIT_S) == 0
        if round_ < 2:
            leader = view.leaders(TOPIC)[0]
            cluster.kill_broker(leader)
            wait_until(
                lambda dead=leader: view.leaders(TOPIC).get(0, -1) not in (dead, -1), "a leader"
            )
            cluster.start_broker(leader)
            view.until_all_in_sync(TOPIC, BROKERS)


def share(servers):
    """A group of a classic member and one of the new protocol, then one with a regex."""
    with_group = {"bootstrap.servers": servers, "auto.offset.reset": "earliest"}
    classic = Consumer({**with_group, "group.id": "mixed", "session.timeout.ms": 6000})
    classic.subscribe([TOPIC])
    wait_until(lambda: read(classic), "the classic member reads")
    classic.commit(asynchronous=False)
    modern = Consumer({**with_group, "group.id": "mixed", "group.protocol": "consumer"})
    modern.subscribe([TOPIC, "^another.*"])
    with Admin(servers) as admin:

        def is_mixed() -> bool:
            read(classic)
            read(modern)
            members = admin.describe_groups(["mixed"])["mixed"].members
            return len(members) == 2 and bool(classic.assignment() or modern.assignment())

        wait_until(is_mixed, "both are members")
    classic.close()
    wait_until(lambda: read(modern) or modern.assignment(), "the other member has it")
    modern.close()


def read(consumer) -> bool:
    return any(message.error() is None for message in consumer.consume(100, 0.1))


def transact(servers, transactional_id):
    """One transaction is committed, one aborted."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})
    producer.init_transactions(LIMIT_S)
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(TOPIC, transactional_id)
        assert producer.flush(LIMIT_S) == 0
        end(LIMIT_S)
    with Admin(servers) as admin:

        def is_complete() -> bool:
            (described,) = admin.describe_transactions([transactional_id]).values()
            return described.state == "CompleteAbort"

        wait_until(is_complete, "the last marker is written")


def batch_lines(shown):
    """The lines of batches and records, without where the file is."""
    return [line for line in shown.splitlines() if line.startswith(("baseOffset", "|"))]


def without_position(lines):
    return [re.sub(r"position: \d+ ", "", line) for line in lines]


def test_replicas_hold_the_same_batches(tools, stopped_cluster):
    """Record by record, with the epochs of three leaders, which the checkpoints have as well."""
    folders = [stopped_cluster.folder(broker_id, f"{TOPIC}-0") for broker_id in BROKERS]
    shown = [dump(tools, logs(folder), "--print-data-log") for folder in folders]
    first, *others = (without_position(batch_lines(each)) for each in shown)
    started = {}
    for line in first:
        found = re.search(r"^baseOffset: (\d+) .*partitionLeaderEpoch: (\d+) ", line)
        if found:
            started.setdefault(int(found[2]), int(found[1]))

    assert all(each == first for each in others)
    assert "isvalid: false" not in shown[0]
    assert len(started) >= 3
    assert list(started) == sorted(started)
    for folder in folders:
        _, count, *rows = (folder / "leader-epoch-checkpoint").read_text().splitlines()
        kept = {int(epoch): int(start) for epoch, start in map(str.split, rows)}
        assert len(kept) == int(count)
        assert {epoch: kept.get(epoch) for epoch in started} == started


def test_followers_have_indexes_and_snapshots(tools, stopped_cluster):
    """They agree with the log, as at the leader."""
    folders = [stopped_cluster.folder(broker_id, f"{TOPIC}-0") for broker_id in BROKERS]
    for kind in ("*.index", "*.timeindex"):
        files = [path for folder in folders for path in folder.glob(kind)]
        dump(tools, files)
        assert_sane(tools, files)
    newest = [max(folder.glob("*.snapshot")) for folder in folders]
    assert dump(tools, newest).count("producerId: ") >= 2 * len(BROKERS)
    aborted = [path for folder in folders for path in folder.glob("*.txnindex")]
    assert dump(tools, aborted).count("producerId: ") == 2 * len(BROKERS)


def keys(shown):
    """The types of the coordinator's records, by what their keys hold."""
    found = re.findall(r" key: (\{.*?\}\}) payload: ", shown)
    return [(int(key["type"]), key["data"]) for key in map(json.loads, found)]


def test_groups_of_both_protocols_are_decoded(tools, stopped_cluster):
    """KIP-848's records of the group, of its members of both kinds, and of what is assigned."""
    folder = stopped_cluster.folder(1, "__consumer_offsets-0")
    shown = dump(tools, logs(folder), "--offsets-decoder")
    unknown = re.findall(r"Unknown record type (\d+)", shown)

    assert "isvalid: false" not in shown
    # Kafka 3.9 does not know the record of a regular expression yet.
    assert set(unknown) == ({str(REGULAR_EXPRESSION)} if tools.version == "3.9" else set())
    found = keys(shown)
    assert {kind for kind, _ in found} | set(map(int, unknown)) == {
        *range(1, 9),
        REGULAR_EXPRESSION,
    }
    assert {data.get("group", data.get("groupId")) for _, data in found} == {"mixed"}
    assert shown.count('"classicMemberMetadata":{"sessionTimeoutMs":6000') >= 1
    assert re.search(r'"subscribedTopicRegex":".*another', shown)


def test_transactions_of_both_versions_are_decoded(tools, stopped_cluster):
    """Each state of each, by its name or its number."""
    folder = stopped_cluster.folder(1, "__transaction_state-0")
    shown = dump(tools, logs(folder), "--transaction-log-decoder")

    assert "isvalid: false" not in shown
    for level in (0, 2):
        lines = [line for line in shown.splitlines() if f"id-{level}" in line]
        states = [state(line) for line in lines]
        epochs = [int(epoch) for epoch in re.findall(r'producerEpoch"?:(\d+)', "".join(lines))]
        assert states == [
            "Empty",
            *("Ongoing", "PrepareCommit", "CompleteCommit"),
            *("Ongoing", "PrepareAbort", "CompleteAbort"),
        ], shown
        assert epochs == sorted(epochs)


def state(line):
    """By its name, which Kafka 4 has left out."""
    numbered = re.search(r'"transactionStatus":(\d)', line)
    return STATES[int(numbered[1])] if numbered else re.search(r"state=(\w+)", line)[1]
