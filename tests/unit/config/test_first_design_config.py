"""The settings of the listener that speaks the protocol of Kafka's first design."""

from __future__ import annotations

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.config.first_design_config import Address, parse_copies
from ottla.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9091", ("127.0.0.1", 9091)),
        (":9091", ("127.0.0.1", 9091)),
        ("[::1]:0", ("::1", 0)),
        ("0.0.0.0:9091", ("0.0.0.0", 9091)),
    ],
)
def test_listener_of_the_first_design_is_a_host_and_a_port(text, address):
    """Without a host it is this machine alone."""
    config = BrokerConfig.parse({"first.design.listener": text})

    assert config.first_design_listener == Address(*address)


def test_directory_of_the_first_design_is_beside_the_first_log_directory():
    """Unless another place is set; what is in a log directory is today's."""
    config = BrokerConfig.parse({"log.dirs": "/a/,/b"})
    assert config.first_design_listener is None
    assert config.first_design_log_dir == "/a.first-design"
    config = BrokerConfig.parse({"first.design.log.dir": "/old"})
    assert config.first_design_log_dir == "/old"
    BrokerConfig.parse({"log.dirs": "/a,/a.first-design"})  # nobody asks for the first design


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("first.design.listener", "9091", "must be host:port"),
        ("first.design.listener", "host:70000", "must be host:port"),
        ("first.design.log.dir", "/data/", "must be none of log.dirs"),
        ("first.design.zookeeper.chroot", "/", "must be a path"),
        ("first.design.zookeeper.chroot", "old", "must be a path"),
        ("first.design.zookeeper.chroot", "/a//b", "must be a path"),
    ],
)
def test_settings_of_the_first_design_that_can_not_be_are_refused(setting, value, words):
    """With the setting in front."""
    with pytest.raises(ConfigError, match=rf"{setting}=.*{words}"):
        BrokerConfig.parse({"log.dirs": "/data", "first.design.listener": ":1"} | {setting: value})


def test_copied_topics_are_names_with_names_of_today():
    """Two may not become one, a name is a name, and what the broker alone writes is none."""
    assert parse_copies(["a", "b:c", "*"]) == {"a": "a", "b": "c", "*": "*"}
    for wrong in (["a", "b:a"], [":b"], ["a:"], ["*:a"], ["a:__consumer_offsets"]):
        with pytest.raises(ConfigError, match=r"first\.design\.copied\.topics"):
            BrokerConfig.parse({"first.design.copied.topics": ",".join(wrong)})
