"""Items ranked by the acts of people: views, click-throughs and votes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyspark.sql import Window
from pyspark.sql import functions as F

from ottla.pipelines.access_log import lines_of
from ottla.pipelines.logged_request import LoggedRequest
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
    from pyspark.sql import Column, DataFrame


CLICK_WEIGHT = 3
VOTE_WEIGHT = 10


def counts_per_hour(interactions: DataFrame, late: str) -> DataFrame:
    """Views, clicks and votes of each item in each hour that has any."""
    return (
        interactions.withWatermark("time", late)
        .groupBy(F.window("time", "1 hour").alias("window"), "item")
        .agg(_count("view", "views"), _count("click", "clicks"), _count("vote", "votes"))
        .select("item", F.col("window.start").alias("hour"), "views", "clicks", "votes")
    )


def ranking(counts: DataFrame) -> DataFrame:
    """All items over all hours: a click counts as three views, a vote as ten."""
    sums = (F.sum(name).alias(name) for name in ("views", "clicks", "votes"))
    return _ranked(counts.groupBy("item").agg(*sums))


def trending(counts: DataFrame) -> DataFrame:
    """The items of the newest hour."""
    newest = counts.agg(F.max("hour").alias("hour"))
    return _ranked(counts.join(F.broadcast(newest), "hour").drop("hour"))


def _ranked(items: DataFrame) -> DataFrame:
    score = F.col("views") + CLICK_WEIGHT * F.col("clicks") + VOTE_WEIGHT * F.col("votes")
    order = Window.partitionBy(F.lit(0)).orderBy(F.desc("score"), "item")
    return (
        items.withColumn("score", score)
        .withColumn("rank", F.row_number().over(order))
        .withColumn("click_through", F.try_divide(F.col("clicks"), F.col("views")))
        .select("rank", "item", "score", "views", "clicks", "votes", "click_through")
        .orderBy("rank")
    )


def _count(kind: str, name: str) -> Column:
    return F.count_if(F.col("kind") == kind).alias(name)


INTERACTIONS, COUNTS = "interactions", "ranking-counts"
ITEMS = 120
MEAN_PAUSE_S = 0.5
CLICK_SHARE, VOTE_SHARE = 0.25, 0.05


def build(streams: Frames, parameters: Parameters) -> Frames:
    return {COUNTS: counts_per_hour(streams[INTERACTIONS], parameters["late"])}


def sample(request: FeedRequest) -> Iterator[Event]:
    """Readers who see popular items more often (Zipf), open some, and vote now and then."""
    chance = random.Random(request.seed)
    weights = zipf_weights(ITEMS)
    for moment in moments(chance, request.events, MEAN_PAUSE_S):
        number = chance.choices(range(ITEMS), weights)[0]
        kind = chance.choices(
            ("vote", "click", "view"), (VOTE_SHARE, CLICK_SHARE, 1 - VOTE_SHARE - CLICK_SHARE)
        )[0]
        user = f"user-{chance.randrange(1000)}"
        item = f"item-{number}"
        yield event(INTERACTIONS, item, item=item, kind=kind, user=user, time=moment)


def from_log(request: FeedRequest) -> Iterator[Event]:
    """Pages that are served are seen; links inside the site are clicked, others are votes."""
    lines = lines_of(request.log, request.seed, request.events, with_old=True)
    found = [(line.request, line.is_new) for line in lines if line.request is not None]
    site = _site([each for each, _ in found])
    for each in (each for each, is_new in found if is_new):
        if not each.is_page:
            continue
        yield _interaction(each.path, "view", each)
        host, path = _place(each.referrer)
        if host and host == site:
            yield _interaction(path or "/", "click", each)
        elif host:
            yield _interaction(each.path, "vote", each)


def _site(found: list[LoggedRequest]) -> str:
    """The host of the site: that of the pages which most images and styles were loaded for."""
    hosts = Counter(_place(each.referrer)[0] for each in found if not each.is_page)
    del hosts[""]
    return max(sorted(hosts), key=lambda host: hosts[host], default="")


def _place(address: str | None) -> tuple[str, str]:
    """Host, without a leading www, and path of an address; both are empty where it is none."""
    try:
        parts = urlsplit(address or "")
    except ValueError:
        return "", ""
    return (parts.netloc.removeprefix("www."), parts.path) if parts.netloc else ("", "")


def _interaction(item: str, kind: str, request: LoggedRequest) -> Event:
    return event(INTERACTIONS, item, item=item, kind=kind, user=request.client, time=request.time)


BY_SCORE = top_rows_plot("item", "score", "score")

PIPELINE = Pipeline(
    name="ranking",
    summary="Rank items by views, click-throughs and votes, hour by hour and in all.",
    inputs=(
        Input(
            INTERACTIONS,
            "item string, kind string, user string, time timestamp",
            needed=("item", "time"),
        ),
    ),
    outputs=(Output(COUNTS, key=("item",), identity=("item", "hour"), mode="update"),),
    build=build,
    feeds={"sample": sample, "log": from_log},
    sections=(
        Section(
            "ranking",
            "Ranking",
            "Over all hours: a click-through counts as three views, a vote as ten.",
            lambda topics, parameters: ranking(topics[COUNTS]),
            BY_SCORE,
        ),
        Section(
            "trending",
            "Trending",
            "The ranking of the newest hour.",
            lambda topics, parameters: trending(topics[COUNTS]),
            BY_SCORE,
        ),
    ),
    parameters={"late": "10 minutes"},
)
