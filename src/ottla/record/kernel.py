"""The loops that touch every record, compiled where that is possible: import them from here.

`COMPILED` says whether the compiled ones are in use. The environment variable OTTLA_PURE=1 asks for
the plain ones, at build time (nothing is compiled) and at run time (nothing compiled is used).
"""

from __future__ import annotations

import os
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import TYPE_CHECKING

__all__ = [
    "COMPILED",
    "ColumnBuilder",
    "RowEncoder",
    "decode_keys",
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


if not TYPE_CHECKING and _use_compiled():
    from ottla.record.native_columns import ColumnBuilder
    from ottla.record.native_kernel import (
        COMPILED,
        decode_keys,
        decode_records,
        encode_records,
        encode_values,
        survey_records,
    )
else:
    from ottla.record.columns import ColumnBuilder
    from ottla.record.plain_kernel import (
        COMPILED,
        decode_keys,
        decode_records,
        encode_records,
        encode_values,
        survey_records,
    )

if not TYPE_CHECKING and COMPILED and _is_compiled("ottla.record.native_compaction"):
    from ottla.record.native_compaction import keep_records, last_offset, note_keys
else:
    from ottla.record.plain_compaction import keep_records, last_offset, note_keys

if not TYPE_CHECKING and COMPILED and _is_compiled("ottla.record.native_rows"):
    from ottla.record.native_rows import RowEncoder
else:
    from ottla.record.rows import RowEncoder
