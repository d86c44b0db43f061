"""Web-site traffic: access-log lines in, traffic, pages, errors and crawlers out.

Each computation is named after its result: `events` takes the records of a topic, all others take
its result. An event whose `problem` is not null is a line that did not parse: it stays, only
`malformed` shows it, and it goes to the dead-letter topic as well. `completeness` counts what is
lost or duplicated, and assumes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.pipelines.access_log import lines_of
from ottla.pipelines.line_rows import LINE_ROWS, rows_of_lines
from ottla.pipelines.logged_request import ASSET, FIRST_ERROR_STATUS
from ottla.pipelines.pipeline import (
    Event,
    Feed,
    FeedRequest,
    Frames,
    Input,
    Output,
    Parameters,
    Pipeline,
    Section,
)
from ottla.pipelines.plots import PLOTTED_ROWS, bars_plot, lines_plot, top_rows_plot
from ottla.pipelines.records import total

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ottla.pipelines.tables import ResultTable


ASSET_PATTERN = f"(?i){ASSET.pattern}"
CRAWLER = r"(?i)bot|crawl|spider|slurp"
MAX_REQUESTS_PER_MINUTE = 30
LONGEST_RAW = 64 * 1024
"""How much of a line that did not parse is in its row: as JSON it has to fit into a record."""
LONGEST_LETTER = 1_000_000
"""How much of it is in its dead letter: a longer one has no room for the headers."""


def events(records: DataFrame) -> DataFrame:
    """A row for each record whose value is a line of an access log, or should be one.

    `_topic`, `_partition` and `_offset` tell which record it was; `raw` keeps the bytes of a line
    that did not parse, `problem` says why.
    """
    raw = F.when(F.col("problem").isNotNull(), F.substring("value", 1, LONGEST_RAW))
    return read_lines(records).withColumn("raw", raw).drop("value")


def read_lines(records: DataFrame) -> DataFrame:
    """The parts of each line, by the reader of all pipelines, and the record's value itself."""
    taken = records.select("topic", "partition", "offset", "value")
    return taken.mapInArrow(rows_of_lines, LINE_ROWS)


def dead_letters(records: DataFrame) -> DataFrame:
    """The records that did not parse as they were, each with its place and the reason as headers.

    These are the columns of the sink: unusable records are not dropped silently. Of a value
    that has no room beside the headers the beginning is kept, and its length is a header more.
    """
    place = {"topic": "_topic", "partition": "_partition", "offset": "_offset"}
    headers = [_header(f"source.{name}", F.col(column)) for name, column in place.items()]
    length = F.length("value")
    cut = F.when(length > LONGEST_LETTER, F.array(_header("length", length)))
    return (
        read_lines(records)
        .where(F.col("problem").isNotNull())
        .select(
            F.lit(None).cast("binary").alias("key"),
            F.substring("value", 1, LONGEST_LETTER).alias("value"),
            F.concat(
                F.array(*headers, _header("reason", F.col("problem"))),
                F.coalesce(cut, F.array().cast("array<struct<key:string,value:binary>>")),
            ).alias("headers"),
        )
    )


def completeness(records: DataFrame, events: DataFrame, letters: DataFrame) -> DataFrame:
    """The topic compared with its results: nothing may be lost, and nothing duplicated."""
    in_topic = records.agg(F.count("*").alias("in_topic"))
    rows = events.agg(
        F.count("*").alias("rows"),
        F.count_distinct("_topic", "_partition", "_offset").alias("distinct"),
        F.count("problem").alias("malformed"),
    )
    counts = in_topic.crossJoin(rows).crossJoin(letters.agg(F.count("*").alias("dead_letters")))
    return counts.select(
        "in_topic",
        "rows",
        "malformed",
        "dead_letters",
        (F.col("in_topic") - F.col("distinct")).alias("lost"),
        (F.col("rows") - F.col("distinct")).alias("duplicated"),
        F.greatest(F.lit(0), F.col("malformed") - F.col("dead_letters")).alias("unreported"),
    )


def malformed(events: DataFrame) -> DataFrame:
    """The records that did not parse, each with its reason."""
    return (
        events.where(F.col("problem").isNotNull())
        .select("_topic", "_partition", "_offset", "problem", "raw")
        .orderBy("_topic", "_partition", "_offset")
    )


def traffic_per_minute(events: DataFrame) -> DataFrame:
    """Requests, bytes and distinct clients of every minute that has any."""
    return (
        parsed(events)
        .groupBy(F.date_trunc("minute", "time").alias("minute"))
        .agg(*_totals())
        .orderBy("minute")
    )


def top_pages(events: DataFrame) -> DataFrame:
    """Pages that were served, by requests; images and styles are not pages."""
    is_served = (F.col("status") < FIRST_ERROR_STATUS) & F.col("method").isNotNull()
    return (
        parsed(events)
        .where(is_served & ~F.col("path").rlike(ASSET_PATTERN))
        .groupBy("path")
        .agg(*_totals())
        .orderBy(F.desc("requests"), "path")
    )


def errors(events: DataFrame) -> DataFrame:
    """Requests that were refused or failed, by status and path."""
    return (
        parsed(events)
        .where(F.col("status") >= FIRST_ERROR_STATUS)
        .groupBy("status", "path")
        .agg(_requests(), _clients())
        .orderBy(F.desc("requests"), "status", "path")
    )


