"""Maintains Delta tables: merges small files, and deletes unused ones."""

from __future__ import annotations

from dataclasses import dataclass

from ottla.warehouse.delta import open_delta
from ottla.warehouse.places import Place

DEFAULT_RETENTION_H = 168


@dataclass(frozen=True, slots=True)
class Compacted:
    """The numbers of files before and after compaction."""

    files_before: int
    files_after: int


def compact(place: Place, target_size: int | None = None) -> Compacted:
    """Merge small files of a partition in one commit; rows and loads stay as they are."""
    done = open_delta(place).optimize.compact(target_size=target_size)
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
