"""The detection of crawlers as a pipeline: requests in, a blocklist out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.pipelines.crawlers.transformations import (
    blocklist,
    offences,
    requests_per_minute,
    worst,
)
from ottla.pipelines.pipeline import Frames, Input, Output, Parameters, Pipeline, Section
from ottla.pipelines.plots import PLOTTED_ROWS, bars_plot
from ottla.pipelines.web_traffic.pipeline import feed_lines
from ottla.pipelines.web_traffic.transformations import events

if TYPE_CHECKING:
    from ottla.pipelines.tables import ResultTable

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
    ),
    parameters={
        "max_requests": "30",
        "max_api_calls": "5",
        "max_posts": "2",
        "late": "10 minutes",
    },
)
