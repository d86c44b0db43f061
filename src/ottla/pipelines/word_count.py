"""The words of a text, counted as it comes in."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.pipelines.logged_request import NO_VALUE
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
    from pyspark.sql import Column, DataFrame


def words(records: DataFrame) -> DataFrame:
    """The words of each record's value in lower case, split at all but letters and digits."""
    text = F.lower(F.make_valid_utf8(F.col("value").cast("string")))
    return (
        records.where(F.col("value").isNotNull())
        .select(F.explode(F.split(text, r"[^\p{L}\p{N}]+")).alias("word"))
        .where(F.col("word") != "")
    )


def left_out() -> Column:
    """Why a record has no words."""
    return F.when(F.col("value").isNull(), NO_VALUE)


def counts(words: DataFrame) -> DataFrame:
    """How often each word came."""
    return words.groupBy("word").agg(F.count("*").alias("count"))


LINES, COUNTS = "streams-plaintext-input", "streams-wordcount-output"
SUBJECTS = ("all streams", "the broker", "a consumer", "every producer", "the log")
VERBS = ("lead to", "reads", "writes", "keeps", "follows")
OBJECTS = ("the log", "a topic", "all records", "the broker", "kafka")


def build(streams: Frames, parameters: Parameters) -> Frames:
    return {COUNTS: counts(words(streams[LINES]))}


def sample(request: FeedRequest) -> Iterator[Event]:
    """Sentences that are put together by chance."""
    chance = random.Random(request.seed)
    for _ in range(request.events):
        sentence = " ".join(chance.choice(part) for part in (SUBJECTS, VERBS, OBJECTS))
        yield Event(LINES, None, sentence.encode())


PIPELINE = Pipeline(
    name="word_count",
    summary="Count the words of a stream of text.",
    inputs=(Input(LINES, left_out=left_out),),
    outputs=(Output(COUNTS, key=("word",), identity=("word",), mode="update"),),
    build=build,
    feeds={"sample": sample},
    sections=(
        Section(
            "words",
            "Words",
            "Each word, and how often it came.",
            lambda topics, parameters: topics[COUNTS].orderBy(F.desc("count"), "word"),
            top_rows_plot("word", "count", "times"),
        ),
    ),
)
