"""The care of Delta tables: small files are merged, and unused ones deleted."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.warehouse.delta import open_delta
from ottla.warehouse.table_location import Place, WarehouseError

DEFAULT_RETENTION_H = 168


@dataclass(frozen=True, slots=True)
class Compacted:
    """The numbers of files before and after compaction."""

    files_before: int
    files_after: int


def compact(place: Place, target_size: int | None = None) -> Compacted:
    """Merge small files of a partition in one commit; rows and loads stay as they are."""
    from deltalake.exceptions import CommitFailedError

    try:
        done = open_delta(place).optimize.compact(target_size=target_size)
    except CommitFailedError as error:
        raise WarehouseError(
            f"table {place.uri}: it was changed while it was compacted, and is as it was; try "
            f"again ({error})"
        ) from error
    return Compacted(done["numFilesRemoved"], done["numFilesAdded"])


def vacuum(place: Place, retention_h: int, *, delete: bool) -> list[str]:
    """Files that no version of the last `retention_h` hours uses: compacted, rewound, or left by
    tasks that died. Returns their paths; with `delete` they are deleted."""
    found: list[str] = open_delta(place).vacuum(
        retention_hours=retention_h,
        dry_run=not delete,
        enforce_retention_duration=False,
        full=True,
    )
    return found
