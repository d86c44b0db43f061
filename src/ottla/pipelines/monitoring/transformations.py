"""From single samples to figures per minute, and from alerts to incidents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def per_minute(samples: DataFrame, late: str) -> DataFrame:
    """Count, mean, least, greatest and sum of each metric of each host in each minute."""
    return (
        samples.withWatermark("time", late)
        .groupBy(F.window("time", "1 minute").alias("window"), "host", "metric")
        .agg(
            F.count("*").alias("samples"),
            F.avg("value").alias("mean"),
            F.min("value").alias("least"),
            F.max("value").alias("greatest"),
            F.sum("value").alias("sum"),
        )
        .select(
            "host",
            "metric",
            F.col("window.start").alias("minute"),
            "samples",
            "mean",
            "least",
            "greatest",
            "sum",
        )
    )


def health(per_minute: DataFrame) -> DataFrame:
    """Each metric of each host over all minutes."""
    return (
        per_minute.groupBy("host", "metric")
        .agg(
            F.sum("samples").alias("samples"),
            F.round(F.sum("sum") / F.sum("samples"), 6).alias("mean"),
            F.max("greatest").alias("greatest"),
            F.max("minute").alias("newest"),
        )
        .orderBy("metric", "host")
    )


def incidents(alerts: DataFrame) -> DataFrame:
    """Each incident with its beginning and, where it is over, its end."""
    is_end = F.col("alert") == "recovered"
    return (
        alerts.groupBy("host", "metric", "incident")
        .agg(
            F.min(F.when(~is_end, F.col("time"))).alias("began"),
            F.max(F.when(is_end, F.col("time"))).alias("ended"),
            F.min(F.when(~is_end, F.col("value"))).alias("value"),
            F.count_if(~is_end).alias("alerts"),
        )
        .orderBy("began", "host", "metric")
    )
