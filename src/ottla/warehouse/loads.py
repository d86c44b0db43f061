"""A load as a table sees it: a name, a number, and the offsets that it begins and ends at."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ottla.spark.offsets import to_json_object

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from ottla.spark.offsets import Offsets
    from ottla.structs import TopicPartition
    from ottla.warehouse.data_files import DataFile
    from ottla.warehouse.table_location import Place


@dataclass(frozen=True, slots=True)
class Load:
    """The records of one commit. Loads of a name are counted from 1.

    `starts` and `ends` have the same partitions; those whose end is new to the table are in it even
    if they have no records, so that a later load does not look up their start again. `topic_ids`
    say which topics of these names they are.
    """

    name: str
    number: int
    starts: Offsets
    ends: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def facts(self, files: Sequence[DataFile]) -> dict[str, str]:
        """The load's description in the commit, for people and for programs."""
        return {
            "ottla.load": self.name,
            "ottla.number": str(self.number),
            "ottla.offsets.from": _text(self.starts),
            "ottla.offsets.to": _text(self.ends),
            "ottla.topics": json.dumps(dict(self.topic_ids), separators=(",", ":")),
            "ottla.files": str(len(files)),
            "ottla.rows": str(sum(each.row_count for each in files)),
        }


class TableSnapshot(Protocol):
    """One version of a table, and commits on top of it."""

    def offsets(self, name: str, partitions: Collection[TopicPartition]) -> Offsets:
        """The next offsets for the loads of a name, for those partitions that they have read."""

    def number(self, name: str) -> int:
        """The number of the newest load of a name; 0 before the first."""

    def is_other_topic(self, name: str, topic: str, topic_id: str) -> bool:
        """Whether loads of a name have read a topic of this name and another known id."""

    def ends_of_others(
        self, name: str, partitions: Collection[TopicPartition], topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, tuple[str, int]]:
        """The load of another name that is furthest in a partition, if one is further than this
        one, and where it ended: records before that are in the table already. Its name is empty
        where it is long ago."""

    def fitted(self, rows: DataFrame) -> DataFrame:
        """The rows with the types of the table's columns, where those are wider."""

    def commit(self, load: Load, files: Sequence[DataFile]) -> int:
        """Files and offsets together, or neither; returns the version of the table.

        Raises WarehouseError if a load of this name was committed since the table was opened.
        """


class Table(Protocol):
    """A table that loads go into."""

    place: Place

    def prepare(self, schema: StructType, partition_by: Sequence[str]) -> None:
        """Make the table, or widen its columns; refuse values that they cannot take."""

    def snapshot(self) -> TableSnapshot:
        """The table as it is now; it must have been prepared."""

    def staging(self, load_name: str) -> str:
        """The folder below the place that tasks write to."""


def _text(offsets: Mapping[TopicPartition, int]) -> str:
    return json.dumps(to_json_object(offsets), separators=(",", ":"))


MOMENTS = ("timestamp", "timestamp_ntz", "date")
