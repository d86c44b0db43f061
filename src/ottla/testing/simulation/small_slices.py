"""Worlds in which work that is done in slices pauses at every second element.

A slice has hundreds or thousands, and a world has a handful of partitions, groups and members: all
of it would be done in one step, and nothing would ever come between two. That also takes a loop
whose turns take time (`World.turns`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pkgutil import walk_packages
from types import ModuleType
from typing import Final

from ottla import controller, coordinator, log, replication, runtime, server
from ottla.protocol import codegen, message

ROOMS: Final = (controller, coordinator, log, replication, runtime, server)
"""The rooms of the broker in which others may run in the middle of something."""
NAMES: Final = re.compile(
    r"\w+_(IN_A_SLICE|IN_A_STEP|IN_A_REQUEST|AT_ONCE|PER_STEP|PER_BATCH)"
    r"|SLICE_\w+|MANY_PARTITIONS|LONG_VALUE_BYTES"
)


def sizing_modules() -> Iterator[ModuleType]:
    """The modules of these rooms that have, or import, the size of a slice, by its name."""
    for room in ROOMS:
        for each in walk_packages(room.__path__, f"{room.__name__}."):
            module = import_module(each.name)
            if any(map(NAMES.fullmatch, vars(module))):
                yield module


MODULES: Final = (codegen, message, *sizing_modules())
SMALL: Final = 2


@contextmanager
def small_slices() -> Iterator[None]:
    """Let all such work pause at every second element meanwhile."""
    with ExitStack() as stack:
        for module in MODULES:
            for name in filter(NAMES.fullmatch, list(vars(module))):
                stack.callback(setattr, module, name, getattr(module, name))
                setattr(module, name, SMALL)
        yield
