"""The loops that touch every record, compiled where that is possible: import them from here.

`COMPILED` says whether the compiled ones are in use. The environment variable OTTLA_PURE=1 asks for
the plain ones, at build time (nothing is compiled) and at run time (nothing compiled is used).
Compaction, `ColumnBuilder` and `RowEncoder` are loaded when they are first asked for: a broker
asks for the first when it cleans a log, and never for the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, Any, cast

__all__ = [
    "COMPILED",
    "ColumnBuilder",
    "RowEncoder",
    "crc32c",
    "decode_consumer_records",
    "decode_records",
    "encode_records",
    "encode_values",
    "keep_records",
    "last_offset",
    "note_keys",
    "survey_records",
]


def _is_compiled(module: str) -> bool:
    spec = find_spec(module)
    origin = spec.origin if spec is not None else None
    return origin is not None and origin.endswith(tuple(EXTENSION_SUFFIXES))


def _use_compiled() -> bool:
    if os.environ.get("OTTLA_PURE", "") not in ("", "0"):
        return False
    return _is_compiled("ottla.record.native_kernel") and _is_compiled(
        "ottla.record.native_columns"
    )


COMPILED = _use_compiled()

if COMPILED and not TYPE_CHECKING:
    from ottla.record.native_kernel import (
        decode_consumer_records,
        decode_records,
        encode_records,
        encode_values,
        survey_records,
    )
else:
    from ottla.record.plain_decoding import decode_consumer_records, decode_records
    from ottla.record.plain_encoding import encode_records, encode_values
    from ottla.record.plain_survey import survey_records

if TYPE_CHECKING:
    from ottla.record.columns import ColumnBuilder
    from ottla.record.plain_compaction import keep_records, last_offset, note_keys
    from ottla.record.rows import RowEncoder

_LATE = {
    "ColumnBuilder": "columns",
    "RowEncoder": "rows",
    "keep_records": "compaction",
    "last_offset": "compaction",
    "note_keys": "compaction",
}
_PLAIN = {"columns": "columns", "rows": "rows", "compaction": "plain_compaction"}


def __getattr__(name: str) -> Any:
    """The functions for compaction alone, or for reading and writing columns and rows."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    compiled = f"ottla.record.native_{_LATE[name]}"
    plain = f"ottla.record.{_PLAIN[_LATE[name]]}"
    module = import_module(compiled if COMPILED and _is_compiled(compiled) else plain)
    found = globals()[name] = getattr(module, name)
    return found


def _load_crc32c() -> Callable[..., int]:
    """The function of the package crc32c, without the package's head.

    That one reads the metadata of installed packages for a version, which takes a process 13 ms.
    """
    package = find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    extension = PathFinder.find_spec("crc32c._crc32c", places) if places else None
    if extension is None or extension.loader is None:  # another layout of the package
        from crc32c import crc32c

        return cast(Callable[..., int], crc32c)
    module = module_from_spec(extension)
    extension.loader.exec_module(module)
    return cast(Callable[..., int], module.crc32c)


crc32c = _load_crc32c()
"""CRC-32C of a buffer, going on from the value of the bytes before it."""
