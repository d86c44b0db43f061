"""Transforms in order, and the predicates that say for which records."""

from __future__ import annotations

import pytest

from ottla.config.connect_config import SinkConnectorConfig
from ottla.connect.conversion import make_transforms
from ottla.connect.data import SinkRecord
from ottla.connect.plugins import Plugins
from ottla.errors import ConfigError

HERE = "test_conversion_transforms"


class Suffix:
    """Adds to the topic."""

    def __init__(self, text):
        self.text = text

    @classmethod
    def of(cls, settings):
        if "text" not in settings:
            raise ConfigError("text: must be set")
        return cls(settings["text"])

    def apply(self, record):
        return record.replace(topic=record.topic + self.text)


class IsT:
    """Whether the topic is t."""

    @classmethod
    def of(cls, settings):
        return cls()

    def test(self, record):
        return record.topic == "t"


def run(topic, transforms="a", predicates="", **more):
    properties = {"transforms.a.type": f"{HERE}.Suffix", "transforms.a.text": "-a"}
    properties |= {key.replace("__", "."): value for key, value in more.items()}
    config = SinkConnectorConfig(
        name="c", connector_class="C", topics="t", transforms=transforms, predicates=predicates
    )
    record = SinkRecord(topic=topic, partition=0, offset=0)
    for _, transform in make_transforms(Plugins(), config, properties):
        record = transform(record)
    return record.topic


def test_transforms_are_in_the_order_of_the_setting():
    """Not in that of the file."""
    more = {"transforms__b__type": f"{HERE}.Suffix", "transforms__b__text": "-b"}
    assert run("t", "b,a", **more) == "t-b-a"


@pytest.mark.parametrize(
    ("negate", "topic", "found"),
    [("false", "t", "t-a"), ("false", "u", "u"), ("true", "t", "t"), ("true", "u", "u-a")],
)
def test_predicate_says_for_which_records(negate, topic, found):
    """Others pass as they are."""
    more = {
        "predicates__p__type": f"{HERE}.IsT",
        "transforms__a__predicate": "p",
        "transforms__a__negate": negate,
    }
    assert run(topic, predicates="p", **more) == found


def test_wrong_chains_are_named():
    """With the whole key."""
    with pytest.raises(ConfigError, match=r"transforms\.b\.type: must be set"):
        run("t", "b")
    with pytest.raises(ConfigError, match=r"transforms\.a\.predicate=p: must be one of"):
        run("t", transforms__a__predicate="p")
    with pytest.raises(ConfigError, match=r"transforms\.b\.text: must be set"):
        run("t", "b", transforms__b__type=f"{HERE}.Suffix")
