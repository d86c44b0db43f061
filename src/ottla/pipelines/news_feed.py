"""Activities of people, fanned out to the feeds of those who follow them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.pipelines.access_log import lines_of
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
from ottla.pipelines.site_traffic import START

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def fan_out(activities: DataFrame, follows: DataFrame) -> DataFrame:
    """An entry for each follower of the actor; activities before `since` are not seen."""
    follow = F.broadcast(follows.select("follower", "actor", "since"))
    return (
        activities.join(follow, "actor")
        .where(F.col("time") >= F.col("since"))
        .select("follower", "actor", "verb", "object", "time")
    )


def feed_sizes(feed: DataFrame) -> DataFrame:
    """How much each follower has seen, from how many people, and when last."""
    return (
        feed.groupBy("follower")
        .agg(
            F.count("*").alias("entries"),
            F.count_distinct("actor").alias("actors"),
            F.max("time").alias("newest"),
        )
        .orderBy(F.desc("entries"), "follower")
    )


def newest_entries(feed: DataFrame, limit: int) -> DataFrame:
    """The entries that came last, over all feeds."""
    return feed.orderBy(F.desc("time"), "follower", "actor", "object").limit(limit)


ACTIVITIES, FOLLOWS, FEED = "activities", "follows", "feed"
PEOPLE = 200
FOLLOWED = 12
MEAN_PAUSE_S = 2.0
VERBS = {"posted": "photo", "liked": "photo", "joined": "group", "commented on": "article"}


def build(streams: Frames, parameters: Parameters) -> Frames:
    return {FEED: fan_out(streams[ACTIVITIES], streams[FOLLOWS])}


def sample(request: FeedRequest) -> Iterator[Event]:
    """People who follow a few others, and then do things."""
    chance = random.Random(request.seed)
    people = [f"person-{number}" for number in range(PEOPLE)]
    for follower in people:
        for actor in chance.sample(people, FOLLOWED):
            if actor != follower:
                yield follow(follower, actor)
    for moment in moments(chance, request.events, MEAN_PAUSE_S):
        actor, verb = chance.choice(people), chance.choice(list(VERBS))
        thing = f"{VERBS[verb]}-{chance.randrange(1000)}"
        yield event(ACTIVITIES, actor, actor=actor, verb=verb, object=thing, time=moment)


def from_log(request: FeedRequest) -> Iterator[Event]:
    """Clients read pages, and follow the other clients of their network."""
    lines = list(lines_of(request.log, request.seed, request.events, with_old=True))
    found = [line.request for line in lines if line.request is not None]
    known = {line.request.client for line in lines if line.request and not line.is_new}
    networks: dict[str, set[str]] = defaultdict(set)
    for each in found:
        networks[_network(each.client)].add(each.client)
    start = min((each.time for each in found), default=START)
    for network in sorted(networks):
        for follower, actor in permutations(sorted(networks[network]), 2):
            if not {follower, actor} <= known:
                yield follow(follower, actor, start)
    for line in lines:
        read = line.request
        if read is not None and read.is_page and line.is_new:
            deed = {"actor": read.client, "verb": "read", "object": read.path}
            yield event(ACTIVITIES, read.client, **deed, time=read.time)


def _network(client: str) -> str:
    """An address without its last part, of either family."""
    return client.rpartition(":" if ":" in client else ".")[0]


def follow(follower: str, actor: str, since: object = START) -> Event:
    return event(FOLLOWS, f"{follower}|{actor}", follower=follower, actor=actor, since=since)


PIPELINE = Pipeline(
    name="news_feed",
    summary="Fan the activities of people out to the feeds of those who follow them.",
    inputs=(
        Input(
            ACTIVITIES,
            "actor string, verb string, object string, time timestamp",
            needed=("actor", "time"),
        ),
        Input(
            FOLLOWS,
            "follower string, actor string, since timestamp",
            is_table=True,
            needed=("follower", "actor", "since"),
        ),
    ),
    outputs=(Output(FEED, key=("follower",)),),
    build=build,
    feeds={"sample": sample, "log": from_log},
    sections=(
        Section(
            "feed_sizes",
            "Feeds",
            "How many entries each feed has, from how many people.",
            lambda topics, parameters: feed_sizes(topics[FEED]),
            top_rows_plot("follower", "entries", "entries"),
        ),
        Section(
            "newest_entries",
            "Newest entries",
            "What came last, over all feeds.",
            lambda topics, parameters: newest_entries(topics[FEED], int(parameters["newest"])),
        ),
    ),
    parameters={"newest": "20"},
)
