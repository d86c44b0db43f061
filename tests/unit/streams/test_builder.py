"""Streams, record by record, as a batch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import pytest
from pyspark.errors import PySparkException

from ottla.streams import Serdes, StreamsBuilder, StreamsTest

pytestmark = pytest.mark.spark


@dataclass
class Page:
    """What was seen, and how often."""

    path: str
    hits: int


def doubled(page: Page) -> Page:
    """A function with an annotation, which says the serde."""
    return Page(page.path, page.hits * 2)


@pytest.mark.wide
def test_expressions_and_python_do_the_same(spark):
    """Each operation by SQL and by Python; everything goes to its topic."""
    builder = StreamsBuilder("app")
    lines = builder.stream("lines")
    long = Serdes.long()
    lines.filter("length(value) > 1").map_values("upper(value)").to("sql")
    lines.filter(lambda key, value: len(value) > 1).map_values(str.upper).to("python")
    lines.select_key("length(value)").to("sql-key")
    lines.select_key(lambda key, value: len(value), Serdes.int()).to("python-key")
    lines.map("struct(value AS key, length(value) AS value)").to("sql-pair")
    lines.map(lambda key, value: (value, len(value)), value=Serdes.int()).to("python-pair")
    lines.flat_map_values("split(value, '')").to("sql-many")
    lines.flat_map_values(list).to("python-many")
    lines.flat_map("array(struct(value AS key, 1L AS value))").to("sql-pairs")
    lines.flat_map(lambda key, value: [(value, 1)], value=long).to("python-pairs")
    test = StreamsTest(builder, spark)
    test.pipe("lines", [("k", "ab"), ("k", "c")])

    number = Serdes.int()
    expected = {
        "": ([("k", "AB")], {}),
        "-key": ([(2, "ab"), (1, "c")], {"key": number}),
        "-pair": ([("ab", 2), ("c", 1)], {"value": number}),
        "-many": ([("k", "a"), ("k", "b"), ("k", "c")], {}),
        "-pairs": ([("ab", 1), ("c", 1)], {"value": long}),
    }
    for name, (records, serdes) in expected.items():
        for kind in ("sql", "python"):
            assert sorted(test.read(kind + name, **serdes)) == sorted(records), kind + name


@pytest.mark.wide
def test_objects_are_dataclasses_in_python_and_structs_in_sql(spark):
    """JSON through a function and an expression."""
    builder = StreamsBuilder("app")
    pages = builder.stream("pages", value=Serdes.json(Page))
    pages.map_values(doubled).filter("value.hits > 2").to("more")
    test = StreamsTest(builder, spark)
    test.pipe("pages", [("a", Page("/", 1)), ("b", Page("/x", 2))], value=Serdes.json(Page))

    assert test.read("more", value=Serdes.json(Page)) == [("b", Page("/x", 4))]


def test_branches_take_each_record_once_and_merge_again(spark):
    """The first predicate that holds; what none takes is gone."""
    builder = StreamsBuilder("app")
    small, large = builder.stream("numbers", value=Serdes.long()).branch("value < 3", "value < 6")
    small.map_values("-value").merge(large).to("out")
    test = StreamsTest(builder, spark)
    test.pipe("numbers", [(None, n) for n in range(8)], value=Serdes.long())

    found = test.read("out", value=Serdes.long())

    assert sorted(value for _, value in found) == [-2, -1, 0, 3, 4, 5]


def test_streams_of_two_types_cannot_be_merged(spark):
    """The sentence says both."""
    builder = StreamsBuilder("app")
    builder.stream("a").merge(builder.stream("b", value=Serdes.long())).to("out")

    with pytest.raises(TypeError, match="values are string and bigint"):
        StreamsTest(builder, spark).read("out")


def test_what_a_serde_cannot_read_fails_or_is_skipped(spark):
    """The failure names topic, partition and offset."""
    builder = StreamsBuilder("app")
    builder.stream("in", value=Serdes.long()).to("strict")
    builder.stream("in", value=Serdes.long(), skip_malformed=True).to("lenient")
    test = StreamsTest(builder, spark)
    test.pipe("in", [("a", b"\0" * 8), ("b", b"?")], value=Serdes.bytes())

    assert test.read("lenient", value=Serdes.long()) == [("a", 0)]
    with pytest.raises(PySparkException, match="in: the value is no long: partition 0, offset 1"):
        test.read("strict")


@pytest.mark.parametrize("is_stream", [False, True])
def test_no_predicate_of_a_table_sees_a_tombstone(spark, tmp_path, is_stream):
    """A deletion goes on, and a row for which the predicate does not hold is one (as in Kafka)."""
    builder = StreamsBuilder("app")
    rows = builder.table("rows")
    rows.filter(lambda key, value: value.startswith("x")).to("python")
    rows.filter("startswith(value, 'x')").to("sql")
    test = StreamsTest(builder, spark, tmp_path if is_stream else None)
    test.pipe("rows", [("a", "xy"), ("b", "no"), ("a", None)])

    found = {topic: test.read(topic) for topic in ("python", "sql")}

    assert found["python"] == found["sql"] == [("a", "xy"), ("b", None), ("a", None)]


TIMES = {
    "text": ("'yesterday'", "2026-11-29T12:00:00Z"),
    "missing": ("null", "2026-11-29T12:00:00Z"),
}


@pytest.mark.parametrize("kind", TIMES)
def test_a_record_without_a_time_fails_or_is_skipped(spark, kind):
    """As one that its serde cannot read; a window would leave it out in silence."""
    wrong, right = TIMES[kind]
    when = f"CASE WHEN value = 'wrong' THEN {wrong} ELSE '{right}' END"
    builder = StreamsBuilder("app")
    for name, is_lenient in (("strict", False), ("lenient", True)):
        records = builder.stream("in", timestamp=when, skip_malformed=is_lenient)
        records.map_values("CAST(unix_seconds(timestamp) AS string)").to(name)
    test = StreamsTest(builder, spark)
    test.pipe("in", [("a", "right"), ("b", "wrong")])

    assert test.read("lenient") == [("a", "1795953600")]
    with pytest.raises(PySparkException, match="in: the timestamp is no time: partition 0, off"):
        test.read("strict")


def test_a_tombstone_has_the_time_of_its_topic(spark):
    """It has no value in which there could be another one, and deletes the row none the less."""
    builder = StreamsBuilder("app")
    table = builder.table("rows", timestamp="timestamp_seconds(CAST(value AS long))")
    table.to_stream().map_values("CAST(unix_seconds(timestamp) AS string)").to("out")
    test = StreamsTest(builder, spark)
    test.pipe("rows", [("a", "17", 1_000), ("a", None, 2_000)])

    assert test.read("out") == [("a", "17"), ("a", "2")]


@pytest.mark.parametrize("topics", sorted({*permutations(["x", "x", "x", "x-2"])}))
def test_each_sink_has_a_name_of_its_own(topics):
    """The names are those of checkpoints, also where a topic is called as another's second sink."""
    builder = StreamsBuilder("app")
    for topic in topics:
        builder.stream("in").to(topic)

    names = [sink.name for sink in builder.sinks]
    assert len(set(names)) == len(topics)
    assert [sink.topic for sink in builder.sinks] == list(topics)


