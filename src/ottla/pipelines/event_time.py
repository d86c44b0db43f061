"""Hides how streams and batches differ about time, so that functions need not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def once_within(rows: DataFrame, names: Sequence[str], late: str) -> DataFrame:
    """One row of each name; a stream forgets a name once the watermark has passed its time."""
    if not rows.isStreaming:
        return rows.dropDuplicates(list(names))
    return rows.withWatermark("time", late).dropDuplicatesWithinWatermark(list(names))
