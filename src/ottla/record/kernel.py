"""The loops that touch every record, compiled where that is possible.

`COMPILED` tells which ones are in use. The environment variable OTTLA_PURE=1 asks for the plain
ones, at build time (nothing is compiled) and at run time (nothing compiled is used).
"""

from __future__ import annotations

from ottla.record.plain_kernel import COMPILED, decode_records, encode_records

__all__ = ["COMPILED", "decode_records", "encode_records"]
