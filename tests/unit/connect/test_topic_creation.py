"""Groups of topics and their settings (KIP-158)."""

from __future__ import annotations

import pytest

from ottla.config.connect_config import SourceConnectorConfig
from ottla.connect.topic_creation import topic_groups
from ottla.errors import ConfigError

DEFAULT = {
    "topic.creation.default.partitions": "1",
    "topic.creation.default.replication.factor": "-1",
}


def groups(names="", **more):
    config = SourceConnectorConfig(name="c", connector_class="C", topic_creation_groups=names)
    found = DEFAULT | {
        f"topic.creation.{key.replace('__', '.')}": value for key, value in more.items()
    }
    return topic_groups({k: v for k, v in found.items() if v is not None}, config)


def test_without_a_default_nothing_is_created():
    """It is left to the broker."""
    config = SourceConnectorConfig(name="c", connector_class="C")
    assert topic_groups({}, config) == ()


def test_group_takes_what_it_lacks_from_the_default():
    """Further keys are settings of the topic."""
    logs, default = groups("logs", logs__include="log-.*", logs__cleanup__policy="compact")

    assert (logs.partitions, logs.replication_factor) == (1, -1)
    assert logs.config == {"cleanup.policy": "compact"}
    assert (logs.has("log-a"), logs.has("a-log")) == (True, False)
    assert default.has("anything")


def test_excluded_topics_are_not_in_a_group():
    """exclude wins over include."""
    logs, _ = groups("logs", logs__include="log-.*", logs__exclude="log-x")
    assert not logs.has("log-x")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"names": "logs"}, r"topic\.creation\.logs\.include: must be set"),
        ({"names": "logs", "logs__include": "("}, "must be regular expressions"),
        ({"default__partitions": None}, r"default\.partitions: must be set"),
        ({"default__partitions": "0"}, "must be at least 1, or -1"),
        ({"names": "l", "default__replication__factor": None}, r"replication\.factor: must be set"),
    ],
)
def test_wrong_groups_are_named(settings, message):
    """Key and rule are in the sentence."""
    with pytest.raises(ConfigError, match=message):
        groups(**settings)
