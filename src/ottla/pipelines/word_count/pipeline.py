"""The word count as a pipeline: lines in, counts out."""

from __future__ import annotations

import random
from collections.abc import Iterator

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
)
from ottla.pipelines.plots import top_rows_plot
from ottla.pipelines.word_count.transformations import counts, words

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
    inputs=(Input(LINES),),
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
