"""Clients that behave badly, found in the stream of requests and put on a blocklist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.pipelines.pipeline import Frames, Input, Output, Parameters, Pipeline, Section
from ottla.pipelines.plots import PLOTTED_ROWS, bars_plot
from ottla.pipelines.web_traffic import events, feed_lines, malformed, parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.pipelines.tables import ResultTable


API_PATH = r"(?i)^/api/|\.(?:xml|rss|atom|json)$|/feed/?$"
RULES = {"crawler": "requests", "rate-limit": "api_calls", "spam": "posts"}


def requests_per_minute(events: DataFrame, late: str) -> DataFrame:
    """All requests, those of the API, and the posts, of each client in each minute."""
    return (
        parsed(events)
        .withWatermark("time", late)
        .groupBy(F.window("time", "1 minute").alias("window"), "client")
        .agg(
            F.count("*").alias("requests"),
            F.count_if(F.col("path").rlike(API_PATH)).alias("api_calls"),
            F.count_if(F.col("method") == "POST").alias("posts"),
        )
        .select("client", F.col("window.start").alias("minute"), *RULES.values())
    )


def offences(per_minute: DataFrame, limits: Mapping[str, int]) -> DataFrame:
    """A row for each client, minute and rule with more requests than the rule allows."""
    checks = F.array(
        *(
            F.struct(
                F.lit(rule).alias("rule"),
                F.col(column).alias("requests"),
                F.lit(limits[rule]).cast("bigint").alias("limit"),
            )
            for rule, column in RULES.items()
        )
    )
    return (
        per_minute.select("client", "minute", F.explode(checks).alias("check"))
        .select("client", "check.rule", "minute", "check.requests", "check.limit")
        .where(F.col("requests") > F.col("limit"))
    )


def worst(offences: DataFrame) -> DataFrame:
    """The offences with the most requests first."""
    return offences.orderBy(F.desc("requests"), "client", "minute", "rule")


def blocklist(offences: DataFrame) -> DataFrame:
    """Each client to refuse, with the rules that it broke, how often, and when last."""
    return (
        offences.groupBy("client")
        .agg(
            F.array_join(F.array_sort(F.collect_set("rule")), ", ").alias("rules"),
            F.count("*").alias("offences"),
            F.max("requests").alias("peak"),
            F.max("minute").alias("newest"),
        )
        .orderBy(F.desc("offences"), "client")
    )


def completeness(events: DataFrame) -> DataFrame:
    """The lines of the topic: each is a request, or left out."""
    return events.agg(
        F.count("*").alias("in_topic"),
        F.count_if(F.col("problem").isNull()).alias("requests"),
        F.count("problem").alias("left_out"),
    )


REQUESTS, BLOCKLIST = "requests", "blocklist"


def build(streams: Frames, parameters: Parameters) -> Frames:
    per_minute = requests_per_minute(events(streams[REQUESTS]), parameters["late"])
    limits = {
        "crawler": int(parameters["max_requests"]),
        "rate-limit": int(parameters["max_api_calls"]),
        "spam": int(parameters["max_posts"]),
    }
    return {BLOCKLIST: offences(per_minute, limits)}


def _plot(table: ResultTable, parameters: Parameters) -> str:
    top = table.rows[:PLOTTED_ROWS]
    labels = [f"{row['client']} ({row['rules']})" for row in top]
    return bars_plot(labels, [row["peak"] for row in top], "requests in the busiest minute")


PIPELINE = Pipeline(
    name="crawlers",
    summary="Find clients that crawl, call or post too much, and put them on a blocklist.",
    inputs=(Input(REQUESTS),),
    outputs=(
        Output(BLOCKLIST, key=("client",), identity=("client", "rule", "minute"), mode="update"),
    ),
    build=build,
    feeds={"sample": feed_lines(REQUESTS), "log": feed_lines(REQUESTS)},
    sections=(
        Section(
            "blocklist",
            "Blocklist",
            "Clients to be refused, and the rules that they broke.",
            lambda topics, parameters: blocklist(topics[BLOCKLIST]),
            _plot,
        ),
        Section(
            "offences",
            "Offences",
            "Each minute in which a client made more requests than a rule allows.",
            lambda topics, parameters: worst(topics[BLOCKLIST]),
        ),
        Section(
            "malformed",
            "Lines that did not parse",
            "They are no requests of anybody.",
            lambda topics, parameters: malformed(events(topics[REQUESTS])),
            lists_unparsed=True,
        ),
        Section(
            "completeness",
            "Completeness",
            "Each line of the topic is a request, or left out for a reason.",
            lambda topics, parameters: completeness(events(topics[REQUESTS])),
            unparsed="left_out",
        ),
    ),
    parameters={
        "max_requests": "30",
        "max_api_calls": "5",
        "max_posts": "2",
        "late": "10 minutes",
    },
)
