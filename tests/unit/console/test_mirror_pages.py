"""The page of mirrors, by the topics that mirrors write."""

from __future__ import annotations

from lag_world import LagWorld
from visitor import Visitor, visit

from ottla.clients.metadata import Cluster
from ottla.clients.mirror_records import Checkpoint, Heartbeat, OffsetSync
from ottla.console.mirror_pages import Found, checkpoint_lines, flow_lines, sync_lines
from ottla.structs import TopicPartition

HOSTILE = "<script>alert(1)</script>"
BEYOND = (1 << 63) - 1


def send(world: LagWorld, topic: str, *records) -> None:
    """Records with keys and values, each either bytes or a record of a mirror."""
    for each in records:
        key, value = (
            each if isinstance(each, tuple) and len(each) == 2 else (each.key(), each.value())
        )
        world.producer.send(topic, value, key=key, partition=0)
    world.producer.flush()


def test_cluster_without_a_mirror_says_so(ottla_broker):
    """With the command that starts one."""

    async def walk(visitor: Visitor) -> None:
        assert "ottla mirror mm2.properties" in (await visitor.get("/mirrors")).text

    visit(ottla_broker.bootstrap_servers, walk)


def test_flows_syncs_and_checkpoints(world: LagWorld):
    """The newest of each; what is silent or behind comes first, and rubbish is counted."""
    now_ms = world.clock.now_ms()
    (orders,) = world.add_topic("orders")
    (copy,) = world.add_topic("west.orders")
    for topic in ("heartbeats", "west.checkpoints.internal", "mm2-offset-syncs.east.internal"):
        world.add_topic(topic)
    world.write(orders, 9)
    world.write(copy, 7)
    beat, gone = Heartbeat("west", "here", now_ms), Heartbeat("old", "here", 0)
    send(world, "heartbeats", Heartbeat("west", "here", 5), beat, gone, (b"\xff", b"\x00"))
    send(world, "heartbeats", Heartbeat(HOSTILE, "here", BEYOND))
    ended = OffsetSync(TopicPartition("ended", 0), 1, 1)
    syncs = OffsetSync(orders, 4, 2), OffsetSync(TopicPartition("lost", 7), BEYOND, BEYOND), ended
    send(world, "mm2-offset-syncs.east.internal", *syncs, (ended.key(), None))
    group = Checkpoint("billing", copy, 40, 3, "text of a member")
    send(world, "west.checkpoints.internal", group, (b"no", b"checkpoint"))

    async def walk(visitor: Visitor) -> None:
        data = (await visitor.get("/mirrors.json")).json
        assert [(each["source"], each["is_silent"]) for each in data["flows"]] == [
            *[("old", True), (HOSTILE, False), ("west", False)],
        ]
        assert data["flows"][2]["copied"] == 2  # with its checkpoints
        assert [(each["topic"], each["end"], each["lag"]) for each in data["syncs"]] == [
            *[("orders", 9, 4), ("lost", None, None)],
        ]
        (line,) = data["checkpoints"]
        assert (line["source"], line["group"]) == ("west", "billing")
        assert (line["end"], line["again"]) == (7, 4)
        assert data["rubbish"] == 2
        page = (await visitor.get("/mirrors")).text
        assert HOSTILE not in page
        assert "9,223,372,036,854,775,807" in page
        assert "text of a member" not in page

    visit(world.servers, walk)


def test_long_names_are_cut():
    """A record has up to 32,767 bytes of a name, and others may write to the topic."""
    name, nowhere = "n" * 32_767, TopicPartition("t" * 32_767, 0)
    (group,) = checkpoint_lines(Found([("", "west", Checkpoint(name, nowhere, 1, 1))], 0), {})
    (sync,) = sync_lines(Found([("", "east", OffsetSync(nowhere, 1, 1))], 0), {})
    known = Cluster()
    (flow,) = flow_lines(known, Found([("beats", "", Heartbeat(name, name, 1))], 0), 1)
    assert max(map(len, (group.group, group.topic, sync.topic, flow.source, flow.target))) < 400
