"""Elections of replicas that are not in sync, and partitions that move under load."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

from chaos_load import LIMIT_S, PARTITIONS
from chaos_world import BROKERS, SESSION_S
from cluster_load import QUIET, ClusterView
from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Place

from ottla import Admin, NewTopic, Producer
from ottla.structs import TopicPartition
from ottla.testing import wait_until

MEGABYTE = 1_000_000
GONE = (KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
ORDER = [1, 2, 3]
ROUNDS = 2
ONE_LEADER = dict.fromkeys(range(3), ORDER)


@contextlib.contextmanager
def firm_reader(bootstrap_servers: str, topic: str) -> Iterator[Consumer]:
    """Reads partition 0 by a library that looks for its place; it takes no other by itself."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "firm",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "topic.metadata.refresh.interval.ms": 1_000,
            **QUIET,
        }
    )
    reader.assign([Place(topic, 0, 0)])
    yield reader
    reader.close()


def until_stopped(reader: Consumer, *expected: int) -> None:
    """Read on until one of these comes in the place of a record."""

    def has_come() -> bool:
        errors = [message.error() for message in reader.consume(5000, 0.2)]
        return any(error is not None and error.code() in expected for error in errors)

    wait_until(has_come, f"errors {expected}", LIMIT_S)


def leave_one_in_sync(told, world) -> int:
    """The followers die, one after the other, the leader goes on alone; then it dies as well."""
    leader = told.leader
    for follower in told.followers:
        world.kill_broker(follower)
    told.until(
        lambda: all(told.in_sync(p) == {leader} for p in range(3)), "the leader is in sync alone"
    )
    told.load.until_more(300)
    world.kill_broker(leader)
    return leader


def test_leaders_are_moved_to_a_broker_that_was_just_killed(story, world):
    """Until its session ends it counts as alive; then its successors begin under full load.

    Their first requests may come from the middle of a pipeline: no gap is taken for a lost record,
    for librdkafka would raise its epoch and write what is not acknowledged a second time.
    """
    was_moved = False
    with story("leaders moved to the dead", timed=False) as told:
        admin = ClusterView(world.bootstrap_servers).admin
        for _ in range(ROUNDS):
            victim = told.chance.choice(sorted(told.brokers - {world.controller}))
            world.kill_broker(victim)
            told.until(lambda v=victim: v not in leaders(told, world), "others lead")
            world.start_broker(victim)
            told.until_in_sync()
            world.kill_broker(victim)
            # Where the session has ended already, it fails, or is not answered for a while.
            with contextlib.suppress(KafkaException, TimeoutError):
                admin.elect_leaders(ElectionType.PREFERRED, None).result(SESSION_S)
            was_moved |= victim in leaders(told, world)
            told.until(lambda v=victim: v not in leaders(told, world), "others lead again")
            world.start_broker(victim)
            told.load.until_more()
            told.until_in_sync()
    assert was_moved, "no leader was moved to a dead broker: the machine was too slow each time"


def leaders(told, world) -> set[int]:
    """Who leads the partitions of a story's topic."""
    return {world.leader(told.topic, partition) for partition in range(PARTITIONS)}


def test_only_those_out_of_sync_are_alive(story, world):
    """Nobody leads until the last one that was in sync is back."""
    with story("unclean election off", assignment=ONE_LEADER, min_insync_replicas="1") as told:
        told.gap_limit_s = None
        leader = leave_one_in_sync(told, world)
        led_by = partial(world.leader, told.topic)
        others = [each for each in BROKERS if each != leader]
        for broker_id in others:
            world.start_broker(broker_id)
        told.until(lambda: all(led_by(p) == -1 for p in range(3)), "nobody leads")
        before = told.load.count
        told.last(3)
        assert [led_by(p) for p in range(3)] == [-1] * 3
        assert told.load.count == before
        world.start_broker(leader)
        told.until_writable()
    assert [told.history.leaders(p) for p in range(3)] == [[leader, -1, leader]] * 3


