"""Turns message classes into straight-line Python: a constructor per class, a codec per version.

The source is registered in `linecache`, so that tracebacks show its lines, and remembers which
field each line works on, so that an error can name it.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct as Layout
from types import TracebackType
from typing import Any, Final

from ottla.protocol.types import UNSET, StructType

LABELS: Final = "labels"
SLICE_ELEMENTS: Final = 1000
"""The elements of arrays in one slice, which takes some milliseconds to read or write."""


class FunctionSource:
    """Python source of one function that grows line by line, with the objects its names mean."""

    def __init__(self, name: str, parameters: str) -> None:
        self.name = name
        self.lines = [f"def {name}({parameters}):"]
        self.labels = [""]
        self.names: dict[str, Any] = {}
        self.label = ""
        self.depth = 1
        self.in_slices = False
        self.counters: dict[str, int] = {}

    def line(self, text: str, label: str | None = None) -> None:
        self.lines.append("    " * self.depth + text)
        self.labels.append(self.label if label is None else label)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(f"{head}:")
        self.depth += 1
        yield
        self.depth -= 1

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Lines made in here work on the field `name` of the object of the lines before."""
        outer = self.label
        self.label = f"{outer}.{name}" if outer else name
        yield
        self.label = outer

    def fresh(self, stem: str) -> str:
        """A local name that is not taken yet: n1, n2, ..."""
        self.counters[stem] = number = self.counters.get(stem, 0) + 1
        return f"{stem}{number}"

    def begin_slices(self) -> None:
        """Make the function a generator, which pauses where `maybe_pause` says."""
        self.in_slices = True
        self.line(f"turn = {self.constant('sizes', globals())}['SLICE_ELEMENTS']")
        with self.block("if turn < 0"):
            self.line("yield")

    def maybe_pause(self) -> None:
        """Pause after so many elements, where the work is done in slices."""
        if self.in_slices:
            self.line("turn -= 1")
            with self.block("if turn < 0"):
                self.line("turn = sizes['SLICE_ELEMENTS']")
                self.line("yield")

    def constant(self, name: str, value: object) -> str:
        """Make `value` known to the function under `name`."""
        self.names[name] = value
        return name

    def layout(self, direction: str, codes: str) -> str:
        """The precompiled `pack` or `unpack_from` of a run of fixed-size values."""
        method = getattr(Layout(f">{codes}"), direction)
        return self.constant(
            f"{direction.removesuffix('_from')}_{codes}".replace("?", "bool"), method
        )

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def compile(self, filename: str) -> Any:
        text = self.text()
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        namespace = {**self.names, LABELS: self.labels}
        exec(compile(text, filename, "exec"), namespace)
        return namespace[self.name]


def field_at_fault(error: BaseException) -> str:
    """The field that the generated code was working on when it raised `error`, or ''."""
    trace: TracebackType | None = error.__traceback__
    label = ""
    while trace is not None:
        labels = trace.tb_frame.f_globals.get(LABELS)
        if isinstance(labels, list):
            label = labels[trace.tb_lineno - 1]
        trace = trace.tb_next
    return label


def constructor(cls: StructType) -> Any:
    """`__init__` of a struct: keyword arguments for the fields, each with its default."""
    if not cls.fields:
        return object.__init__
    parameters = ", ".join(f"{field.name}=default_{field.name}" for field in cls.fields)
    source = FunctionSource("__init__", f"self, *, {parameters}")
    for field in cls.fields:
        name = field.name
        source.constant(f"default_{name}", UNSET if field.is_list else field.default)
        value = f"[] if {name} is default_{name} else {name}" if field.is_list else name
        source.line(f"self.{name} = {value}")
    return source.compile(f"<ottla {cls.__name__}>")
