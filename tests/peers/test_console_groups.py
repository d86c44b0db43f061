"""The console's pages of groups, transactions and brokers beside Apache Kafka's own broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from benchmarks.peers.downloads import kafka_jars
from benchmarks.peers.kafka_broker import NODE_ID, KafkaBroker
from benchmarks.peers.kafka_tools import KafkaTools
from command_here import run_here
from lag_world import LagWorld
from visitor import Visitor, visit

from ottla import Producer, TopicPartition
from ottla.console.group_look import observations
from ottla.console.lag_causes import explain
from ottla.console.lag_evidence import with_evidence

PAGES = (
    "/groups",
    "/group?id=deserted",
    "/group/reset?id=deserted&topic=left&to=to-earliest",
    "/transactions",
    "/brokers",
    f"/broker?id={NODE_ID}",
    f"/broker?id={NODE_ID}&part=replicas",
    "/brokers/versions",
    "/access",
)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[LagWorld]:
    """A broker of Apache Kafka 4.1, and the console's view of it."""
    folder = tmp_path_factory.mktemp("kafka")
    kafka = KafkaBroker(KafkaTools("4.1", kafka_jars("4.1")), folder).format()
    kafka.start()
    try:
        with LagWorld(kafka.bootstrap_servers) as world:
            yield world
    finally:
        kafka.stop()


def leading_cause(world: LagWorld, group: str, *, meanwhile) -> str:
    first = world.look(group)
    meanwhile()
    world.pass_s(60)
    seen = observations([first, world.look(group)])
    return explain(world.run(with_evidence(world.cluster, seen)))[0].rule


def test_planted_causes_lead(world):
    """A group without members, one behind a transaction, one that was overtaken, one stopped."""
    (left,), (held,) = world.add_topic("left"), world.add_topic("held")
    (old,), (stuck,) = world.add_topic("old"), world.add_topic("stuck")
    for each in (left, held, old, stuck):
        world.write(each, 10)
    world.admin.alter_group_offsets("deserted", {left: 3})
    overtaken, stopped = world.read("overtaken", old), world.read("stopped", stuck)
    world.commit(overtaken, {old: 2})
    world.commit(stopped, {stuck: 4})
    waiting = world.read("waiting", held, isolation_level="read_committed")

    assert leading_cause(world, "deserted", meanwhile=lambda: None) == "nobody_reads"
    assert leading_cause(world, "stopped", meanwhile=lambda: None) == "stopped"
    assert (
        leading_cause(world, "overtaken", meanwhile=lambda: world.admin.delete_records({old: 8}))
        == "retention"
    )
    with Producer(world.servers, transactional_id="open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("held", b"open").result(60)
        world.write(held, 10)
        world.commit(waiting, {held: 10})
        assert leading_cause(world, "waiting", meanwhile=lambda: None) == "open_transaction"

        async def walk(visitor: Visitor) -> None:
            (line,) = (await visitor.get("/transactions.json")).json["open"]
            assert (line["topic"], line["transactional_id"]) == ("held", "open")
            for path in PAGES:
                assert (await visitor.get(path)).status == 200, path

        visit(world.servers, walk)
        producer.abort_transaction()


def test_plan_of_the_console_is_that_of_the_command(world):
    """And the offsets are committed."""
    if "left" not in world.admin.list_topics():
        world.write(*world.add_topic("left"), 10)
    left = TopicPartition("left", 0)
    world.admin.alter_group_offsets("deserted", {left: 3})

    async def walk(visitor: Visitor) -> None:
        path = "/group/reset.json?id=deserted&topic=left&to=shift-by&value=4"
        data = (await visitor.get(path)).json
        assert data["plan"].endswith(";0:7"), "the id of the topic, and the offset of its partition"
        form = {"id": "deserted", "topic": "left", "plan": data["plan"]}
        assert (await visitor.post("/group/reset", **form)).status == 303

    visit(world.servers, walk)
    assert world.admin.list_group_offsets("deserted")[left].offset == 7


def test_lag_of_the_command_is_that_of_the_broker(world):
    """`ottla lag` works with any broker."""
    outcome = run_here("lag", "--format", "json", "--bootstrap-server", world.servers)

    assert outcome.returncode == 0, outcome.stderr
    assert '"group": "deserted"' in outcome.stdout
