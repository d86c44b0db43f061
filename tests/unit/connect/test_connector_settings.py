"""Properties of connectors: whose they are, and all that is wrong with them."""

from __future__ import annotations

import pytest

from ottla.config.connect_config import StandaloneConfig
from ottla.connect.connector_settings import (
    Checker,
    own_properties,
    parse_connector,
    required_name,
    validation_json,
)
from ottla.connect.connectors.files import FileStreamSource
from ottla.connect.plugins import Plugins
from ottla.errors import ConfigError

GOOD = {
    "name": "c",
    "connector.class": "FileStreamSource",
    "file": "f",
    "topic": "t",
    "value.converter": "StringConverter",
    "value.converter.converter.encoding": "latin-1",
}


def check(properties, **worker):
    settings = {
        "bootstrap.servers": "h:1",
        "key.converter": "JsonConverter",
        "value.converter": "JsonConverter",
        "offset.storage.file.filename": "f",
    } | {key.replace("_", "."): value for key, value in worker.items()}
    return Checker(Plugins(), StandaloneConfig.parse(settings), settings).check(properties)


def test_settings_go_to_their_tables():
    """Common ones, the connector's own, and those of its parts, which are in neither."""
    config, settings = parse_connector(FileStreamSource, GOOD)

    assert own_properties(FileStreamSource, GOOD) == {"file": "f", "topic": "t"}
    assert (config.name, config.value_converter, settings.topic) == ("c", "StringConverter", "t")


def test_good_properties_have_no_errors():
    """Defaults are shown as they are written."""
    checked = check(GOOD)

    assert checked.errors == {}
    assert (checked.values["tasks.max"], checked.values["topic"]) == ("1", "t")


TABLES = {"connector.class": "SqlSource", "url": "sqlite://", "tables": "orders"}
ROUTED = {
    "transforms": "r",
    "transforms.r.type": "RegexRouter",
    "transforms.r.regex": "(.*) (.*)",
    "transforms.r.replacement": "$1-$2",
}


def test_a_topic_that_a_transform_may_rename_is_not_refused():
    """What the name becomes is not known before a record comes."""
    config = {"name": "c"} | TABLES

    assert check(config).error_count == 0
    (error,) = check(config | {"tables": "orders,my table"}).errors["tables"]
    assert "'my table' must be the name of a topic" in error
    assert "RegexRouter gives another one" in error
    assert check(config | {"tables": "my table"} | ROUTED).error_count == 0


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"tasks.max": "0"}, "tasks.max", "must be at least 1"),
        ({"topic": ""}, "topic", "must not be empty"),
        ({"connector.class": "Nothing"}, "connector.class", "must be a class that Ottla has"),
        ({"value.converter": "Nothing"}, "value.converter", "value|converter"),
        ({"bach.size": "1"}, "bach.size", "did you mean batch.size"),
        ({"topic.creation.groups": "g"}, "topic.creation.groups", "must be set"),
        ({"exactly.once.support": "required"}, "exactly.once.support", "must have"),
        ({"errors.tolerance": "some"}, "errors.tolerance", "must be one of"),
    ],
)
def test_what_is_wrong_is_noted_by_key(changes, key, message):
    """One error for one mistake."""
    checked = check(GOOD | changes)
    assert list(checked.errors) == [key]
    assert any(part in checked.errors[key][0] for part in message.split("|"))


def test_overrides_are_refused_by_policy():
    """connector.client.config.override.policy says which (KIP-458)."""
    override = {"producer.override.linger.ms": "5"}
    user = {"producer.override.sasl.mechanism": "PLAIN"}

    assert check(GOOD | override).error_count == 0
    for policy, properties, count in (
        ("None", override, 1),
        ("Principal", override, 1),
        ("Principal", user, 0),
    ):
        checked = check(GOOD | properties, connector_client_config_override_policy=policy)
        assert checked.error_count == count


def test_answer_has_kafkas_fields():
    """Groups, definitions and values."""
    answer = validation_json(check(GOOD))

    assert (answer["name"], answer["error_count"]) == ("FileStreamSource", 0)
    assert {"Common", "Error Handling", "Topic Creation", "Transforms"} <= set(answer["groups"])
    first = answer["configs"][0]
    assert first["value"] == {
        "name": "name",
        "value": "c",
        "recommended_values": [],
        "errors": [],
        "visible": True,
    }


def test_name_is_that_of_the_path():
    """The name is that of the path, or missing, and then taken from there."""
    assert required_name("c", {})["name"] == "c"
    with pytest.raises(ConfigError, match=r"\(d\) doesn't match connector name in the URL \(c\)"):
        required_name("c", {"name": "d"})
