"""The connect string, and which settings belong together."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.config.config_type import Password
from ottla.config.zookeeper_config import parse_connect
from ottla.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("localhost:2181", ("localhost:2181",), ""),
        ("zk", ("zk:2181",), ""),
        ("a:1,b:2, c:3/kafka", ("a:1", "b:2", "c:3"), "/kafka"),
        ("a/kafka/one/", ("a:2181",), "/kafka/one"),
        ("a:1/", ("a:1",), ""),
        ("[::1]:2181/x", ("[::1]:2181",), "/x"),
    ],
)
def test_connect_string_has_servers_and_a_chroot(text, servers, chroot):
    """As Kafka's users write it; 2181 is the port where there is none."""
    assert parse_connect("zookeeper.connect", text) == (servers, chroot)


@pytest.mark.parametrize(
    "text", [":2181", "a:b", "a:0", "a:65536", "a,,b", "a//x", "a/x//y", "a/../x", "http://a:1"]
)
def test_connect_string_of_another_form_is_refused(text):
    """Key and value are named."""
    with pytest.raises(ConfigError, match=r"zookeeper\.connect="):
        BrokerConfig.parse({"zookeeper.connect": text})


def test_empty_connect_string_is_none():
    """The broker keeps its registry itself then."""
    assert BrokerConfig.parse({"zookeeper.connect": ""}).zookeeper_connect is None


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"zookeeper.set.acl": "true"}, "must come with zookeeper.digest.username"),
        ({"zookeeper.digest.username": "u"}, "must be set together"),
        ({"zookeeper.digest.password": "p"}, "must be set together"),
        (
            {"zookeeper.digest.username": "a:b", "zookeeper.digest.password": "p"},
            "must be a name without a colon",
        ),
    ],
)
def test_settings_that_need_each_other_are_checked(settings, reason):
    """Nobody believes himself protected who is not."""
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig.parse(settings)


def test_password_is_not_shown():
    """Neither in the text of the settings nor on its own."""
    settings = {"zookeeper.digest.username": "u", "zookeeper.digest.password": "hush"}
    config = BrokerConfig.parse(settings)

    assert config.zookeeper_digest_password == Password("hush")
    assert "hush" not in repr(config)
