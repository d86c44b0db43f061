"""What a load is to a table: a name, a number, and the offsets that it begins and ends at."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ottla.spark.offsets import to_json_object

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ottla.spark.offsets import Offsets
    from ottla.structs import TopicPartition
    from ottla.warehouse.data_files import DataFile
    from ottla.warehouse.places import Place


@dataclass(frozen=True, slots=True)
class Load:
    """The records of one commit. Loads of a name are counted from 1.

    `starts` and `ends` have the same partitions; those whose end is new to the table are in it even
    if they have no records, so that a later load does not look for their beginning again.
    """

    name: str
    number: int
    starts: Offsets
    ends: Offsets

    def facts(self, files: Sequence[DataFile]) -> dict[str, str]:
        """What the commit says of the load, for people and for programs."""
        return {
            "ottla.load": self.name,
            "ottla.number": str(self.number),
            "ottla.offsets.from": _text(self.starts),
            "ottla.offsets.to": _text(self.ends),
            "ottla.files": str(len(files)),
            "ottla.rows": str(sum(each.row_count for each in files)),
        }


class Snapshot(Protocol):
    """A table as it was when it was opened, and commits on top of that."""

    def offsets(self, name: str, partitions: Collection[TopicPartition]) -> Offsets:
        """Where the loads of a name have come to, of those partitions that they have read."""

    def number(self, name: str) -> int:
        """The number of the newest load of a name; 0 before the first."""

    def commit(self, load: Load, files: Sequence[DataFile]) -> int:
        """Files and offsets together, or neither; returns the version of the table.

        Raises WarehouseError if a load of this name was committed since the table was opened.
        """


class Table(Protocol):
    """A table that loads go into."""

    place: Place

    def prepare(self, schema: StructType, partition_by: Sequence[str]) -> None:
        """Make the table, or give it the columns that it does not have yet."""

    def snapshot(self) -> Snapshot:
        """The table as it is now; it must have been prepared."""

    def staging(self, load_name: str) -> str:
        """The folder below the place that tasks write to."""


def _text(offsets: Mapping[TopicPartition, int]) -> str:
    return json.dumps(to_json_object(offsets), separators=(",", ":"))
