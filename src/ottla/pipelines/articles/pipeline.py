"""Articles as a pipeline of stages: raw articles in, clean ones between, recommendations out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.pipelines.articles.transformations import (
    TAGS,
    clean,
    recommend,
    recommendations_of_readers,
)
from ottla.pipelines.feeds import event, moments
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

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ARTICLES, READERS = "articles", "readers"
CLEAN, RECOMMENDATIONS = "articles-clean", "recommendations"
READER_COUNT = 30
INTERESTS = 2
MEAN_PAUSE_S = 20.0
REPEATED_SHARE = 0.2
SECOND = timedelta(seconds=1)
NEWEST = 20


def build(streams: Frames, parameters: Parameters) -> Frames:
    return {
        CLEAN: clean(streams[ARTICLES], parameters["late"]),
        RECOMMENDATIONS: recommend(streams[CLEAN], streams[READERS]),
    }


def sample(request: FeedRequest) -> Iterator[Event]:
    """Readers first; then articles, some repeated with another spelling."""
    chance = random.Random(request.seed)
    for number in range(READER_COUNT):
        reader = f"reader-{number}"
        interests = sorted(chance.sample(TAGS, INTERESTS))
        yield event(READERS, reader, reader=reader, interests=interests)
    for number, moment in enumerate(moments(chance, request.events, MEAN_PAUSE_S)):
        one, other = chance.sample(TAGS, 2)
        url = f"https://news.example/{one}/{number}"
        fields = {
            "title": f"What {one} &amp; {other} have in common ({number})",
            "body": f"<p>More on <b>{one}</b>,\n and a  little on <i>{other}</i>.</p>",
        }
        yield event(ARTICLES, url, url=url, time=moment, **fields)
        if chance.random() < REPEATED_SHARE:
            again = f"https://News.example/{one}/{number}/?from=feed#top"
            yield event(ARTICLES, url, url=again, time=moment + SECOND, **fields)


def _newest(topics: Frames, parameters: Parameters) -> DataFrame:
    columns = ("url", "title", "excerpt", F.array_join("tags", ", ").alias("tags"), "time")
    return topics[CLEAN].select(*columns).orderBy(F.desc("time"), "url").limit(NEWEST)


PIPELINE = Pipeline(
    name="articles",
    summary="Clean articles, and recommend them to readers: stages with a topic between each.",
    inputs=(
        Input(ARTICLES, "url string, title string, body string, time timestamp"),
        Input(
            CLEAN,
            "url string, title string, excerpt string, tags array<string>, time timestamp",
        ),
        Input(READERS, "reader string, interests array<string>", is_table=True),
    ),
    outputs=(
        Output(CLEAN, key=("url",)),
        Output(RECOMMENDATIONS, key=("reader",), stage=2),
    ),
    build=build,
    feeds={"sample": sample},
    sections=(
        Section(
            "readers",
            "Readers",
            "How much was recommended to each, and what fits best.",
            lambda topics, parameters: recommendations_of_readers(topics[RECOMMENDATIONS]),
            top_rows_plot("reader", "articles", "articles"),
        ),
        Section("newest_articles", "Newest articles", "What came last, cleaned.", _newest),
    ),
    parameters={"late": "1 day"},
)
