"""Whether the core is compiled, and how to use its source all the same.

`make compiled`, and the wheels that are made for a system, put compiled modules (mypyc) beside the
files that `release/core.txt` names, and Python prefers them. With the environment variable
OTTLA_PURE=1 it reads the source of every module of Ottla, as it does where nothing is compiled.
"""

from __future__ import annotations

import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import PathEntryFinder

    from mypy_extensions import mypyc_attr as mypyc_attr
else:

    def mypyc_attr(**_: object):
        """What the compiler is to know of a class; it means nothing where the class is made."""
        return lambda cls: cls


def use_source(folder: str) -> None:
    """Import what lies in and below a folder from source alone, from now on."""
    source_in = FileFinder.path_hook((SourceFileLoader, SOURCE_SUFFIXES))

    def source_below(path: str) -> PathEntryFinder:
        if not f"{path}/".startswith(f"{folder}/"):
            raise ImportError(f"{path} is not in {folder}")
        return source_in(path)

    sys.path_hooks.insert(0, source_below)
    sys.path_importer_cache.pop(folder, None)


def is_core_compiled() -> bool:
    """Whether this process has a compiled core, or would have it."""
    spec = find_spec("ottla.log.log")
    origin = spec.origin if spec is not None else None
    return origin is not None and origin.endswith(tuple(EXTENSION_SUFFIXES))
