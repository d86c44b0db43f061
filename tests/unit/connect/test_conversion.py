"""Records on their way between a connector and a topic."""

from __future__ import annotations

import pytest

from ottla.config.connect_config import SinkConnectorConfig, StandaloneConfig
from ottla.connect.conversion import Conversion, make_converter
from ottla.connect.converters import IntegerConverter, SimpleHeaderConverter, StringConverter
from ottla.connect.data import SinkRecord, SourceRecord
from ottla.connect.plugins import Plugins
from ottla.connect.tolerance import SkippedRecordError, Stage, Tolerance
from ottla.record.consumer_record import ConsumerRecord, TimestampType
from ottla.testing.runtime import mock_runtime

RECORD = ConsumerRecord(
    "t", 1, 5, 1000, TimestampType.CREATE_TIME, b"\0\0\0\7", b"v", (("h", b"1"),)
)


def conversion(*transforms):
    converters = (IntegerConverter(), StringConverter(), SimpleHeaderConverter())
    return Conversion(converters, [("Own", transform) for transform in transforms])


@pytest.fixture
def failures():
    return []


@pytest.fixture
def tolerance(failures):
    config = SinkConnectorConfig(name="c", connector_class="C", topics="t", errors_tolerance="all")
    return Tolerance(config, mock_runtime(), lambda seconds: True, [failures.append])


def test_record_of_a_topic_becomes_values(tolerance):
    """Key, value and headers each by their converter; the place stays known."""
    made = conversion().decode(RECORD, tolerance)

    assert (made.key, made.value, made.header("h").value) == (7, "v", 1)
    assert (made.topic, made.partition, made.offset, made.timestamp_ms) == ("t", 1, 5, 1000)
    assert made.original is RECORD


def test_record_of_a_source_becomes_bytes(tolerance):
    """Null stays null."""
    record = SourceRecord(topic="t", key=7, value=None, headers=[("h", 1)], timestamp_ms=9)
    made = conversion().encode(record, tolerance)

    assert (made.key, made.value, made.headers) == (b"\0\0\0\7", None, [("h", b"1")])
    assert (made.topic, made.partition, made.timestamp_ms) == ("t", None, 9)


def test_values_alone_are_converted_together():
    """Unless a transform looks at records, or one of them cannot be converted."""
    assert conversion().encode_values("t", ["a", None], None) == [b"a", None]
    assert conversion(lambda record: record).encode_values("t", ["a"], None) is None
    assert conversion().encode_values("t", ["a", b"\xff"], None) is None


def test_transforms_follow_each_other(tolerance):
    """In the order of the settings; the original place stays (KIP-793)."""
    made = conversion(
        lambda record: record.replace(topic=f"{record.topic}-a"),
        lambda record: record.replace(topic=f"{record.topic}-b"),
    ).decode(RECORD, tolerance)

    assert (made.topic, made.original_topic, made.original_partition) == ("t-a-b", "t", 1)


def test_record_that_a_transform_has_made_anew_keeps_its_place(tolerance):
    """Its offset is committed, and a sink that reports it has a dead letter."""
    made = conversion(lambda record: SinkRecord(topic="u", offset=99, value=record.value)).decode(
        RECORD, tolerance
    )

    assert made.original is RECORD
    assert (made.topic, made.value, made.offset) == ("u", "v", 5)
    assert (made.original_topic, made.original_partition) == ("t", 1)


def test_transform_may_drop_a_record(tolerance):
    """None is no record, and no failure."""
    dropping = conversion(lambda record: None)

    assert dropping.decode(RECORD, tolerance) is None
    assert dropping.encode(SourceRecord(topic="t", value="v"), tolerance) is None
    assert tolerance.failures == 0


@pytest.mark.parametrize(
    ("record", "stage"),
    [
        (RECORD._replace(key=b"x"), Stage.KEY_CONVERTER),
        (RECORD._replace(value=b"\xff"), Stage.VALUE_CONVERTER),
    ],
)
def test_failure_knows_its_stage(tolerance, failures, record, stage):
    """A failure knows its stage, and the record as it is in the topic."""
    with pytest.raises(SkippedRecordError):
        conversion().decode(record, tolerance)
    assert (failures[0].operation.stage, failures[0].operation.record) == (stage, record)


def test_failing_transform_is_named(tolerance, failures):
    """By its class."""
    with pytest.raises(SkippedRecordError):
        conversion(lambda record: 1 / 0).encode(SourceRecord(topic="t", value="v"), tolerance)
    assert failures[0].operation[:2] == (Stage.TRANSFORMATION, "Own")


def test_connector_may_have_converters_of_its_own():
    """Its settings count then, not the worker's."""
    names = {
        "key.converter": "JsonConverter",
        "value.converter": "JsonConverter",
        "bootstrap.servers": "h:1",
        "offset.storage.file.filename": "f",
    }
    worker = (StandaloneConfig.parse(names), {"value.converter.schemas.enable": "false"})
    own = SinkConnectorConfig(
        name="c", connector_class="C", topics="t", value_converter="StringConverter"
    )
    other = SinkConnectorConfig(name="c", connector_class="C", topics="t")

    assert type(make_converter(Plugins(), "value", worker, (own, {}))).__name__ == "StringConverter"
    taken = make_converter(Plugins(), "value", worker, (other, {}))
    assert (type(taken).__name__, taken.settings.schemas_enable) == ("JsonConverter", False)
    assert make_converter(Plugins(), "key", worker, (other, {})).settings.converter_type == "key"
