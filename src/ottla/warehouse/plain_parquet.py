"""A folder of plain Parquet files that loads write to, for readers that know only files.

Tasks write below `_staging`, which readers skip. A load counts when its manifest is in
`_loads`, under a number that only one load can have; after that its files are moved to where
readers see them. A load that finds the newest manifest half moved completes that first. A reader of
the folder sees nothing that does not count, and nothing twice, but may see a part of the newest
load for a moment.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.runtime import SystemClock
from ottla.spark.offsets import from_json_object, to_json_object
from ottla.structs import MS_PER_HOUR
from ottla.warehouse.data_files import sync_files, sync_names
from ottla.warehouse.loads import Load
from ottla.warehouse.table_location import Place, WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from ottla.spark.offsets import Offsets
    from ottla.structs import TopicPartition
    from ottla.warehouse.data_files import DataFile

STAGING, LOADS = "_staging", "_loads"
NOTHING: dict[str, Any] = {"number": 0, "loads": {}, "files": []}


class ParquetHome:
    """A local folder, or one that every executor sees under the same path, with atomic links."""

    def __init__(self, place: Place) -> None:
        if not place.is_local:
            raise WarehouseError(
                f"table {place.uri}: plain Parquet needs a folder, as its commits are links; "
                "object storage can hold Delta tables"
            )
        self.place = place
        self._root = Path(place.uri)
        self._description: dict[str, Any] = {}

    def prepare(self, schema: StructType, partition_by: Sequence[str]) -> None:
        """Check the columns against those of the newest load."""
        (self._root / LOADS).mkdir(parents=True, exist_ok=True)
        columns = {each.name: each.dataType.simpleString() for each in schema.fields}
        newest = newest_manifest(self._root)
        if newest["number"] and newest["partition_by"] != list(partition_by):
            raise WarehouseError(
                f"table {self.place.uri}: is partitioned by "
                f"{', '.join(newest['partition_by']) or 'nothing'}, and cannot be by "
                f"{', '.join(partition_by) or 'nothing'}"
            )
        there: dict[str, str] = newest.get("columns", {})
        for name, kind in columns.items():
            if there.get(name, kind) != kind:
                raise WarehouseError(
                    f"table {self.place.uri}: its column {name} is {there[name]}, and cannot take "
                    f"{kind}: files of plain Parquet keep their types, a Delta table can be widened"
                )
        self._description = {
            "partition_by": list(partition_by),
            "columns": {**there, **columns},
        }

    def snapshot(self) -> ParquetSnapshot:
        newest = newest_manifest(self._root)
        publish(self._root, newest)
        return ParquetSnapshot(self._root, newest, self._description)

    def staging(self, load_name: str) -> str:
        """A new folder for each driver, also where two run the same load."""
        return f"{STAGING}/{uuid.uuid4()}"

    def vacuum(self, retention_h: int, *, delete: bool) -> list[str]:
        """The staging folders of dead loads, where nothing was written for `retention_h`."""
        publish(self._root, newest_manifest(self._root))
        limit_ms = SystemClock().now_ms() - retention_h * MS_PER_HOUR
        left = [
            folder
            for folder in sorted(self._root.glob(f"{STAGING}/*"))
            if all(_modified_ms(each) <= limit_ms for each in (folder, *folder.rglob("*")))
        ]
        for folder in left if delete else ():
            shutil.rmtree(folder)
        return [str(folder.relative_to(self._root)) for folder in left]


class ParquetSnapshot:
    """The folder at its newest manifest, after all files of that have been moved."""

    def __init__(self, root: Path, newest: dict[str, Any], description: Mapping[str, Any]) -> None:
        self._root = root
        self._newest = newest
        self._description = description

    def offsets(self, name: str, partitions: Collection[TopicPartition]) -> Offsets:
        known = from_json_object(self._load(name).get("offsets", {}))
        return {each: known[each] for each in partitions if each in known}

    def number(self, name: str) -> int:
        return int(self._load(name).get("number", 0))

    def is_other_topic(self, name: str, topic: str, topic_id: str) -> bool:
        known: Mapping[str, str] = self._load(name).get("topics", {})
        return known.get(topic, topic_id) != topic_id

    def ends_of_others(
        self, name: str, partitions: Collection[TopicPartition], topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, tuple[str, int]]:
        found: dict[TopicPartition, tuple[str, int]] = {}
        for other in self._newest["loads"].keys() - {name}:
            ids = self._load(other).get("topics", {})
            offsets = from_json_object(self._load(other).get("offsets", {}))
            for where, offset in offsets.items():
                if topic_ids.get(where.topic) == ids.get(where.topic, topic_ids.get(where.topic)):
                    found[where] = max(found.get(where, ("", 0)), (other, offset), key=_end)
        return {where: end for where, end in found.items() if where in partitions}

    def fitted(self, rows: DataFrame) -> DataFrame:
        return rows

    def commit(self, load: Load, files: Sequence[DataFile]) -> int:
        sync_files(self._root, [each.path for each in files])
        number = self._newest["number"] + 1
        before = from_json_object(self._load(load.name).get("offsets", {}))
        offsets = to_json_object({**before, **load.ends})
        topics = {**self._load(load.name).get("topics", {}), **load.topic_ids}
        manifest = {
            **self._description,
            **load.facts(files),
            "number": number,
            "loads": {
                **self._newest["loads"],
                load.name: {"number": load.number, "offsets": offsets, "topics": topics},
            },
            "files": [each.path for each in files],
        }
        self._link(manifest)
        publish(self._root, manifest)
        return int(number)

    def _link(self, manifest: Mapping[str, Any]) -> None:
        """Put the manifest under its number, atomically."""
        fresh = self._root / LOADS / f".{uuid.uuid4()}"
        try:
            fresh.write_text(json.dumps(manifest), encoding="utf-8")
            sync_files(self._root, [f"{LOADS}/{fresh.name}"])
            os.link(fresh, self._root / LOADS / f"{manifest['number']:020}.json")
        except FileExistsError:
            raise WarehouseError(
                f"table {self._root}: another load has committed meanwhile; nothing of this one "
                "counts"
            ) from None
        finally:
            fresh.unlink(missing_ok=True)
        sync_names(self._root, [f"{LOADS}/{fresh.name}"])

    def _load(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._newest["loads"].get(name, {})
        return found


def _end(load: tuple[str, int]) -> int:
    return load[1]


def newest_manifest(root: Path) -> dict[str, Any]:
    """The manifest of the highest number; an empty one before the first load."""
    names = sorted(path.name for path in (root / LOADS).glob("*.json"))
    if not names:
        return dict(NOTHING)
    found: dict[str, Any] = json.loads((root / LOADS / names[-1]).read_text(encoding="utf-8"))
    return found


def publish(root: Path, manifest: Mapping[str, Any]) -> None:
    """Move the files of a load to where readers see them; this may be repeated, by any driver."""
    for staged in manifest["files"]:
        if not (root / staged).exists():
            continue
        target = root / visible(staged)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(root / staged, target)
        except FileNotFoundError:
            pass  # another driver has moved it just now
    # Before the next load commits: only the files of the newest one are looked for.
    sync_names(root, [visible(staged) for staged in manifest["files"]])


def visible(staged: str) -> str:
    """The path that a staged file is moved to."""
    return "/".join(staged.split("/")[2:])


def _modified_ms(path: Path) -> int:
    return path.stat().st_mtime_ns // 1_000_000
