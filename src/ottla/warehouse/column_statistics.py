"""The statistics of a file's columns, as Delta keeps them: readers skip files that cannot match.

Only safe bounds are stated: longer texts are cut, and numbers with NaN have none.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow.parquet as pq


MAX_TEXT = 32


def statistics_of(metadata: pq.FileMetaData) -> dict[str, Any]:
    """The number of rows, and the bounds and nulls of columns; nested columns have none."""
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(metadata.num_columns):
        name = metadata.schema.column(index).path
        found = [
            metadata.row_group(group).column(index).statistics
            for group in range(metadata.num_row_groups)
        ]
        if "." in name or any(each is None for each in found):
            continue
        if all(each.has_null_count for each in found):
            nulls[name] = sum(each.null_count for each in found)
        bounded = [each for each in found if each.has_min_max]
        # A row group that has only nulls has no bounds, and needs none.
        if bounded and all(each.has_min_max or each.num_values == 0 for each in found):
            bound = _bound_of(bounded[0].logical_type)
            low = bound(min(_least(each) for each in bounded))
            high = bound(max(_greatest(each) for each in bounded))
            if low is not None:
                lowest[name] = low[:MAX_TEXT] if isinstance(low, str) else low
            if high is not None and not (isinstance(high, str) and len(high) > MAX_TEXT):
                highest[name] = high
    return {
        "numRecords": metadata.num_rows,
        "minValues": lowest,
        "maxValues": highest,
        "nullCount": nulls,
    }


PER_SECOND: Final = {"milliseconds": 10**3, "microseconds": 10**6, "nanoseconds": 10**9}
MOMENTS: Final = ("TIMESTAMP", "DATE")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _least(statistics: pq.Statistics) -> Any:
    is_moment = statistics.logical_type.type in MOMENTS
    return statistics.min_raw if is_moment else statistics.min


def _greatest(statistics: pq.Statistics) -> Any:
    is_moment = statistics.logical_type.type in MOMENTS
    return statistics.max_raw if is_moment else statistics.max


def _bound_of(kind: pq.ParquetLogicalType) -> Callable[[Any], Any]:
    """The function that makes JSON of a bound, and None of one without a useful order or beyond all
    years.

    A text that is too long to keep is no upper bound once it is cut.
    """
    if kind.type == "DATE":
        return lambda days: _moment(days * 24 * 3600, 0, "%Y-%m-%d")
    if kind.type == "TIMESTAMP":
        per_second = PER_SECOND[json.loads(kind.to_json())["timeUnit"]]
        return lambda count: _moment(
            count // per_second,
            count % per_second * 10**6 // per_second,
            "%Y-%m-%dT%H:%M:%S.%fZ",
        )
    return lambda value: (
        value if isinstance(value, int | str) and not isinstance(value, bool) else None
    )


def _moment(seconds: int, microseconds: int, form: str) -> str | None:
    try:
        moment = EPOCH + timedelta(seconds=seconds, microseconds=microseconds)
    except OverflowError:
        return None
    # Years before 1000 have four digits, too, which `strftime` does not give everywhere.
    return moment.strftime(form.replace("%Y", f"{moment.year:04}"))
