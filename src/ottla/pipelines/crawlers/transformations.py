"""From requests to the clients that break a rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from ottla.pipelines.web_traffic.transformations import parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

API_PATH = r"(?i)^/api/|\.(?:xml|rss|atom|json)$|/feed/?$"
RULES = {"crawler": "requests", "rate-limit": "api_calls", "spam": "posts"}


def requests_per_minute(events: DataFrame, late: str) -> DataFrame:
    """All requests, those of the API, and the posts, of each client in each minute."""
    return (
        parsed(events)
        .withWatermark("time", late)
        .groupBy(F.window("time", "1 minute").alias("window"), "client")
        .agg(
            F.count("*").alias("requests"),
            F.count_if(F.col("path").rlike(API_PATH)).alias("api_calls"),
            F.count_if(F.col("method") == "POST").alias("posts"),
        )
        .select("client", F.col("window.start").alias("minute"), *RULES.values())
    )


def offences(per_minute: DataFrame, limits: Mapping[str, int]) -> DataFrame:
    """A row for each client, minute and rule with more requests than the rule allows."""
    checks = F.array(
        *(
            F.struct(
                F.lit(rule).alias("rule"),
                F.col(column).alias("requests"),
                F.lit(limits[rule]).cast("bigint").alias("limit"),
            )
            for rule, column in RULES.items()
        )
    )
    return (
        per_minute.select("client", "minute", F.explode(checks).alias("check"))
        .select("client", "check.rule", "minute", "check.requests", "check.limit")
        .where(F.col("requests") > F.col("limit"))
    )


def worst(offences: DataFrame) -> DataFrame:
    """The offences with the most requests first."""
    return offences.orderBy(F.desc("requests"), "client", "minute", "rule")


def blocklist(offences: DataFrame) -> DataFrame:
    """Each client to refuse, with the rules that it broke, how often, and when last."""
    return (
        offences.groupBy("client")
        .agg(
            F.array_join(F.array_sort(F.collect_set("rule")), ", ").alias("rules"),
            F.count("*").alias("offences"),
            F.max("requests").alias("peak"),
            F.max("minute").alias("newest"),
        )
        .orderBy(F.desc("offences"), "client")
    )
