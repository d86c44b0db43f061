"""`NamedTuple` as typing has it, for half of its price.

`typing.NamedTuple` compiles the annotation of each field, which nobody asks for: the named tuples
of a broker took 10 ms of its start. To type checkers, and to mypyc, this is typing's own.
"""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:

    class NamedTupleType(type):
        """Makes a `namedtuple` of the annotations of a class body, with its methods."""

        def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            fields = namespace.get("__annotations__", {})
            defaults = [namespace.pop(each) for each in fields if each in namespace]
            base = namedtuple(name, fields, defaults=defaults)
            return type(name, (base, *bases[1:]), {"__slots__": (), **namespace})

    NamedTuple = type.__new__(NamedTupleType, "NamedTuple", (), {})
