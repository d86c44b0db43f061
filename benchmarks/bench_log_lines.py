"""Lines of an access log in Spark: by the reader of the pipelines, beside `regexp_extract`.

Both take the same parts of the same lines, in turns, in one session. The reader is Python, knows
all formats and says why a line is none; Spark's own function knows one pattern, and matches it
again for each part of a row.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING

from ottla.pipelines.runner import spark_session
from ottla.pipelines.site_traffic import SiteActivity
from ottla.runtime.java import JavaMissingError, require_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
LINES = 100_000
QUOTED = r'"(?>(.*?(?<!\\)(?:\\\\)*+)")'
COMBINED_LINE = rf"^(\S+) (\S+) (\S+) \[([^\]]+)\] {QUOTED} (\d{{3}}) (\d+|-) {QUOTED} {QUOTED}\s*$"
GROUPS = (1, 4, 5, 6, 7, 8, 9)


def main() -> None:
    """Print the medians of both, and their ratio."""
    try:
        require_java()
    except JavaMissingError as error:
        print(f"log lines: not measured: {error}")
        return
    from pyspark.sql import functions as F

    from ottla.pipelines.web_traffic import read_lines

    spark = spark_session("log lines", short_run=True)
    rows = [("t", 0, offset, line) for offset, line in enumerate(SiteActivity(1, LINES).lines())]
    lines = spark.createDataFrame(rows, "topic string, partition int, offset long, value binary")
    lines = lines.repartition(2).persist()
    lines.count()
    text = F.col("value").cast("string")
    each = [F.regexp_extract(text, COMBINED_LINE, group) for group in GROUPS]
    ways = {
        "reader": read_lines(lines),
        "regexp_extract": lines.select(F.array(*each).alias("parts")),
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
