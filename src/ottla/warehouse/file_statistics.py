"""What a file says of its columns, as Delta keeps it: readers skip files that cannot match.

Only bounds that are true for sure are told: longer texts are cut, numbers with NaN left out.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.parquet as pq

MAX_TEXT = 32


def statistics_of(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Number of rows, and bounds and nulls of the columns that have them; nested ones have none."""
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
        # A row group of nulls alone has no bounds, and needs none.
        if bounded and all(each.has_min_max or each.num_values == 0 for each in found):
            low = _bound(min(each.min for each in bounded))
            high = _bound(max(each.max for each in bounded))
            if low is not None:
                lowest[name] = low[:MAX_TEXT] if isinstance(low, str) else low
            if high is not None and not _is_cut(bounded, high):
                highest[name] = high
    return {
        "numRecords": metadata.num_rows,
        "minValues": lowest,
        "maxValues": highest,
        "nullCount": nulls,
    }


def _is_cut(bounded: list[Any], high: Any) -> bool:
    """A text that is too long to keep is no upper bound when it is cut."""
    return isinstance(bounded[0].max, str) and len(high) > MAX_TEXT


def _bound(value: Any) -> Any:
    """A bound as JSON; None for what has no useful order."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | str):
        return value
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return None
