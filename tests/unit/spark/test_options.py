"""Options: Spark's names and rules, and a sentence for each mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.errors import ConfigError
from ottla.record.columnar import COLUMNS
from ottla.spark.offsets import ByOffset, ByTimestamp, Earliest, GlobalTimestamp, Latest
from ottla.spark.options import (
    BOOTSTRAP_SERVERS,
    DEFAULTS,
    OPTIONS,
    WITHOUT_EFFECT,
    OptionError,
    SourceOptions,
    given_of,
)
from ottla.spark.task_sizes import TaskSizes
from ottla.structs import TopicPartition

PAGE = (Path(__file__).parents[3] / "docs" / "use" / "spark.md").read_text(encoding="utf-8")
SERVERS = {BOOTSTRAP_SERVERS: "localhost:9092"}
PAGES_0 = TopicPartition("pages", 0)


def batch(**options):
    return SourceOptions.for_batch(SERVERS | {"subscribe": "pages"} | options)


def stream(**options):
    return SourceOptions.for_stream(SERVERS | {"subscribe": "pages"} | options)


def test_defaults_are_those_of_spark():
    """A batch reads everything, a stream what comes; lost data fails; no headers."""
    options = batch()

    assert (options.starting, options.ending) == (Earliest(), Latest())
    assert stream().starting == Latest()
    assert (options.strategy, options.topics) == ("subscribe", "pages")
    assert (options.fail_on_data_loss, options.columns) == (True, COLUMNS[:-1])
    assert (options.task_sizes, options.max_offsets_per_trigger) == (TaskSizes(), None)
    assert options.group_id is None
    assert options.isolation == "read_uncommitted"


def test_names_are_case_insensitive():
    """Spark gives options in lower case, people in any."""
    options = SourceOptions.for_stream(
        {
            "KAFKA.bootstrap.servers": "a:1",
            "SUBSCRIBEPATTERN": "p.*",
            "maxoffsetspertrigger": "5",
            "IncludeHeaders": "TRUE",
            "kafka.isolation.level": "read_committed",
        }
    )

    assert (options.strategy, options.topics) == ("subscribePattern", "p.*")
    assert options.max_offsets_per_trigger == 5
    assert options.columns == COLUMNS
    assert options.client == {"bootstrap.servers": "a:1", "isolation.level": "read_committed"}
    assert options.isolation == "read_committed"


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        ({"columns": "value,offset"}, ("value", "offset")),
        ({"columns": " TIMESTAMPTYPE , key"}, ("timestampType", "key")),
        ({"columns": "headers"}, ("headers",)),
        ({"columns": "headers,value", "includeHeaders": "true"}, ("headers", "value")),
        ({"includeHeaders": "false"}, COLUMNS[:-1]),
    ],
)
def test_columns_are_those_that_are_named(options, columns):
    """In this order, by names of any case."""
    assert batch(**options).columns == stream(**options).columns == columns


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"columns": "valeu"}, "columns=valeu: 'valeu' is none of key, value"),
        ({"columns": "value,"}, "columns=value,: '' is none of"),
        ({"columns": "value,key,VALUE"}, "must name each column once"),
        ({"columns": "value", "includeHeaders": "true"}, "includeHeaders=true: headers are left"),
    ],
)
def test_wrong_columns_are_refused(options, said):
    """With the option, its value and the rule."""
    with pytest.raises(OptionError, match=said):
        batch(**options)


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({"startingOffsets": "EARLIEST"}, Earliest()),
        ({"startingOffsets": '{"pages":{"0":-2}}'}, ByOffset("startingOffsets", {PAGES_0: -2})),
        (
            {"startingOffsetsByTimestamp": '{"pages":{"0":7}}', "startingOffsets": "earliest"},
            ByTimestamp("startingOffsetsByTimestamp", {PAGES_0: 7}, "error"),
        ),
        (
            {"startingTimestamp": "9", "startingOffsetsByTimestamp": '{"pages":{"0":7}}'},
            GlobalTimestamp(9, "error"),
        ),
        (
            {"startingTimestamp": "9", "startingOffsetsByTimestampStrategy": "latest"},
            GlobalTimestamp(9, "latest"),
        ),
    ],
)
def test_start_is_taken_from_the_first_option_of_sparks_order(options, bound):
    """One timestamp goes before timestamps by partition, these before offsets."""
    assert batch(**options).starting == bound


def test_end_of_a_batch_never_needs_a_record():
    """A batch that ends at a time still to come ends at the latest offset."""
    assert batch(endingTimestamp="9").ending == GlobalTimestamp(9, "latest")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "first"}, "startingOffsets=first: must be earliest, latest or JSON"),
        ({"startingOffsets": '{"pages":{"0":-3}}'}, "-3 of pages-0 is not a whole number from -2"),
        ({"startingOffsets": '{"pages":{"x":1}}'}, "'x' is no partition"),
        ({"startingOffsets": '{"pages":[0]}'}, 'must be earliest, latest or JSON like {"topic":'),
        ({"startingOffsets": "latest"}, "startingOffsets=latest: a batch cannot begin at"),
        ({"startingOffsets": '{"pages":{"0":-1}}'}, "a batch cannot begin at the latest offset"),
        ({"endingOffsets": "earliest"}, "endingOffsets=earliest: a batch cannot end at"),
        ({"endingOffsets": '{"pages":{"0":-2}}'}, "a batch cannot end at the earliest offset"),
        ({"startingTimestamp": "now"}, "startingTimestamp=now: must be milliseconds since 1970"),
        ({"endingOffsetsByTimestamp": "5"}, "endingOffsetsByTimestamp=5: must be JSON like"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "=x: must be error or latest"),
        ({"minPartitions": "0"}, "minPartitions=0: must be a whole number greater than 0"),
        ({"minPartitions": "000"}, "minPartitions=000: must be a whole number greater than 0"),
        *(
            ({name: digits}, f"{name}={digits}: must be at most {2**63 - 1}")
            for name in ("startingTimestamp", "endingTimestamp", "minPartitions", "maxTriggerDelay")
            for digits in (str(2**63), "9" * 5000)
        ),
        ({"maxOffsetsPerTrigger": "1e6"}, "maxOffsetsPerTrigger=1e6: must be a whole number"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "minOffsetsPerTrigger=9: must not be more than maxOffsetsPerTrigger=8",
        ),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay=soon: must be a time span like 15m"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss=no: must be true or false"),
        ({"subscribe": " , "}, "subscribe= , : must name at least one topic"),
        ({"assign": '{"pages":[0]}'}, "exactly one of subscribe, subscribePattern, assign"),
        ({"topic": "t"}, "topic=t: there is no such option"),
        ({"failOnDataloss ": "t"}, "did you mean failOnDataLoss?"),
        ({"kafka.auto.offset.reset": "latest"}, "use the option startingOffsets instead"),
        ({BOOTSTRAP_SERVERS: " "}, "option kafka.bootstrap.servers is missing"),
    ],
)
def test_mistakes_are_named_in_one_sentence(options, said):
    """Option, value and rule are in the text, and it is one line."""
    with pytest.raises(OptionError) as error:
        batch(**options)

    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "must be given; found none"),
        ({"subscribePattern": "["}, "subscribePattern=[: is not a regular expression"),
        ({"subscribePattern": ""}, "subscribePattern=: must not be empty"),
        ({"assign": "[]"}, 'assign=[]: must be JSON like {"topic":[0,1]}'),
        ({"assign": '{"pages":["0"]}'}, '"0" of pages is no partition'),
        ({"assign": '{"pages":[true]}'}, "true of pages is no partition"),
        ({"assign": "{}"}, "with at least one partition"),
        ({"assign": "[" * 100_000}, "must be JSON like"),
    ],
)
def test_what_to_read_is_checked(options, said):
    """The three ways to name topics have rules of their own."""
    with pytest.raises(OptionError) as error:
        SourceOptions.for_batch(SERVERS | options)

    assert said in str(error.value)


def test_settings_of_the_client_are_checked_before_anything_is_read():
    """Credentials that no task would use are refused where the query is made."""
    with pytest.raises(ConfigError, match=r"sasl\.mechanism=PLAIN: must not be set"):
        batch(**{"kafka.sasl.mechanism": "PLAIN"})


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_stream_has_no_end(name):
    """Each way to say where a batch ends is refused for a stream."""
    with pytest.raises(OptionError, match=f"{name}=latest: a stream has no end"):
        stream(**{name: "latest"})


def test_options_of_the_kafka_source_that_change_nothing_are_accepted():
    """A pipeline keeps its options when its format changes; they are told, not refused."""
    given = given_of(SERVERS | dict.fromkeys(WITHOUT_EFFECT, "1"))

    assert all(name in given for name in WITHOUT_EFFECT)


@pytest.mark.parametrize("name", [*OPTIONS, BOOTSTRAP_SERVERS, *WITHOUT_EFFECT])
def test_every_option_is_documented(name):
    """docs/use/spark.md has a row, or a word, for each option."""
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("name", OPTIONS)
def test_documentation_says_what_the_option_says(name):
    """The row of the table is the text of the option, with its default."""
    default = f"`{DEFAULTS[name]}`" if name in DEFAULTS else ""

    assert f"| `{name}` | {default} | {OPTIONS[name]} |" in PAGE


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"minPartitions": "4", "maxPartitions": "3"},
            "minPartitions=4: must not be more than maxPartitions=3",
        ),
        (
            {"maxRecordsPerPartition": "9", "maxPartitions": "3"},
            "maxRecordsPerPartition=9: cannot be given together with maxPartitions=3",
        ),
        ({"maxPartitions": "0"}, "maxPartitions=0: must be a whole number greater than 0"),
    ],
)
def test_sizes_of_tasks_that_contradict_are_refused(options, said):
    """In a sentence that names both."""
    with pytest.raises(OptionError, match=said):
        stream(**options)
