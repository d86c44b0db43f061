"""Articles that are cleaned, and recommended to readers: three stages, a topic between each.

Raw articles come in, clean ones are between, recommendations go out.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
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
from ottla.pipelines.records import once_within

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


TAGS = ("art", "databases", "economy", "football", "music", "python", "science", "streams")
ENTITIES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&nbsp;": " ", "&amp;": "&"}
EXCERPT_LENGTH = 120


def clean(articles: DataFrame, late: str) -> DataFrame:
    """Articles with one address each, text without markup, and tags; each address only once."""
    text = F.concat_ws(" ", _plain("title"), _plain("body"))
    words = F.split(F.lower(text), r"[^\p{L}\p{N}]+")
    cleaned = articles.select(
        _address().alias("url"),
        _plain("title").alias("title"),
        F.substring(_plain("body"), 1, EXCERPT_LENGTH).alias("excerpt"),
        F.array_intersect(F.array(*map(F.lit, TAGS)), words).alias("tags"),
        "time",
    )
    return once_within(cleaned, ["url"], late)


def recommend(articles: DataFrame, readers: DataFrame) -> DataFrame:
    """An article for each reader with an interest in one of its tags; `score` counts such tags."""
    interested = F.arrays_overlap(F.col("tags"), F.col("interests"))
    return articles.join(F.broadcast(readers.select("reader", "interests")), interested).select(
        "reader",
        "url",
        "title",
        F.size(F.array_intersect("tags", "interests")).alias("score"),
        "time",
    )


def recommendations_of_readers(recommendations: DataFrame) -> DataFrame:
    """How much was recommended to each reader, and the best match."""
    best = F.max_by("title", F.struct("score", "time", "url")).alias("best")
    return (
        recommendations.groupBy("reader")
        .agg(F.count("*").alias("articles"), F.max("score").alias("score"), best)
        .orderBy(F.desc("articles"), "reader")
    )


def _address() -> Column:
    """The address without query, fragment and final slash, its host in lower case."""
    address = F.regexp_replace(F.trim("url"), r"[?#].*$", "")
    host = F.lower(F.regexp_extract(address, r"^[a-zA-Z]+://[^/]*", 0))
    return F.rtrim(F.concat(host, F.regexp_replace(address, r"^[a-zA-Z]+://[^/]*", "")), F.lit("/"))


def _plain(name: str) -> Column:
    """The text of a column without tags and entities, its white space as single blanks."""
    before_a_mark = F.regexp_replace(F.col(name), r"(?s)<[^>]*>(?=[,.;:!?])", "")
    text = F.regexp_replace(before_a_mark, r"(?s)<[^>]*>", " ")
    for entity, character in ENTITIES.items():
        text = F.replace(text, F.lit(entity), F.lit(character))
    return F.trim(F.regexp_replace(text, r"\s+", " "))


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
        Input(
            ARTICLES,
            "url string, title string, body string, time timestamp",
            needed=("url", "time"),
        ),
        Input(
            CLEAN,
            "url string, title string, excerpt string, tags array<string>, time timestamp",
        ),
        Input(
            READERS,
            "reader string, interests array<string>",
            is_table=True,
            needed=("reader", "interests"),
        ),
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
