"""Generates the function that reads one version of a message.

`left` is how many elements all arrays together may still have: a frame of many tiny elements takes
far more memory than its bytes, and far more time.

It leans on two facts. Reading a fixed-size value past the end raises by itself, and positions only
grow: so a slice that ends short need not be checked, as the position after it lies past the end,
where the next read raises or the final comparison fails. Counts are checked before the
first element is read: against the bytes that are left, and against Kafka's limits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ottla.protocol import wire
from ottla.protocol.codegen import FunctionSource
from ottla.protocol.types import (
    UNLIMITED,
    Array,
    Bytes,
    Field,
    Fixed,
    Sized,
    String,
    StructType,
    Uuid,
)


def smallest(type: Any, version: int, flexible: bool) -> int:
    """The least number of bytes that a value of `type` takes."""
    if isinstance(type, Fixed):
        return type.size
    if isinstance(type, Sized):
        return 1 if flexible else (2 if type is String else 4)
    if isinstance(type, Array):
        return 1 if flexible else 4
    return sum(
        1
        if field.is_struct and version in field.nullable
        else smallest(field.type, version, flexible)
        for field in type.fields
        if version in field.versions and field.tag is None
    ) + (1 if flexible else 0)


class DecoderSource(FunctionSource):
    """`decode(buffer, pos, left)`: `run` collects fixed-size values to be unpacked in one go.

    A flexible length is kept as it is on the wire, one more than it says (0 is null).
    """

    def __init__(self, cls: StructType, version: int, in_slices: bool = False) -> None:
        super().__init__("decode", f"buffer, pos, left={UNLIMITED}")
        self.version = version
        self.flexible = version in cls.flexible
        self.run: list[tuple[str, str, str]] = []
        self.after: list[str] = []
        for function in CALLED:
            self.constant(function.__name__, function)
        self.constant("new", object.__new__)
        # Text decodes faster from bytes; only a buffer with records must not be copied.
        self.has_views = cls.holds_records
        self.line(f"data = {'memoryview' if self.has_views else 'bytes'}(buffer)")
        self.line("end = len(data)")
        if in_slices:
            self.begin_slices()
        self.struct(cls, "m")
        self.flush()
        with self.block("if pos > end" if cls.ignores_rest else "if pos != end"):
            self.line("raise refuse_end(pos, end)")
        self.line("return m")

    def fixed(self, code: str, target: str) -> None:
        self.run.append((code, target, self.label))

    def flush(self) -> None:
        """Unpack the run that has been collected."""
        if not self.run:
            return
        codes = "".join(code for code, _, _ in self.run)
        targets = [target for _, target, _ in self.run]
        label = ", ".join(dict.fromkeys(label for _, _, label in self.run if label))
        if codes == "B":
            self.line(f"{targets[0]} = data[pos]", label)
            self.line("pos += 1", label)
        else:
            unpack = self.layout("unpack_from", codes)
            comma = "," if len(targets) == 1 else ""
            self.line(f"{', '.join(targets)}{comma} = {unpack}(data, pos)", label)
            self.line(f"pos += {sum(SIZES[code] for code, _, _ in self.run)}", label)
        for text in self.after:
            self.line(text, label)
        self.run, self.after = [], []

    def struct(self, cls: StructType, target: str) -> None:
        self.line(f"{target} = new({self.constant(cls.__name__, cls)})")
        tagged = []
        for field in cls.fields:
            place = f"{target}.{field.name}"
            if self.version not in field.versions:
                self.default(field, place)
            elif field.tag is not None:
                self.default(field, place)
                tagged.append(field)
            else:
                with self.inside(field.name):
                    self.value(field.type, place, self.version in field.nullable)
        if self.flexible:
            self.tagged_section(tagged, target)

    def default(self, field: Field, place: str) -> None:
        value = field.default
        if field.is_list:
            self.line(f"{place} = []")
        elif field.type is Uuid:
            self.line(f"{place} = {self.constant('NO_UUID', value)}")
        else:
            self.line(f"{place} = {value!r}")

    def value(self, type: Any, place: str, nullable: bool) -> None:
        if type is Uuid:
            raw = self.fresh("raw")
            self.fixed(type.code, raw)
            self.after.append(f"{place} = uuid_of({raw})")
        elif isinstance(type, Fixed):
            self.fixed(type.code, place)
        elif isinstance(type, Sized):
            self.sized(type, place, nullable)
        elif isinstance(type, Array):
            self.array(type.element, place, nullable)
        elif nullable:
            self.nullable_struct(type, place)
        else:
            part = self.fresh("m")
            self.struct(type, part)
            self.line(f"{place} = {part}")

    def nullable_struct(self, cls: StructType, place: str) -> None:
        """A negative byte in front is null."""
        flag, part = self.fresh("flag"), self.fresh("m")
        self.fixed("b", flag)
        self.flush()
        with self.block(f"if {flag} < 0"):
            self.line(f"{place} = None")
        with self.block("else"):
            self.struct(cls, part)
            self.flush()
            self.line(f"{place} = {part}")

    def length(self, code: str, long_form: str) -> str:
        """Read a length or count, -1 for null, into a new local name."""
        n = self.fresh("n")
        self.fixed("B" if self.flexible else code, n)
        self.flush()
        if self.flexible:
            with self.block(f"if {n} > 127"):
                self.line(f"{n}, pos = {long_form}(data, pos, {n})")
        return n

    @contextmanager
    def unless_null(self, n: str, place: str, nullable: bool) -> Iterator[None]:
        """Code inside runs only for a value that is not null; null is refused or becomes None."""
        with self.block(f"if not {n}" if self.flexible else f"if {n} < 0"):
            if not nullable:
                self.line(f"raise refuse_length({'-1' if self.flexible else n})")
            elif not self.flexible:
                with self.block(f"if {n} != -1"):
                    self.line(f"raise refuse_length({n})")
            if nullable:
                self.line(f"{place} = None")
        if not nullable:
            yield
            return
        with self.block("else"):
            yield

    def sized(self, type: Sized, place: str, nullable: bool) -> None:
        long_form = "long_string_length" if type is String else "long_uvarint"
        n = self.length(type.length_code, long_form)
        with self.unless_null(n, place, nullable):
            self.line(f"stop = pos + {n} - 1" if self.flexible else f"stop = pos + {n}")
            if type is String:
                text = (
                    "str(data[pos:stop], 'utf-8')" if self.has_views else "data[pos:stop].decode()"
                )
                self.line(f"{place} = {text}")
            elif type is Bytes and self.has_views:
                self.line(f"{place} = bytes(data[pos:stop])")
            else:
                self.line(f"{place} = data[pos:stop]")
            self.line("pos = stop")

    def array(self, element: Any, place: str, nullable: bool) -> None:
        n = self.length("i", "long_count")
        with self.unless_null(n, place, nullable):
            least = smallest(element, self.version, self.flexible)
            assert least > 0, f"elements of {self.label} may take no bytes"
            fixed = isinstance(element, Fixed) and element is not Uuid
            if self.flexible and fixed:
                self.line(f"{n} -= 1")
            count = f"{n} - 1" if self.flexible and not fixed else n
            # A compact count of several bytes has been compared with the limit by `long_count`.
            limit = "" if self.flexible else f" or {n} > {wire.MAX_ELEMENTS}"
            self.line(f"left -= {count}")
            with self.block(f"if ({count}) * {least} > end - pos or left < 0{limit}"):
                self.line(f"raise refuse_count({count}, end - pos, left)")
            if fixed:
                self.constant("unpack_from", struct.unpack_from)
                self.line(f"{place} = list(unpack_from(f'>{{{n}}}{element.code}', data, pos))")
                self.line(f"pos += {n} * {element.size}")
                return
            items, item = self.fresh("items"), self.fresh("item")
            self.line(f"{items} = {place} = []")
            with self.block(f"for _ in range({'1, ' if self.flexible else ''}{n})"):
                self.value_of(element, item)
                self.flush()
                self.line(f"{items}.append({item})")
                self.maybe_pause()

    def value_of(self, element: Any, item: str) -> None:
        """Read an element into a local name."""
        if isinstance(element, StructType):
            self.struct(element, item)
        else:
            self.value(element, item, False)

    def tagged_section(self, fields: list[Field], target: str) -> None:
        """Read the tags that are known here, skip the others (KIP-482)."""
        n = self.fresh("n")
        self.fixed("B", n)
        self.flush()
        with self.block(f"if {n}"):
            if not fields:
                self.line(f"left, pos = skip_tags(data, pos, {n}, end, left)")
                return
            tag, stop = self.fresh("tag"), self.fresh("stop")
            self.line(f"{n}, pos = tag_count(data, pos, {n}, end, left)")
            self.line(f"left -= {n}")
            with self.block(f"for _ in range({n})"):
                self.line(f"{tag}, pos, {stop} = tag_header(data, pos, end)")
                word = "if"
                for field in fields:
                    with self.block(f"{word} {tag} == {field.tag}"), self.inside(field.name):
                        nullable = self.version in field.nullable
                        self.value(field.type, f"{target}.{field.name}", nullable)
                        self.flush()
                        with self.block(f"if pos != {stop}"):
                            self.line(f"raise refuse_tag_size({tag}, pos, {stop})")
                    word = "elif"
                with self.block("else"):
                    self.line(f"pos = {stop}")


CALLED = (
    wire.refuse_length,
    wire.refuse_count,
    wire.refuse_tag_size,
    wire.refuse_end,
    wire.uuid_of,
    wire.long_uvarint,
    wire.long_count,
    wire.long_string_length,
    wire.tag_count,
    wire.tag_header,
    wire.skip_tags,
)
SIZES = {"?": 1, "b": 1, "B": 1, "h": 2, "i": 4, "q": 8, "d": 8, "16s": 16}
