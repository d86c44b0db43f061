"""Lines of an access log in Spark: each matched once, beside `regexp_extract` for each part.

Both take the same parts of the same lines, in turns, in one session. Spark matches the whole
pattern again for each `regexp_extract` of a row.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING

from ottla.pipelines.access_log import SiteActivity
from ottla.pipelines.java import JavaMissingError, require_java
from ottla.pipelines.runner import spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
LINES = 100_000


def main() -> None:
    """Print the medians of both, and their ratio."""
    try:
        require_java()
    except JavaMissingError as error:
        print(f"log lines: not measured: {error}")
        return
    from pyspark.sql import functions as F

    from ottla.pipelines.web_traffic import COMBINED_LINE, GROUPS, groups

    spark = spark_session("log lines", short_run=True)
    rows = [(line.decode(),) for line in SiteActivity(1, LINES).lines()]
    lines = spark.createDataFrame(rows, "line string").repartition(2).persist()
    lines.count()
    parts = groups(F.col("line"), COMBINED_LINE, GROUPS.values(), "\n")
    each = [F.regexp_extract("line", COMBINED_LINE, group) for group in GROUPS.values()]
    ways = {
        "matched once": lines.select(parts.alias("parts")),
        "for each part": lines.select(F.array(*each).alias("parts")),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, frame in ways.items():
            found[name].append(seconds(frame))
    spark.stop()
    ours, theirs = (statistics.median(times) for times in found.values())
    for name, median_s in zip(ways, (ours, theirs), strict=True):
        print(f"{name:<14} {LINES / median_s:10,.0f} lines/s")
    print(f"ratio of the times {ours / theirs:.2f}")


def seconds(frame: DataFrame) -> float:
    """How long it takes to compute all rows."""
    began_s = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return time.monotonic() - began_s


if __name__ == "__main__":
    main()
