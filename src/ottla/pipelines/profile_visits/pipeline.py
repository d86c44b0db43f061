"""The profile-visit counter as a pipeline: visits in, counts by member out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.pipelines.feeds import after, event
from ottla.pipelines.pipeline import (
    Event,
    FeedRequest,
    Frames,
    Input,
    Output,
    Parameters,
    Pipeline,
    Section,
)
from ottla.pipelines.plots import bars_plot
from ottla.pipelines.profile_visits.transformations import (
    most_visited,
    partitions_of_members,
    visit_counts,
)

if TYPE_CHECKING:
    from ottla.pipelines.tables import Table

VISITS, COUNTS = "profile-visits", "profile-visit-counts"
MEMBERS = 500
MEAN_PAUSE_S = 0.2
PLOTTED = 15


def build(streams: Frames, parameters: Parameters) -> Frames:
    return {COUNTS: visit_counts(streams[VISITS])}


def sample(request: FeedRequest) -> Iterator[Event]:
    """Members visit each other, the popular ones more often (Zipf)."""
    chance = random.Random(request.seed)
    members = [f"member-{number}" for number in range(1, MEMBERS + 1)]
    weights = [1 / rank for rank in range(1, MEMBERS + 1)]
    now_s = 0.0
    for member in chance.choices(members, weights, k=request.events):
        now_s += chance.expovariate(1 / MEAN_PAUSE_S)
        visitor = chance.choice(members)
        yield event(VISITS, member, member=member, visitor=visitor, time=after(now_s))


def _plot(table: Table, parameters: Parameters) -> str:
    top = table.rows[:PLOTTED]
    return bars_plot([row["member"] for row in top], [row["visits"] for row in top], "visits")


PIPELINE = Pipeline(
    name="profile_visits",
    summary="Count the visits of each member's profile, all of a member in one partition.",
    inputs=(Input(VISITS, "member string, visitor string, time timestamp"),),
    outputs=(Output(COUNTS, key=("member",), identity=("member",), mode="update"),),
    build=build,
    feeds={"sample": sample},
    sections=(
        Section(
            "most_visited",
            "Most visited members",
            "The number of visitors is an estimate.",
            lambda topics, parameters: most_visited(topics[COUNTS]),
            _plot,
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
