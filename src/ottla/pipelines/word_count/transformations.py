"""From lines to words, and from words to their counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def words(records: DataFrame) -> DataFrame:
    """The words of each record's value in lower case, split at all but letters and digits."""
    text = F.lower(F.make_valid_utf8(F.col("value").cast("string")))
    return (
        records.where(F.col("value").isNotNull())
        .select(F.explode(F.split(text, r"[^\p{L}\p{N}]+")).alias("word"))
        .where(F.col("word") != "")
    )


def counts(words: DataFrame) -> DataFrame:
    """How often each word came."""
    return words.groupBy("word").agg(F.count("*").alias("count"))
