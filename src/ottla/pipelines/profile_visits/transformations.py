"""From visits to counts by member."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def visit_counts(visits: DataFrame) -> DataFrame:
    """The visits of each member, the approximate number of visitors, and the partitions."""
    return visits.groupBy("member").agg(
        F.count("*").alias("visits"),
        F.approx_count_distinct("visitor").alias("visitors"),
        F.max("time").alias("newest"),
        F.min("_partition").alias("first_partition"),
        F.max("_partition").alias("last_partition"),
    )


def most_visited(counts: DataFrame) -> DataFrame:
    """The members with the most visits first."""
    return counts.select("member", "visits", "visitors", "newest").orderBy(
        F.desc("visits"), "member"
    )


def partitions_of_members(counts: DataFrame) -> DataFrame:
    """Members and visits of each partition; `scattered` members have visits in another one, too."""
    return (
        counts.groupBy(F.col("first_partition").alias("partition"))
        .agg(
            F.count("*").alias("members"),
            F.sum("visits").alias("visits"),
            F.count_if(F.col("first_partition") != F.col("last_partition")).alias("scattered"),
        )
        .orderBy("partition")
    )