def test_unclean_election(story, world):
    """It costs what only the dead leader had, and no more; all replicas are equal after it.

    Its producer numbers nothing: it would be told that numbers are missing, and stop. A reader who
    was at the end of the dead leader's log is told that it has read what is not there any more.
    """
    told = story(
        "unclean election on",
        assignment=ONE_LEADER,
        min_insync_replicas="1",
        unclean_leader_election_enable="true",
    )
    told.producer_settings = {
        "enable.idempotence": False,
        "max.in.flight.requests.per.connection": 1,
        # What is sent twice is there twice: on a slow machine an answer may take its time.
        "request.timeout.ms": 60_000,
        "socket.timeout.ms": 61_000,
    }
    with told, firm_reader(world.bootstrap_servers, told.topic) as reader:
        told.gap_limit_s = None
        leader = told.leader
        world.kill_broker(told.followers[0])
        world.kill_broker(told.followers[0 if told.leader != leader else 1])
        replicated = told.load.count
        told.until(
            lambda: all(told.in_sync(p) == {leader} for p in range(3)),
            "the leader is in sync alone",
        )
        told.load.until_more(300)
        until_stopped(reader, KafkaError._PARTITION_EOF)
        world.kill_broker(leader)
        told.may_lose = told.load.count - replicated + 100
        for broker_id in BROKERS:
            if broker_id != leader:
                world.start_broker(broker_id)
        told.until_writable()
        assert told.leader != leader
        until_stopped(reader, *GONE)


def test_partitions_move_under_load(story, world):
    """To a new broker, while others are bounced."""
    world.add(4)
    world.start_broker(4)
    try:
        with story("reassignment", assignment=ONE_LEADER) as told:
            moves = {TopicPartition(told.topic, p): [2, 3, 4] for p in range(3)}
            with Admin(world.bootstrap_servers) as admin:
                admin.alter_partition_reassignments(moves)
            for broker_id in told.chance.sample([2, 3], 2):
                if told.chance.random() < 0.5:
                    world.kill_broker(broker_id)
                else:
                    world.stop_broker(broker_id)
                told.last(0, 2)
                world.start_broker(broker_id)
                told.load.until_more()
            told.until(lambda: all(told.in_sync(p) >= {3, 4} for p in range(3)), "it has moved")
            told.brokers = {2, 3, 4}
            told.until_in_sync()
            told.until(
                lambda: all(told.world.leader(told.topic, p) in told.brokers for p in range(3)),
                "others lead",
            )
            told.load.until_more()
    finally:
        with Admin(world.bootstrap_servers) as admin:
            admin.delete_topics([told.topic])
        told.until(
            lambda: world.znode(f"/brokers/topics/{told.topic}") is None, "the topic is gone"
        )
        world.stop_broker(4)
        del world.brokers[4]


def test_throttled_move_takes_its_time(story, world, tmp_path):
    """Between 0.9 and 2 times what the throttle says."""
    size, rate = 24 * MEGABYTE, 2 * MEGABYTE
    with story("throttle") as told:
        name = f"{told.topic}-moved"
        plan = tmp_path / "plan.json"
        plan.write_text(
            json.dumps(
                {"version": 1, "partitions": [{"topic": name, "partition": 0, "replicas": [2]}]}
            )
        )
        with Admin(world.bootstrap_servers) as admin:
            config = {"min.insync.replicas": "1"}
            admin.create_topics([NewTopic(name, replica_assignment={0: [1]}, configs=config)])
        with Producer(world.bootstrap_servers) as producer:
            sent = [producer.send(name, bytes(10_000)) for _ in range(size // 10_000)]
        assert sent[-1].result().offset == len(sent) - 1
        began_s = time.monotonic()
        command = [sys.executable, "-m", "ottla", "reassign-partitions", "--bootstrap-server"]
        command += [world.bootstrap_servers, "--reassignment-json-file", str(plan)]
        subprocess.run([*command, "--execute", "--throttle", str(rate)], check=True, timeout=60)
        began_at_last_s = time.monotonic()
        told.until(lambda: world.in_sync(name) == {2}, f"{name} has moved")
        ended_s = time.monotonic()
        print(f"{size} bytes at {rate} bytes/s took {ended_s - began_at_last_s:.1f} s")
        subprocess.run([*command, "--verify"], check=True, timeout=60)
    # It began between the start of the command and its end, which a busy machine puts off.
    assert ended_s - began_s >= 0.9 * size / rate
    assert ended_s - began_at_last_s <= 2 * size / rate
