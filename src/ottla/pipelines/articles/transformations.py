"""From articles as delivered to recommendations for readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

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
    cleaned = articles.where(F.col("url").isNotNull() & F.col("time").isNotNull()).select(
        _address().alias("url"),
        _plain("title").alias("title"),
        F.substring(_plain("body"), 1, EXCERPT_LENGTH).alias("excerpt"),
        F.array_intersect(F.array(*map(F.lit, TAGS)), words).alias("tags"),
        "time",
    )
    return once_within(cleaned, ["url"], late)


def recommend(articles: DataFrame, readers: DataFrame) -> DataFrame:
    """An article for each reader who is interested in one of its tags; `score` counts such tags."""
    interested = F.arrays_overlap(F.col("tags"), F.col("interests"))
    return articles.join(F.broadcast(readers.select("reader", "interests")), interested).select(
        "reader",
        "url",
        "title",
        F.size(F.array_intersect("tags", "interests")).alias("score"),
        "time",
    )


def recommendations_of_readers(recommendations: DataFrame) -> DataFrame:
    """How much was recommended to each reader, and what fits best."""
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
