"""The sink's options and columns: what is refused, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from ottla.errors import ConfigError
from ottla.spark.options import BOOTSTRAP_SERVERS, OptionError
from ottla.spark.sink_options import SINK_DEFAULTS, SINK_OPTIONS, SinkOptions, check_schema

PAGE = (Path(__file__).parents[3] / "docs" / "use" / "spark-sink.md").read_text(encoding="utf-8")
SERVERS = {BOOTSTRAP_SERVERS: "localhost:9092"}
HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))


def options(**given):
    return SinkOptions.for_batch(SERVERS | given)


def schema(**columns):
    return StructType([StructField(name, kind) for name, kind in columns.items()])


@pytest.mark.parametrize(
    "columns",
    [
        {"value": StringType(), "topic": StringType()},
        {"KEY": BinaryType(), "Value": BinaryType(), "topic": StringType(), "other": LongType()},
        {
            "value": BinaryType(),
            "topic": StringType(),
            "partition": IntegerType(),
            "headers": HEADERS,
        },
    ],
)
def test_columns_of_sparks_kafka_sink_are_taken(columns):
    """In any case and order; others are left alone."""
    check_schema(schema(**columns), options())


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"key": StringType()}, "columns key: there must be a column `value`"),
        ({}, "columns none: there must be a column `value`"),
        ({"value": LongType()}, "column value: must be a string or a binary, and is bigint"),
        ({"value": StringType(), "key": HEADERS}, "column key: must be a string or a binary"),
        ({"value": StringType()}, "topic: set the option, or give every row a column `topic`"),
        ({"value": StringType(), "topic": LongType()}, "column topic: must be a string"),
        (
            {"value": StringType(), "topic": StringType(), "partition": StringType()},
            "column partition: must be a whole number, and is string",
        ),
        (
            {"value": StringType(), "topic": StringType(), "headers": ArrayType(StringType())},
            "column headers: must be an array of structs",
        ),
    ],
)
def test_columns_that_cannot_be_records_are_named(columns, said):
    """Before a task is started."""
    with pytest.raises(OptionError) as error:
        check_schema(schema(**columns), options())

    assert said in str(error.value)


def test_topic_of_the_option_goes_before_the_column():
    """Then the column may even be something else."""
    check_schema(schema(value=StringType(), topic=LongType()), options(topic="pages"))
    assert options(TOPIC=" pages ").topic == "pages"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": " "}, "topic=: must be the name of a topic"),
        ({"topics": "a"}, "topics=a: there is no such option; did you mean topic?"),
        ({"includeHeaders": "yes"}, "includeHeaders=yes: must be true or false"),
        ({"kafka.value.serializer": "x"}, "kafka.value.serializer=x: cannot be set; values are"),
        ({"kafka.acks": "7"}, "acks=7"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "sasl.mechanism=PLAIN: must not be set"),
    ],
)
def test_wrong_options_are_told(given, said):
    """Name, value and rule; the producer's settings too."""
    with pytest.raises((OptionError, ConfigError)) as error:
        options(**given)

    assert said in str(error.value)


def test_streams_write_exactly_once_unless_told_otherwise():
    """A batch cannot; both have the same options otherwise."""
    assert SinkOptions.for_stream(SERVERS).exactly_once
    assert not SinkOptions.for_stream(SERVERS | {"exactlyOnce": "false"}).exactly_once
    assert not options(exactlyOnce="false").exactly_once
    with pytest.raises(OptionError, match="exactlyOnce=true: only streams can"):
        options(exactlyOnce="true")
    with pytest.raises(ConfigError, match="idempotence"):
        SinkOptions.for_stream(SERVERS | {"kafka.enable.idempotence": "false"})


def test_settings_go_to_the_producer():
    """The settings have no prefix, and are as they were given."""
    assert options(**{"kafka.linger.ms": "7"}).client == {
        "bootstrap.servers": "localhost:9092",
        "linger.ms": "7",
    }


@pytest.mark.parametrize("name", SINK_OPTIONS)
def test_documentation_says_what_the_option_says(name):
    """The row of the table is the text of the option, with its default."""
    default = f"`{SINK_DEFAULTS[name]}`" if name in SINK_DEFAULTS else ""

    assert f"| `{name}` | {default} | {SINK_OPTIONS[name]} |" in PAGE
