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

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.pipelines.tables import ResultTable


FIELDS = "name string, city string, balance bigint, changed_at timestamp"


def changes(records: DataFrame) -> DataFrame:
    """Each change with its key, its place in the topic, and whether it is the end of its row.

    A record without a key, or with a value that is no JSON object, changes nothing.
    """
    text = F.make_valid_utf8(F.col("value").cast("string"))
    parsed = F.from_json(
        text, f"{FIELDS}, _problem string", {"columnNameOfCorruptRecord": "_problem"}
    )
    rows = records.where("key IS NOT NULL").select(
        F.make_valid_utf8(F.col("key").cast("string")).alias("id"),
        parsed.alias("_row"),
        F.col("value").isNull().alias("_deleted"),
        F.col("offset").alias("_offset"),
    )
    whole = F.col("_row").isNotNull() & F.col("_row._problem").isNull()
    kept = rows.where(F.col("_deleted") | whole)
    return kept.select("id", "_row.*", "_deleted", "_offset").drop("_problem")


def by_city(table: DataFrame) -> DataFrame:
    """A report that a table answers and a topic does not."""
    return (
        table.groupBy("city")
        .agg(F.count("*").alias("customers"), F.sum("balance").alias("balance"))
        .orderBy(F.desc("balance"), "city")
    )


def differences(table: DataFrame, records: DataFrame) -> DataFrame:
    """How the table compares with the newest change of each key in the topic: one row."""
    last = F.max_by(F.struct("_offset", "_deleted"), F.col("_offset")).alias("last")
    newest = changes(records).groupBy("id").agg(last).select("id", "last.*")
    alive = newest.where(~F.col("_deleted")).select("id", F.col("_offset").alias("topic_offset"))
    both = table.select("id", F.col("_offset").alias("table_offset")).join(alive, "id", "full")
    return both.agg(
        F.count("table_offset").alias("rows"),
        F.count("topic_offset").alias("keys"),
        F.count_if(F.col("table_offset").isNull()).alias("missing"),
        F.count_if(F.col("topic_offset").isNull()).alias("surplus"),
        F.count_if(F.col("topic_offset") != F.col("table_offset")).alias("outdated"),
    )


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
    inputs=(Input(CHANGES, is_compacted=True),),
    outputs=(Output(CUSTOMERS, identity=("id",), is_table=True),),
    build=build,
    feeds={"sample": sample},
    sections=(
        Section(
            "completeness",
            "Table and topic",
            "The table beside the newest change of each key: the last three have to be 0.",
            lambda topics, parameters: differences(topics[CUSTOMERS], topics[CHANGES]),
            faults=("missing", "surplus", "outdated"),
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
