"""Names of mirrored topics, cycles, and what is mirrored at all."""

from __future__ import annotations

import pytest

from ottla.config.mirror_config import MirrorConfig
from ottla.errors import ConfigError
from ottla.mirror.name_filter import (
    NameFilter,
    is_mirrored_topic,
)
from ottla.mirror.replication_policy import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    policy_named,
)

DEFAULT = DefaultReplicationPolicy()
IDENTITY = IdentityReplicationPolicy(source="a")
RULES = MirrorConfig.parse({})
TOPICS = NameFilter("topics", [".*"], RULES.topics_exclude)


def test_default_names_tell_the_way():
    """The alias of the source comes first, once for each hop."""
    assert DEFAULT.format_remote_topic("a", "pages") == "a.pages"
    assert DEFAULT.topic_source("b.a.pages") == "b"
    assert DEFAULT.upstream_topic("b.a.pages") == "a.pages"
    assert DEFAULT.original_topic("b.a.pages") == "pages"
    assert DEFAULT.topic_source("pages") is None


def test_separator_may_be_another():
    """replication.policy.separator is between alias and topic, and on request in internal names."""
    plain = policy_named("DefaultReplicationPolicy", "__", False, None)
    internal = policy_named("DefaultReplicationPolicy", "__", True, None)

    assert plain.format_remote_topic("a", "pages.x") == "a__pages.x"
    assert plain.checkpoints_topic("a") == "a.checkpoints.internal"
    assert internal.checkpoints_topic("a") == "a__checkpoints__internal"
    assert internal.offset_syncs_topic("b") == "mm2-offset-syncs__b__internal"


def test_internal_names_are_kafkas():
    """Kafka's tools and mirrors find them by these names."""
    assert DEFAULT.heartbeats_topic() == "heartbeats"
    assert DEFAULT.offset_syncs_topic("b") == "mm2-offset-syncs.b.internal"
    assert DEFAULT.checkpoints_topic("a") == "a.checkpoints.internal"


def test_identity_keeps_names_but_for_heartbeats():
    """Heartbeats of several clusters must not meet in one topic."""
    assert IDENTITY.format_remote_topic("a", "pages") == "pages"
    assert IDENTITY.topic_source("pages") == "a"
    assert IDENTITY.upstream_topic("pages") == "pages"
    assert IDENTITY.format_remote_topic("a", "heartbeats") == "a.heartbeats"
    assert IDENTITY.original_topic("pages") == "pages"


@pytest.mark.parametrize(
    ("topic", "is_cycle"),
    [("pages", False), ("c.pages", False), ("b.pages", True), ("c.b.pages", True)],
)
def test_topic_that_came_from_the_target_is_not_sent_back(topic, is_cycle):
    """Active/active: prefixes do not grow for ever."""
    assert DEFAULT.is_cycle(topic, ["b"]) is is_cycle


@pytest.mark.parametrize(
    ("separator", "clusters"),
    [(".", ("eu", "us.east")), (".", ("eu.west", "us.east")), ("-", ("eu-west", "us-east"))],
)
@pytest.mark.parametrize("topic", ["pages", "heartbeats"])
@pytest.mark.parametrize("policy", [DefaultReplicationPolicy, IdentityReplicationPolicy])
def test_aliases_with_the_separator_end_in_no_circle(policy, topic, separator, clusters):
    """A topic went to and fro between `eu.west` and `us.east`, with a longer name each time."""
    rules, name = policy(separator), topic
    for here, there in [clusters, clusters[::-1]]:
        taken = not rules.is_cycle(name, (here, there))
        name = rules.format_remote_topic(here, name) if taken else name

    if policy is DefaultReplicationPolicy or topic == "heartbeats":
        assert name == f"{clusters[0]}{separator}{topic}"
        assert rules.is_cycle(f"x{separator}{name}", clusters)
        assert not rules.is_cycle(f"x{separator}{topic}", clusters)


def test_long_chain_counts_as_a_cycle():
    """A name that is walked for ever ends the walk."""
    assert DEFAULT.is_cycle("a." * 40 + "pages", ["b"])


@pytest.mark.parametrize(
    ("topic", "hops"), [("a.pages", 1), ("c.a.pages", 2), ("pages", -1), ("c.pages", -1)]
)
def test_hops_are_counted(topic, hops):
    """Over how many mirrors a topic has come."""
    assert DEFAULT.hops(topic, "a") == hops


@pytest.mark.parametrize(
    ("topic", "is_taken"),
    [
        ("pages", True),
        ("c.pages", True),
        ("b.pages", False),
        ("a.pages", False),
        ("__consumer_offsets", False),
        (".hidden", False),
        ("x.replica", False),
        ("mm2-configs.b.internal", False),
        ("c.checkpoints.internal", False),
        ("heartbeats", True),
        ("c.heartbeats", True),
        ("b.heartbeats", False),
    ],
)
def test_flow_takes_topics_but_not_those_of_mirrors(topic, is_taken):
    """The flow a->b copies users' topics and heartbeats, and nothing in a circle."""
    assert is_mirrored_topic(topic, DEFAULT, TOPICS, ("a", "b")) is is_taken


def test_heartbeats_need_no_pattern():
    """They are copied whatever `topics` says."""
    nothing = NameFilter("topics", ["pages"], [])

    assert is_mirrored_topic("heartbeats", DEFAULT, nothing, ("a", "b"))
    assert not is_mirrored_topic("clicks", DEFAULT, nothing, ("a", "b"))


@pytest.mark.parametrize(
    ("patterns", "excluded", "name", "is_taken"),
    [
        ([".*"], RULES.groups_exclude, "reports", True),
        ([".*"], RULES.groups_exclude, "console-consumer-1", False),
        ([".*"], RULES.config_properties_exclude, "retention.ms", True),
        ([".*"], RULES.config_properties_exclude, "min.insync.replicas", False),
        (["a", " b.* "], [], "bat", True),
        (["a"], [], "ab", False),
        ([], [], "a", False),
        ([""], [], "a", False),
    ],
)
def test_filter_matches_whole_names(patterns, excluded, name, is_taken):
    """One of the patterns, and none of the excluded ones."""
    assert NameFilter("groups", patterns, excluded).takes(name) is is_taken


def test_bad_pattern_and_policy_are_named():
    """An error says key, value and rule."""
    with pytest.raises(ConfigError, match=r"topics=\(: must be regular expressions"):
        NameFilter("topics", ["("], [])
    with pytest.raises(ConfigError, match=r"replication.policy.class=com.me.Mine: must be one of"):
        policy_named("com.me.Mine", ".", False, None)


def test_policies_are_found_by_kafkas_class_names():
    """The full names that stand in files for Kafka's mirror."""
    package = "org.apache.kafka.connect.mirror"
    named = policy_named(f"{package}.IdentityReplicationPolicy", ".", False, "a")

    assert isinstance(named, IdentityReplicationPolicy)
