"""The connectors of a mirror, driven as a worker drives them."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from contexts import LoneContext
from mirrors import SETTINGS, values

from ottla import Consumer, TopicPartition
from ottla.clients.mirror_records import Checkpoint, Heartbeat
from ottla.connect.plugins import Plugins
from ottla.errors import ConfigError
from ottla.mirror.connectors import (
    MirrorCheckpointConnector,
    MirrorHeartbeatConnector,
    MirrorSourceConnector,
)
from ottla.testing import wait_until

PACKAGE = "org.apache.kafka.connect.mirror"


@contextmanager
def running(kind, two, **more):
    """A started task; what it is for is done by its `poll`."""
    properties = {
        **SETTINGS,
        "source.cluster.alias": "a",
        "source.cluster.bootstrap.servers": two["a"].bootstrap_servers,
        "target.cluster.alias": "b",
        "target.cluster.bootstrap.servers": two["b"].bootstrap_servers,
        **more,
    }
    table = {key: value for key, value in properties.items() if key in kind.Settings.keys}
    connector = kind(kind.Settings.parse(table), LoneContext(properties=properties))
    try:
        connector.start()
        yield connector
    finally:
        connector.stop()


def test_source_copies_and_goes_on(two, produce):
    """Whole batches, and after a restart what came since."""
    for end in (10, 20):
        produce(two["a"], "pages", range(end - 10, end))
        with running(MirrorSourceConnector, two) as source:
            wait_until(
                lambda end=end: len(two["b"].records("a.pages")) >= end,
                "the copy",
                meanwhile=source.poll,
            )

    assert values(two["b"], "a.pages") == [str(number) for number in range(20)]
    assert "heartbeats" not in two["b"].topics()


@pytest.mark.parametrize("once", ["true", "false"])
def test_task_goes_on_after_an_error_with_other_clients(two, produce, once):
    """A producer that another one has fenced, or that is closed, copies nothing any longer."""
    settings = {"consumer.isolation.level": "read_committed"} if once == "true" else {}
    settings = {f"source.cluster.{key}": value for key, value in settings.items()}
    produce(two["a"], "pages", range(10))
    given = {"exactly.once.source.support": "enabled"} if once == "true" else {}
    with running(MirrorSourceConnector, two, **settings, **given) as source:
        wait_until(lambda: len(two["b"].records("a.pages")) >= 10, "copy", meanwhile=source.poll)
        source._copier._task._producer.close(0)
        produce(two["a"], "pages", range(10, 20))
        with pytest.raises(Exception, match="closed"):
            wait_until(lambda: False, "an error", meanwhile=source.poll)
        level = "read_committed" if once == "true" else "read_uncommitted"
        wait_until(
            lambda: len(two["b"].records("a.pages", isolation_level=level)) >= 20,
            "the rest",
            meanwhile=source.poll,
        )

    found = [each.value.decode() for each in two["b"].records("a.pages", isolation_level=level)]
    assert found[-10:] == [str(number) for number in range(10, 20)]
    assert once == "false" or found == [str(number) for number in range(20)]


def test_checkpoints_are_written(two, produce):
    """The source copies, the checkpoint connector translates the group."""
    produce(two["a"], "pages", range(10))
    place = TopicPartition("pages", 0)
    with Consumer(two["a"].bootstrap_servers, group_id="g", enable_auto_commit=False) as reader:
        reader.assign([place])
        reader.commit({place: 10})
    with running(MirrorSourceConnector, two) as source:
        wait_until(lambda: len(two["b"].records("a.pages")) >= 10, "copy", meanwhile=source.poll)

    def offsets():
        found = two["b"].records("a.checkpoints.internal")
        return {Checkpoint.of(each.key, each.value).downstream for each in found}

    with running(MirrorCheckpointConnector, two) as checkpoints:
        wait_until(lambda: 10 in offsets(), "a checkpoint", meanwhile=checkpoints.poll)


def test_heartbeats_are_written(two):
    """One a second, of this flow."""
    with running(MirrorHeartbeatConnector, two) as heart:
        wait_until(lambda: two["b"].records("heartbeats"), "a heartbeat", meanwhile=heart.poll)
    found = two["b"].records("heartbeats")[0]
    beat = Heartbeat.of(found.key, found.value)

    assert (beat.source, beat.target) == ("a", "b")


@pytest.mark.parametrize(
    "kind", [MirrorSourceConnector, MirrorCheckpointConnector, MirrorHeartbeatConnector]
)
def test_connectors_are_found_by_kafkas_names(kind):
    """In full, and by the last part."""
    name = kind.__name__

    assert Plugins().connector(f"{PACKAGE}.{name}") is Plugins().connector(name) is kind


def test_transforms_and_one_cluster_are_refused(two):
    """Batches pass as they are, and lead somewhere else."""
    with (
        pytest.raises(ConfigError, match="transforms: a mirror"),
        running(MirrorSourceConnector, two, transforms="x"),
    ):
        pass
    settings = {"target.cluster.bootstrap.servers": two["a"].bootstrap_servers}
    with (
        pytest.raises(ConfigError, match="same cluster"),
        running(MirrorSourceConnector, two, **settings),
    ):
        pass
    named = MirrorSourceConnector.Settings.parse(
        {
            "source.cluster.alias": "a",
            "target.cluster.alias": "a",
            "source.cluster.bootstrap.servers": "a:1",
            "target.cluster.bootstrap.servers": "b:1",
        }
    )
    assert "target.cluster.alias" in MirrorSourceConnector.validate(named)


@pytest.mark.parametrize("connector", [MirrorSourceConnector, MirrorCheckpointConnector])
def test_offsets_that_nobody_would_read_are_refused(connector):
    """They were said to be altered; the flow reads those at its target."""
    brokers = {f"{end}.cluster.bootstrap.servers": "localhost:1" for end in ("source", "target")}
    settings = connector.Settings.parse({"source.cluster.alias": "a", **brokers})
    place = {"cluster": "a", "topic": "pages", "partition": 0}
    for offset in ({"offset": 5}, None):
        with pytest.raises(ConfigError, match=r"in the topic mm2-offsets\.a\.internal at"):
            connector.alter_offsets(settings, [(place, offset)])
    assert not connector.alter_offsets(settings, [])
