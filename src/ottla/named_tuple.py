"""`NamedTuple` as typing has it, for a fifth of its price.

`typing.NamedTuple` compiles the annotation of each field, which nobody asks for, and `namedtuple`
below it compiles a constructor and seven methods for each class: the 66 named tuples of a broker
took 10 ms of its start. Here the methods are inherited, and a constructor is one that was compiled
for as many fields, with other names. To type checkers, and to mypyc, this is typing's own.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable
from functools import cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    FieldGetter = type(namedtuple("One", "field").field)  # no property is as quick

    class NamedFields(tuple):
        """What a named tuple has besides its fields, under the names that typing gives it."""

        __slots__ = ()

        @classmethod
        def _make(cls, values: Iterable[object]) -> NamedFields:
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **values: object) -> NamedFields:
            replaced = self._make(map(values.pop, self._fields, self))
            if values:
                raise ValueError(f"Got unexpected field names: {list(values)!r}")
            return replaced

        __replace__ = _replace  # for copy.replace, from Python 3.13 on

        def _asdict(self) -> dict[str, object]:
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            values = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({values})"

        def __getnewargs__(self) -> tuple[object, ...]:
            return tuple(self)

    class NamedTupleType(type):
        """Makes a tuple with names of the annotations of a class body, with its methods."""

        def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            fields = tuple(namespace.get("__annotations__", ()))
            defaults = {each: namespace.pop(each) for each in fields if each in namespace}
            made = {
                "__doc__": f"{name}({', '.join(fields)})",
                "__slots__": (),
                "__match_args__": fields,
                "_fields": fields,
                "_field_defaults": defaults,
                "__new__": _constructor(f"{name}.__new__", fields, tuple(defaults.values())),
            }
            getters = {each: FieldGetter(index, "") for index, each in enumerate(fields)}
            return type(name, (NamedFields, *bases[1:]), made | getters | namespace)

    def _constructor(
        name: str, fields: tuple[str, ...], defaults: tuple[object, ...]
    ) -> FunctionType:
        """`def __new__(cls, *fields)`: the names of its arguments are data of compiled code."""
        code = _compiled_constructor(len(fields)).replace(
            co_name="__new__", co_qualname=name, co_varnames=("_cls", *fields)
        )
        return FunctionType(code, {"new_tuple": tuple.__new__}, "__new__", defaults)

    @cache
    def _compiled_constructor(count: int) -> CodeType:
        values = "".join(f"field_{index}, " for index in range(count))
        constructor: FunctionType = eval(f"lambda cls, {values}: new_tuple(cls, ({values}))")
        return constructor.__code__

    NamedTuple = type.__new__(NamedTupleType, "NamedTuple", (), {})