def crawlers_by_user_agent(events: DataFrame) -> DataFrame:
    """Crawlers that identify themselves by their user agent."""
    return (
        parsed(events)
        .where(F.col("user_agent").rlike(CRAWLER))
        .groupBy("user_agent")
        .agg(_requests(), _clients())
        .orderBy(F.desc("requests"), "user_agent")
    )


def crawlers_by_rate(
    events: DataFrame, max_requests_per_minute: int = MAX_REQUESTS_PER_MINUTE
) -> DataFrame:
    """Clients that made more requests in a minute than a reader does."""
    per_minute = (
        parsed(events)
        .groupBy("client", F.date_trunc("minute", "time").alias("minute"))
        .agg(_requests())
    )
    return (
        per_minute.groupBy("client")
        .agg(
            F.max("requests").alias("peak"),
            F.count_if(F.col("requests") > max_requests_per_minute).alias("minutes_over"),
            F.sum("requests").alias("requests"),
        )
        .where(F.col("minutes_over") > 0)
        .orderBy(F.desc("peak"), "client")
    )


def parsed(events: DataFrame) -> DataFrame:
    """The events without the lines that did not parse."""
    return events.where(F.col("problem").isNull())


def _header(name: str, column: Column) -> Column:
    value = column.cast("string").cast("binary")
    return F.struct(F.lit(name).alias("key"), value.alias("value"))


def _requests() -> Column:
    return F.count("*").alias("requests")


def _clients() -> Column:
    return F.count_distinct("client").alias("clients")


def _totals() -> tuple[Column, Column, Column]:
    # A response without a body has "-" for its size, and no bytes.
    return _requests(), F.coalesce(total("bytes"), F.lit(0)).alias("bytes"), _clients()


LINES, EVENTS, DEAD_LETTERS = "web-traffic", "web-traffic-events", "web-traffic.dead-letter"
COMPLETENESS = "completeness"
MINUTE = timedelta(minutes=1)


def build(streams: Frames, parameters: Parameters) -> Frames:
    lines = streams[LINES]
    return {EVENTS: events(lines), DEAD_LETTERS: dead_letters(lines)}


def feed_lines(topic: str) -> Feed:
    """A feed that publishes the lines of a log, or of made-up traffic, as they are."""
    return partial(_lines, topic)


def _lines(topic: str, request: FeedRequest) -> Iterator[Event]:
    for line in lines_of(request.log, request.seed, request.events):
        yield Event(topic, line.key, line.value)


def _crawlers_by_rate(topics: Frames, parameters: Parameters) -> DataFrame:
    limit = int(parameters["max_requests_per_minute"])
    return crawlers_by_rate(topics[EVENTS], limit)


def _completeness(topics: Frames, parameters: Parameters) -> DataFrame:
    return completeness(topics[LINES], topics[EVENTS], topics[DEAD_LETTERS])


def _plot_traffic(table: ResultTable, parameters: Parameters) -> str:
    series = {
        "requests": table.column("requests"),
        "clients": table.column("clients"),
        "MB sent": [size / 1e6 for size in table.column("bytes")],
    }
    return lines_plot("Traffic per minute", table.column("minute"), series, MINUTE)


def _plot_rates(table: ResultTable, parameters: Parameters) -> str:
    top = table.rows[:PLOTTED_ROWS]
    return bars_plot(
        [row["client"] for row in top],
        [row["peak"] for row in top],
        "requests in the busiest minute",
        limit=float(parameters["max_requests_per_minute"]),
    )


PIPELINE = Pipeline(
    name="web_traffic",
    summary="Make traffic, pages, errors and crawlers of the lines of an access log.",
    inputs=(Input(LINES),),
    outputs=(
        Output(EVENTS, key=("client",)),
        Output(DEAD_LETTERS, as_records=True, partitions=1),
    ),
    build=build,
    feeds={"sample": feed_lines(LINES), "log": feed_lines(LINES)},
    sections=(
        Section(
            "traffic_per_minute",
            "Traffic per minute",
            "Only minutes with requests are drawn; a line is broken where minutes are missing.",
            lambda topics, parameters: traffic_per_minute(topics[EVENTS]),
            _plot_traffic,
        ),
        Section(
            "top_pages",
            "Top pages",
            "Requests that were answered with a status below 400; images, styles and scripts are "
            "no pages.",
            lambda topics, parameters: top_pages(topics[EVENTS]),
            top_rows_plot("path", "requests", "requests"),
        ),
        Section(
            "errors",
            "Errors",
            "Requests that were answered with a status of 400 or above.",
            lambda topics, parameters: errors(topics[EVENTS]),
        ),
        Section(
            "crawlers_by_user_agent",
            "Crawlers by user agent",
            "Programs that say in their user agent what they are.",
            lambda topics, parameters: crawlers_by_user_agent(topics[EVENTS]),
        ),
        Section(
            "crawlers_by_rate",
            "Crawlers by request rate",
            "Clients with more requests in a minute than a reader makes.",
            _crawlers_by_rate,
            _plot_rates,
        ),
        Section(
            "malformed",
            "Lines that did not parse",
            "Each is in the dead-letter topic as well, with its reason and the place of the record "
            "it came from.",
            lambda topics, parameters: malformed(topics[EVENTS]),
            lists_unparsed=True,
        ),
        Section(
            COMPLETENESS,
            "Completeness",
            "Lost are records of the topic without a row, duplicated are rows of a record that "
            "has one already, unreported are lines that did not parse and are no dead letters.",
            _completeness,
            faults=("lost", "duplicated"),
            unparsed="malformed",
        ),
    ),
    parameters={"max_requests_per_minute": str(MAX_REQUESTS_PER_MINUTE)},
)
