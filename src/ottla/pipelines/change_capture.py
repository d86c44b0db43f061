"""Changes of a database's rows, as a table that always holds the newest of each.

A record holds a row as it is after a change; one without a value says that the row is gone. That is
all that a compacted topic keeps, so no more is needed to make the table of it, at any time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.pipelines.pipeline import (
    Event,
    FeedRequest,
    Frames,
    Input,
    Output,
    Parameters,
    Pipeline,
    Section,
    after,
    event,
)
from ottla.pipelines.plots import bars_plot
from ottla.pipelines.records import NO_OBJECT, TABLE_ORDER, total, within_years
from ottla.spark.source import RECORD_ORDER

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ottla.pipelines.tables import ResultTable


NO_KEY = "the record has no key"
FIELDS = "name string, city string, balance bigint, changed_at timestamp"


def left_out() -> Column:
    """Why a record changes nothing; null for one that changes or deletes a row."""
    text = F.make_valid_utf8(F.col("value").cast("string"))
    given = F.from_json(text, "map<string, string>")
    parsed = F.array(F.struct(_row().alias("row"), given.alias("given")))
    # The variable of a function stands for the parsed value, and not for the parsing.
    return F.transform(parsed, lambda each: _problem(each["row"], each["given"]))[0]


def _problem(row: Column, given: Column) -> Column:
    misfits = F.concat_ws(
        ", ",
        *(
            F.when(given[name].isNotNull() & ~fits(row[name], kind), F.lit(f"{name} is no {kind}"))
            for name, kind in (field.split() for field in FIELDS.split(", "))
        ),
    )
    return (
        F.when(F.col("key").isNull(), NO_KEY)
        .when(F.col("value").isNull(), None)
        .when(misfits != "", misfits)
        .when(row["_problem"].isNull() & row.isNotNull() & given.isNotNull(), None)
        .otherwise(NO_OBJECT)
    )


def fits(value: Column, kind: str) -> Column:
    """Whether a value was read as its kind; a time has to be one that others can hold as well."""
    is_read = value.isNotNull()
    return is_read & within_years(value) if kind == "timestamp" else is_read


def _row() -> Column:
    """The columns of a row, from a record's value."""
    text = F.make_valid_utf8(F.col("value").cast("string"))
    options = {"columnNameOfCorruptRecord": "_problem"}
    return F.from_json(text, f"{FIELDS}, _problem string", options)


def changes(records: DataFrame) -> DataFrame:
    """Each change with its key, its place, and whether it is the end of its row.

    Records with a reason to be left out change nothing, and `observed` counts them.
    """
    return (
        records.where(left_out().isNull())
        .select(
            F.make_valid_utf8(F.col("key").cast("string")).alias("id"),
            _row().alias("_row"),
            F.col("value").isNull().alias("_deleted"),
            *(
                F.col(name).alias(own)
                for name, own in zip(RECORD_ORDER.columns, TABLE_ORDER.columns, strict=True)
            ),
        )
        .select("id", "_row.*", "_deleted", *TABLE_ORDER.columns)
        .drop("_problem")
    )


def unused(records: DataFrame) -> DataFrame:
    """The records that change nothing, by the reason, with the first of each."""
    place = F.struct("timestamp", "partition", "offset")
    first = F.min_by(F.concat_ws("-", "partition", "offset"), place).alias("first")
    return (
        records.withColumn("reason", left_out())
        .where(F.col("reason").isNotNull())
        .groupBy("reason")
        .agg(F.count("*").alias("records"), first)
        .orderBy("reason")
    )


def by_city(table: DataFrame) -> DataFrame:
    """A report that a table answers and a topic does not."""
    return (
        table.groupBy("city")
        .agg(F.count("*").alias("customers"), total("balance").alias("balance"))
        .orderBy(F.desc("balance"), "city")
    )


def differences(table: DataFrame, records: DataFrame) -> DataFrame:
    """How the table compares with the newest change of each key in the topic: one row."""
    place = F.concat_ws("-", "_partition", "_offset")
    newest = TABLE_ORDER.newest(changes(records), ["id"])
    alive = newest.where(~F.col("_deleted")).select("id", place.alias("topic_place"))
    both = table.select("id", place.alias("table_place")).join(alive, "id", "full")
    counts = records.agg(
        F.count("*").alias("in_topic"), F.count_if(left_out().isNull()).alias("changes")
    )
    differences = both.agg(
        F.count("table_place").alias("rows"),
        F.count("topic_place").alias("keys"),
        F.count_if(F.col("table_place").isNull()).alias("missing"),
        F.count_if(F.col("topic_place").isNull()).alias("surplus"),
        F.count_if(F.col("topic_place") != F.col("table_place")).alias("outdated"),
    )
    left = (F.col("in_topic") - F.col("changes")).alias("left_out")
    return counts.select("*", left).crossJoin(differences)


CHANGES, CUSTOMERS = "customer-changes", "customers"
CITIES = ("Oslo", "Bergen", "Lima", "Cusco", "Kyoto", "Osaka", "Accra")
KEYS = 500
DELETED_SHARE = 0.1


def build(streams: Frames, parameters: Parameters) -> Frames:
    return {CUSTOMERS: changes(streams[CHANGES])}


def sample(request: FeedRequest) -> Iterator[Event]:
    """Customers who come, move, pay and go, as a database would report them."""
    chance = random.Random(request.seed)
    for number in range(request.events):
        key = f"customer-{chance.randrange(KEYS)}"
        if chance.random() < DELETED_SHARE:
            yield Event(CHANGES, key.encode(), None)
            continue
        yield event(
            CHANGES,
            key,
            name=key.title().replace("-", " "),
            city=chance.choice(CITIES),
            balance=chance.randrange(10_000),
            changed_at=after(number),
        )


def _plot(table: ResultTable, parameters: Parameters) -> str:
    return bars_plot(table.column("city"), table.column("balance"), "balance")


PIPELINE = Pipeline(
    name="change_capture",
    summary="Keep a Delta table in step with a compacted topic of row changes.",
    inputs=(Input(CHANGES, is_compacted=True, left_out=left_out),),
    outputs=(Output(CUSTOMERS, identity=("id",), is_table=True),),
    build=build,
    feeds={"sample": sample},
    sections=(
        Section(
            "completeness",
            "Table and topic",
            "The records are changes, or left out. The table beside the newest change of each key, "
            f"by {RECORD_ORDER}: the last three have to be 0.",
            lambda topics, parameters: differences(topics[CUSTOMERS], topics[CHANGES]),
            faults=("missing", "surplus", "outdated"),
        ),
        Section(
            "left_out",
            "Records that change nothing",
            "By the reason, with the partition and the offset of the first.",
            lambda topics, parameters: unused(topics[CHANGES]),
        ),
        Section(
            "by_city",
            "Customers by city",
            "What the table says.",
            lambda topics, parameters: by_city(topics[CUSTOMERS]),
            _plot,
        ),
    ),
)
