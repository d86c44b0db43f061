"""The ranking as a pipeline: interactions in, counts by item and hour out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

from ottla.pipelines.access_log import LoggedRequest, lines_of, requests
from ottla.pipelines.feeds import event, moments, zipf_weights
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
from ottla.pipelines.plots import top_rows_plot
from ottla.pipelines.ranking.transformations import counts_per_hour, ranking, trending

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
    found = list(requests(lines_of(request.log, request.seed, request.events)))
    site = _site(found)
    for each in found:
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


def _place(address: str) -> tuple[str, str]:
    """Host, without a leading www, and path of an address; both are empty where it is none."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "", ""
    return (parts.netloc.removeprefix("www."), parts.path) if parts.netloc else ("", "")


def _interaction(item: str, kind: str, request: LoggedRequest) -> Event:
    return event(INTERACTIONS, item, item=item, kind=kind, user=request.client, time=request.time)


BY_SCORE = top_rows_plot("item", "score", "score")

PIPELINE = Pipeline(
    name="ranking",
    summary="Rank items by views, click-throughs and votes, hour by hour and in all.",
    inputs=(Input(INTERACTIONS, "item string, kind string, user string, time timestamp"),),
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
