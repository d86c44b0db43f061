"""Visits of profiles, counted where a member has a partition (semantic partitioning)."""

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
    event,
    moments,
)
from ottla.pipelines.plots import top_rows_plot
from ottla.pipelines.site_traffic import zipf_weights

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def visit_counts(visits: DataFrame) -> DataFrame:
    """The visits of each member, the approximate number of visitors, and the partitions."""
    return visits.groupBy("member").agg(
        F.count("*").alias("visits"),
        F.approx_count_distinct("visitor").alias("visitors"),
        F.max("time").alias("newest"),
        F.min("_partition").alias("first_partition"),
        F.max("_partition").alias("last_partition"),
    )


def most_visited(counts: DataFrame) -> DataFrame:
    """The members with the most visits first."""
    return counts.select("member", "visits", "visitors", "newest").orderBy(
        F.desc("visits"), "member"
    )


def partitions_of_members(counts: DataFrame) -> DataFrame:
    """Members and visits of each partition; `scattered` members have visits in another one, too."""
    return (
        counts.groupBy(F.col("first_partition").alias("partition"))
        .agg(
            F.count("*").alias("members"),
            F.sum("visits").alias("visits"),
            F.count_if(F.col("first_partition") != F.col("last_partition")).alias("scattered"),
        )
        .orderBy("partition")
    )


VISITS, COUNTS = "profile-visits", "profile-visit-counts"
MEMBERS = 500
MEAN_PAUSE_S = 0.2


def build(streams: Frames, parameters: Parameters) -> Frames:
    return {COUNTS: visit_counts(streams[VISITS])}


def sample(request: FeedRequest) -> Iterator[Event]:
    """Members visit each other, the popular ones more often (Zipf)."""
    chance = random.Random(request.seed)
    members = [f"member-{number}" for number in range(1, MEMBERS + 1)]
    visited = chance.choices(members, zipf_weights(MEMBERS), k=request.events)
    for member, moment in zip(visited, moments(chance, request.events, MEAN_PAUSE_S), strict=True):
        visitor = chance.choice(members)
        yield event(VISITS, member, member=member, visitor=visitor, time=moment)


PIPELINE = Pipeline(
    name="profile_visits",
    summary="Count the visits of each member's profile, all of a member in one partition.",
    inputs=(Input(VISITS, "member string, visitor string, time timestamp", needed=("member",)),),
    outputs=(Output(COUNTS, key=("member",), identity=("member",), mode="update"),),
    build=build,
    feeds={"sample": sample},
    sections=(
        Section(
            "most_visited",
            "Most visited members",
            "The number of visitors is an estimate.",
            lambda topics, parameters: most_visited(topics[COUNTS]),
            top_rows_plot("member", "visits", "visits"),
        ),
        Section(
            "partitions",
            "Partitions",
            "Every member belongs to one partition; scattered ones, of which there must be none, "
            "have visits in several.",
            lambda topics, parameters: partitions_of_members(topics[COUNTS]),
        ),
    ),
)
