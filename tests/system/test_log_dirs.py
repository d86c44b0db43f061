"""A broker with two log directories: one fails, and replicas move from one to the other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_here import run_here
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka.structs import TopicPartitionReplica

from ottla import Admin
from ottla.clients.admin.log_dirs import TopicPartitionReplica as Replica
from ottla.errors import ErrorCode
from ottla.structs import TopicPartition as Partition
from ottla.testing import wait_until

LIMIT_SECONDS = 60
SHORT_SECONDS = 3
TOPIC = "spread"
# How soon a directory is written to, for whatever reason, and so how soon it is missed.
SOON = {"replica_high_watermark_checkpoint_interval_ms": 100}


@pytest.fixture
def dirs(tmp_path):
    return [tmp_path / "one", tmp_path / "two"]


@pytest.fixture
def broker(start_broker, dirs):
    process = start_broker(log_dirs=",".join(map(str, dirs)), **SOON)
    create(process, TOPIC, 4)
    assert set(produce(process, TOPIC, range(4)).values()) == {None}
    return process


def create(process, topic, partitions):
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(LIMIT_SECONDS)


def produce(process, topic, partitions, limit_s=LIMIT_SECONDS):
    """One record to each partition, its number; returns the errors by partition."""
    errors = {}
    producer = Producer(
        {"bootstrap.servers": process.bootstrap_servers, "message.timeout.ms": limit_s * 1000}
    )
    for index in partitions:
        producer.produce(
            topic,
            f"{index}".encode(),
            partition=index,
            on_delivery=lambda error, message: errors.update({message.partition(): error}),
        )
    assert producer.flush(2 * LIMIT_SECONDS) == 0
    return errors


def held(folder):
    """The topic's partitions in a directory, without what is to be deleted or to come."""
    return sorted(int(path.name.rpartition("-")[2]) for path in folder.glob(f"{TOPIC}-[0-9]"))


def replace_by_a_file(folder):
    """Every path below what was a directory is an error now, to root as well.

    It goes all at once: a broker may be writing its checkpoints there.
    """
    gone = folder.rename(folder.with_suffix(".gone"))
    folder.write_bytes(b"")
    shutil.rmtree(gone)


def destroy(process, folder):
    """Have a directory fail, and write to its partitions.

    The records go to files that have no name; their high watermark cannot be noted.
    """
    partitions = held(folder)
    replace_by_a_file(folder)
    produce(process, TOPIC, partitions, SHORT_SECONDS)


def leaders(process):
    """The leader of each partition of the topic, as Metadata tells it."""
    admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
    metadata = admin.list_topics(TOPIC, LIMIT_SECONDS).topics[TOPIC].partitions
    return {index: partition.leader for index, partition in metadata.items()}


def first_value(process, index):
    consumer = Consumer({"bootstrap.servers": process.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(TOPIC, index, 0)])
    message = consumer.poll(LIMIT_SECONDS)
    consumer.close()
    return message.value()


def test_the_partitions_of_a_failed_directory_are_offline_and_the_others_live(broker, dirs):
    """No leader and a storage error for the lost half; reads, writes, new topics for the other."""
    lost, kept = held(dirs[1]), held(dirs[0])
    assert (len(lost), len(kept)) == (2, 2)

    destroy(broker, dirs[1])
    wait_until(
        lambda: leaders(broker) == dict.fromkeys(lost, -1) | dict.fromkeys(kept, 0),
        "the partitions of the directory have no leader",
        seen=lambda: leaders(broker),
    )

    assert [first_value(broker, index) for index in kept] == [b"%d" % index for index in kept]
    assert set(produce(broker, TOPIC, kept).values()) == {None}
    assert all(produce(broker, TOPIC, lost, SHORT_SECONDS).values())
    create(broker, "later", 2)
    assert set(produce(broker, "later", range(2)).values()) == {None}
    assert len(list(dirs[0].glob("later-*"))) == 2
    assert broker.stop() == 0


def test_a_repaired_directory_serves_its_partitions_after_the_next_start(broker, dirs, tmp_path):
    """At a start without the directory they are offline, not empty; with it they are back."""
    lost = held(dirs[1])
    broker.stop()
    dirs[1].rename(tmp_path / "saved")
    dirs[1].write_bytes(b"")

    broker.start()

    assert f"{dirs[1]} is offline" in broker.log
    wait_until(
        lambda: [index for index, leader in leaders(broker).items() if leader == -1] == lost,
        "the partitions of the directory have no leader",
        seen=lambda: leaders(broker),
    )
    assert not set(held(dirs[0])) & set(lost)
    broker.stop()
    dirs[1].unlink()
    (tmp_path / "saved").rename(dirs[1])

    broker.start()

    assert set(leaders(broker).values()) == {0}
    assert first_value(broker, lost[0]) == b"%d" % lost[0]


def test_an_idle_directory_that_disappears_is_noticed(broker, dirs):
    """Nobody writes to its partitions, and yet their leaders are gone soon."""
    lost = held(dirs[1])
    replace_by_a_file(dirs[1])

    wait_until(
        lambda: [index for index, leader in leaders(broker).items() if leader == -1] == lost,
        "the partitions of the directory have no leader",
        seen=lambda: leaders(broker),
    )