@pytest.mark.wide
def test_a_topic_in_between_is_written_and_read_on(spark):
    """Serdes go through it, also those that only columns decide."""
    builder = StreamsBuilder("app")
    lengths = builder.stream("in").map_values("length(value)")
    lengths.repartition("lengths").map_values("value * 2").to("out")
    test = StreamsTest(builder, spark)
    test.pipe("in", [("a", "xyz")])

    assert builder.internal_topics == ["app-lengths-repartition"]
    assert test.read("out", value=Serdes.int()) == [("a", 6)]


@pytest.mark.wide
def test_folds_go_by_key_and_in_order(spark):
    """Records without key or value take no part."""
    builder = StreamsBuilder("app")
    letters = builder.stream("letters").group_by_key()
    letters.count().to("counts")
    letters.reduce(lambda before, value: before + value).to("words")
    letters.reduce("max(value)").to("last")
    letters.aggregate(lambda: 0, lambda key, value, total: total + ord(value), Serdes.long()).to(
        "sums"
    )
    test = StreamsTest(builder, spark)
    test.pipe("letters", [("k", "c"), ("k", "a"), ("l", "z"), ("k", "b"), (None, "x"), ("k", None)])

    assert sorted(test.read("counts", value=Serdes.long())) == [("k", 3), ("l", 1)]
    assert sorted(test.read("words")) == [("k", "cab"), ("l", "z")]
    assert sorted(test.read("last")) == [("k", "c"), ("l", "z")]
    assert sorted(test.read("sums", value=Serdes.long())) == [("k", 294), ("l", 122)]


def test_peek_shows_records_to_python(spark, tmp_path):
    """In the worker; the records go on."""
    seen = tmp_path / "seen"
    builder = StreamsBuilder("app")
    builder.stream("in").peek(lambda key, value: seen.write_text(f"{key}={value}")).to("out")
    test = StreamsTest(builder, spark)
    test.pipe("in", [("a", "1")])

    assert (test.read("out"), seen.read_text()) == ([("a", "1")], "a=1")
