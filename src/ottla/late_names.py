"""Names that a package has from its modules, each imported when it is first used."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def late_names(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package: `names` has those of each module, with blanks.

    The package's `__all__` names them once more, for type checkers.
    """
    homes = {name: home for home, text in names.items() for name in text.split()}

    def getattr_late(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return getattr_late, lambda: sorted(sys.modules[package].__all__)
