"""Where a table is: a folder, or an address of object storage with its access settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.fs as pafs


class WarehouseError(Exception):
    """An operation that a table does not allow; the text names it and the rule."""


@dataclass(frozen=True, slots=True)
class Place:
    """An address that means the same in the driver and in every executor."""

    uri: str
    storage_options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, location: str | Path, storage_options: Mapping[str, str] | None = None) -> Place:
        """A path of this machine becomes absolute: tasks have folders of their own."""
        text = str(location)
        if "://" not in text:
            text = str(Path(text).expanduser().resolve())
        return cls(text, dict(storage_options or {}))

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    def filesystem(self) -> pafs.FileSystem:
        """The files below the place, through the storage layer that writes the commits as well."""
        import pyarrow.fs as pafs
        from deltalake.fs import DeltaStorageHandler

        return pafs.PyFileSystem(DeltaStorageHandler(self.uri, dict(self.storage_options)))