def test_a_broker_without_log_directories_stops(start_broker, tmp_path):
    """When the last one has failed the broker says so and ends with status 1."""
    folder = Path(tmp_path / "only")
    process = start_broker(log_dirs=str(folder), **SOON)
    create(process, TOPIC, 1)

    destroy(process, folder)

    assert process.process.wait(LIMIT_SECONDS) == 1
    assert f"The broker stops: every log directory has failed: {folder}" in process.log


def test_the_directories_are_described(broker, dirs):
    """Sizes of what is in them, and after a failure the error; in Kafka's JSON."""
    words = ("log-dirs", "--bootstrap-server", broker.bootstrap_servers, "--describe")

    def describe():
        done = run_here(*words, "--topic-list", TOPIC)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])["brokers"][0]["logDirs"]

    sound = describe()
    assert [row["logDir"] for row in sound] == [str(folder) for folder in dirs]
    assert [len(row["partitions"]) for row in sound] == [2, 2]
    for row in (row for each in sound for row in each["partitions"]):
        assert row["size"] > 0
        assert (row["offsetLag"], row["isFuture"]) == (0, False)

    destroy(broker, dirs[1])
    wait_until(lambda: -1 in leaders(broker).values(), "a partition has no leader")

    assert describe()[1] == {
        "logDir": str(dirs[1]),
        "error": "KAFKA_STORAGE_ERROR",
        "partitions": [],
    }


@pytest.fixture
def reassign(broker, tmp_path):
    """Run `ottla reassign-partitions` with a plan that has partition 0 in a directory."""

    def run(log_dir, *words):
        row = {"topic": TOPIC, "partition": 0, "replicas": [0], "log_dirs": [str(log_dir)]}
        path = tmp_path / "plan.json"
        path.write_text(json.dumps({"version": 1, "partitions": [row]}))
        where = ("--bootstrap-server", broker.bootstrap_servers)
        done = run_here("reassign-partitions", *where, "--reassignment-json-file", path, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_replica_moves_by_the_admin_of_kafka_python_while_it_is_written(broker, dirs):
    """Every record that was acknowledged meanwhile is there after it and after a kill."""
    home, target = dirs if 0 in held(dirs[0]) else dirs[::-1]
    big = b"." * 100_000
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    failed = []

    def write(value):
        producer.produce(TOPIC, value, partition=0, on_delivery=lambda e, _: e and failed.append(e))
        producer.poll(0.01)

    for _ in range(100):
        write(big)
    producer.flush(LIMIT_SECONDS)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    admin.alter_replica_log_dirs({TopicPartitionReplica(TOPIC, 0, 0): str(target)})
    admin.close()
    count = 100

    def has_moved():
        nonlocal count
        write(b"a record meanwhile")  # not faster than any disk could follow
        count += 1
        return 0 in held(target) and 0 not in held(home)

    wait_until(has_moved, "it has moved")
    producer.flush(LIMIT_SECONDS)
    broker.kill()
    broker.start()

    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), LIMIT_SECONDS)
    consumer.close()
    assert (low, high, failed) == (0, count + 1, [])
    assert (0 in held(home), 0 in held(target)) == (False, True)


def test_replica_moves_by_the_tool_with_a_throttle(broker, dirs, reassign):
    """It is shown as future while it moves, and --verify takes the throttle away in the end."""
    home, target = dirs if 0 in held(dirs[0]) else dirs[::-1]
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(100):  # more than is moved while a busy machine starts the next tool
        producer.produce(TOPIC, b"." * 100_000, partition=0)
    producer.flush(LIMIT_SECONDS)
    limit = ("--replica-alter-log-dirs-throttle", "100000")
    printed = reassign(target, "--execute", *limit)
    assert f'"log_dirs":["{home}"]' in printed
    assert printed.endswith(
        "The replica-alter-dir throttle limit was set to 100000 B/s\n"
        "Successfully started reassignment of partitions.\n"
        f"Successfully started log directory moves for: {TOPIC}-0-0\n"
    )
    assert f"Reassignment of replica {TOPIC}-0-0 is still in progress" in reassign(
        target, "--verify"
    )
    with Admin(broker.bootstrap_servers) as admin:
        replica = admin.describe_log_dirs([0])[0][str(target)].replicas[Partition(TOPIC, 0)]
    assert replica.is_future
    assert replica.offset_lag > 0

    assert "log directory moves" in reassign(
        target, "--execute", "--replica-alter-log-dirs-throttle", "1000000000"
    )
    wait_until(
        lambda: "replica" in (done := reassign(target, "--verify")) and "Throttle" in done,
        "the move is complete",
    )
    assert 0 in held(target)
    wait_until(lambda: 0 not in held(home), "the old replica is put aside", seen=lambda: held(home))


def test_directories_that_do_not_exist_are_refused(broker):
    """Unknown directories are refused; a later partition begins in the one that was named."""
    with Admin(broker.bootstrap_servers) as admin:
        path = sorted(admin.describe_log_dirs([0])[0])[1]
        unknown, later = Replica(TOPIC, 0, 0), Replica("later", 0, 0)
        outcomes = admin.alter_replica_log_dirs({unknown: "/nowhere", later: path})
        create(broker, "later", 1)
        assert Partition("later", 0) in admin.describe_log_dirs([0])[0][path].replicas

    assert [error.error for error in outcomes.values()] == [
        ErrorCode.LOG_DIR_NOT_FOUND,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    ]
