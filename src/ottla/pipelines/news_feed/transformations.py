"""From what people do and whom they follow to what each of them sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def fan_out(activities: DataFrame, follows: DataFrame) -> DataFrame:
    """An entry for each follower of the actor; what was done before `since` is not seen."""
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
