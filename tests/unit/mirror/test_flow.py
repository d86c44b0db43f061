"""mm2.properties: what it says, and what is wrong with it."""

from __future__ import annotations

import pytest

from ottla.errors import ConfigError
from ottla.mirror.flow import parse_plan
from ottla.mirror.topic_sync import refused_topics

BASE = {
    "clusters": "a, b, c",
    "a.bootstrap.servers": "a:9092",
    "b.bootstrap.servers": "b:9092",
    "c.bootstrap.servers": "c:9092",
    "a->b.enabled": "true",
}


def flow_of(**settings):
    more = {k.replace("_to_", "->").replace("_", "."): v for k, v in settings.items()}
    return parse_plan({**BASE, **more}).flow("a->b")


def test_each_pair_is_a_flow_that_copies_only_if_enabled():
    """The others are there for their heartbeats, unless these are off."""
    plan = parse_plan(BASE)
    quiet = parse_plan({**BASE, "emit.heartbeats.enabled": "false"})

    assert len(plan.flows) == 6
    assert [flow.name for flow in plan.enabled()] == ["a->b"]
    assert [flow.name for flow in quiet.flows] == ["a->b"]
    assert [flow.name for flow in plan.into(["c"]).flows] == ["a->c", "b->c"]


def test_setting_of_a_flow_wins_over_that_of_all():
    """Bare names are for all flows."""
    flow = flow_of(topics="x", a_to_b_topics="y,z", tasks_max="3")

    assert flow.config.topics == ("y", "z")
    assert flow.config.tasks_max == 3


def test_clients_get_the_settings_of_their_cluster_and_kind():
    """For all clusters, for this one, for this kind of client there; a flow's consumer."""
    flow = flow_of(
        security_protocol="SSL",
        b_security_protocol="PLAINTEXT",
        b_producer_linger_ms="7",
        consumer_isolation_level="read_committed",
    )

    assert flow.source.settings("consumer")["security.protocol"] == "SSL"
    assert flow.source.settings("consumer")["isolation.level"] == "read_committed"
    assert flow.target.settings("admin")["security.protocol"] == "PLAINTEXT"
    assert flow.target.settings("producer")["linger.ms"] == "7"
    assert flow.target.settings("consumer", group_id="g")["group.id"] == "g"


def test_old_names_are_taken():
    """topics.blacklist of Kafka 2.4."""
    assert flow_of(a_to_b_topics_blacklist="x").config.topics_exclude == ("x",)


def test_names_of_topics_are_kafkas():
    """By source and target."""
    flow = flow_of()

    assert flow.syncs_topic == "mm2-offset-syncs.b.internal"
    assert flow.checkpoints_topic == "a.checkpoints.internal"
    assert flow.offsets_topic == "mm2-offsets.a.internal"
    assert flow.remote("pages") == "a.pages"
    at_target = parse_plan({**BASE, "offset-syncs.topic.location": "target"}).flow("a->b")
    assert at_target.syncs_topic == "mm2-offset-syncs.a.internal"
    assert at_target.sync_cluster.alias == "b"


def test_wanted_topics_are_filtered():
    """By pattern, by Kafka's exclusions, and never in a circle."""
    listed = ["pages", "b.pages", "__consumer_offsets", "heartbeats", "x.replica"]

    assert flow_of().wanted_topics(listed) == ["heartbeats", "pages"]
    assert flow_of(heartbeats_replication_enabled="false").wanted_topics(listed) == ["pages"]


@pytest.mark.parametrize("here", [["a"], ["b"], ["c"], ["a", "b"], ["a", "b", "c"]])
def test_circle_is_seen_by_a_process_that_runs_some_of_its_flows(here):
    """With `--clusters`: each copied what the other had copied to it, for ever."""
    ways = {"a->b": "true", "b->c": "true", "c->a": "true"}
    settings = {f"{name}.enabled": value for name, value in ways.items()}
    settings["replication.policy.class"] = "IdentityReplicationPolicy"
    plan = parse_plan({**BASE, **settings}).into(here)

    found = [refused_topics(flow, plan, ["pages"]) for flow in plan.enabled()]

    assert len(found) == len(here)
    assert all(each.keys() == {"pages"} for each in found)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"clusters": "a"}, "clusters=a: must name two clusters or more"),
        ({"clusters": "a,a"}, "each once"),
        ({"clusters": "a,b!"}, "clusters=b!: must be letters"),
        ({"clusters": "a,d"}, "d.bootstrap.servers: must be set|not a flow"),
        ({"a->d.enabled": "true"}, "a->d is not a flow between two of the clusters"),
        ({"a->a.enabled": "true"}, "a->a is not a flow"),
        ({"a->b.topiks": "x"}, "did you mean topics"),
        ({"a.bootstrap.server": "x"}, "a.bootstrap.server.*did you mean a.bootstrap.servers"),
        ({"topics": "("}, r"topics=\(: must be regular expressions"),
        ({"offset.lag.max": "-1"}, "offset.lag.max=-1: must be"),
        ({"exactly.once.source.support": "enabled"}, "must have consumer.isolation.level"),
        ({"replication.policy.class": "X"}, "replication.policy.class=X: must be one of"),
        ({"replication.policy.separator": ""}, "must not be empty"),
    ],
)
def test_mistakes_are_named(settings, words):
    """Key, value and rule."""
    with pytest.raises(ConfigError, match=words):
        parse_plan({**BASE, **settings})


def test_metrics_are_served_once_for_all_flows():
    """Metrics of all flows are served once, even if some run here; over HTTP, without keys."""
    plan = parse_plan({**BASE, "metrics.listener": "http://:9405"})

    assert str(plan.into(["c"]).metrics_listener) == "http://127.0.0.1:9405"
    assert parse_plan(BASE).metrics_listener is None
    with pytest.raises(ConfigError, match=r"metrics.listener=https://.* must be http://"):
        parse_plan({**BASE, "metrics.listener": "https://:9405"})
