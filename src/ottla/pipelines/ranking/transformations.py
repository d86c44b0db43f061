"""From single interactions to items in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F

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
