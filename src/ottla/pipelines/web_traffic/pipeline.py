"""Web traffic as a pipeline: lines of an access log in, a row for each of them out.

Lines that do not parse go to the dead-letter topic as well; `completeness` counts what is lost or
duplicated, and assumes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from ottla.pipelines.access_log import lines_of
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
from ottla.pipelines.web_traffic import transformations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.pipelines.tables import ResultTable

LINES, EVENTS, DEAD_LETTERS = "web-traffic", "web-traffic-events", "web-traffic.dead-letter"
COMPLETENESS = "completeness"
MINUTE = timedelta(minutes=1)


def build(streams: Frames, parameters: Parameters) -> Frames:
    lines = streams[LINES]
    return {
        EVENTS: transformations.events(lines),
        DEAD_LETTERS: transformations.dead_letters(lines),
    }


def feed_lines(topic: str) -> Feed:
    """A feed that publishes the lines of a log, or of made-up traffic, as they are."""
    return partial(_lines, topic)


def _lines(topic: str, request: FeedRequest) -> Iterator[Event]:
    for line in lines_of(request.log, request.seed, request.events):
        yield Event(topic, line.key, line.value)


def _crawlers_by_rate(topics: Frames, parameters: Parameters) -> DataFrame:
    limit = int(parameters["max_requests_per_minute"])
    return transformations.crawlers_by_rate(topics[EVENTS], limit)


def _completeness(topics: Frames, parameters: Parameters) -> DataFrame:
    return transformations.completeness(topics[LINES], topics[EVENTS], topics[DEAD_LETTERS])


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
            lambda topics, parameters: transformations.traffic_per_minute(topics[EVENTS]),
            _plot_traffic,
        ),
        Section(
            "top_pages",
            "Top pages",
            "Requests that were answered with a status below 400; images, styles and scripts are "
            "no pages.",
            lambda topics, parameters: transformations.top_pages(topics[EVENTS]),
            top_rows_plot("path", "requests", "requests"),
        ),
        Section(
            "errors",
            "Errors",
            "Requests that were answered with a status of 400 or above.",
            lambda topics, parameters: transformations.errors(topics[EVENTS]),
        ),
        Section(
            "crawlers_by_user_agent",
            "Crawlers by user agent",
            "Programs that say in their user agent what they are.",
            lambda topics, parameters: transformations.crawlers_by_user_agent(topics[EVENTS]),
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
            lambda topics, parameters: transformations.malformed(topics[EVENTS]),
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
    parameters={"max_requests_per_minute": str(transformations.MAX_REQUESTS_PER_MINUTE)},
)
