"""Generates the function that writes one version of a message.

Values of fixed size are collected and packed in one go; everything goes to one bytearray, except
records, which are passed on as parts of their own.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from ottla.protocol import wire
from ottla.protocol.codegen import Source
from ottla.protocol.types import Array, Bytes, Field, Fixed, Records, Sized, String, Uuid

if TYPE_CHECKING:
    from ottla.protocol.message import Message, Struct


class EncoderSource(Source):
    """`encode(m, out, parts)`: `run` collects fixed-size values to be packed in one go."""

    def __init__(self, cls: type[Message], version: int) -> None:
        super().__init__("encode", "m, out, parts")
        self.version = version
        self.flexible = version in cls.flexible
        self.out = "out"
        self.run: list[tuple[str, str, str]] = []
        for function in (wire.RefusedError, wire.uvarint_bytes, wire.string_length_bytes):
            self.constant(function.__name__, function)
        self.constant("records_size", wire.records_size)
        self.constant("append_records", wire.append_records)
        self.constant("pack", struct.pack)
        self.struct(cls, "m")
        self.flush()
        self.line("return out")

    def fixed(self, code: str, value: str) -> None:
        self.run.append((code, value, self.label))

    def flush(self) -> None:
        """Pack the run that has been collected."""
        if self.run:
            packed, label = self.packed()
            self.line(f"{self.out} += {packed}", label)
            self.run = []

    def packed(self) -> tuple[str, str]:
        """An expression for the bytes of the run, and the fields in it."""
        codes = "".join(code for code, _, _ in self.run)
        values = [value for code, value, _ in self.run if code != "x"]
        label = ", ".join(dict.fromkeys(label for _, _, label in self.run if label))
        if not values:
            return repr(bytes(len(codes))), label
        return f"{self.layout('pack', codes)}({', '.join(values)})", label

    def struct(self, cls: type[Struct], source: str) -> None:
        tagged = []
        for field in cls.fields:
            value = f"{source}.{field.name}"
            with self.inside(field.name):
                if self.version not in field.versions:
                    self.absent(field, value)
                elif field.tag is not None:
                    tagged.append(field)
                else:
                    self.value(field.type, value, self.version in field.nullable)
        if self.flexible:
            self.tagged_section(tagged, source)

    def absent(self, field: Field, value: str) -> None:
        """Refuse a value that this version has no place for, unless it may be dropped."""
        if field.ignorable:
            return
        with self.block(f"if {self.differs(field, value)}"):
            self.line(
                f"raise RefusedError(f'{{{value}!r}} has no place in version {self.version}')"
            )

    def differs(self, field: Field, value: str) -> str:
        """A condition: the value is not the default."""
        if field.is_struct:
            inner = " or ".join(self.differs(f, f"{value}.{f.name}") for f in field.type.fields)
            return f"{value} is not None and ({inner})"
        if field.default is None:
            return f"{value} is not None"
        if field.is_list or not field.default:
            return value
        if field.type is Uuid:
            return f"{value} != {self.constant('NO_UUID', field.default)}"
        return f"{value} != {field.default!r}"

    def value(self, type: Any, value: str, nullable: bool) -> None:
        if type is Uuid:
            self.fixed(type.code, f"{value}.bytes")
        elif isinstance(type, Fixed):
            self.fixed(type.code, value)
        elif type is Records:
            self.records(value, nullable)
        elif isinstance(type, Sized):
            self.sized(type, value, nullable)
        elif isinstance(type, Array):
            self.array(type.element, value, nullable)
        else:
            part = self.fresh("m")
            self.line(f"{part} = {value}")
            self.struct(type, part)

    def length(self, code: str, size: str, absent: str | None, long_form: str) -> None:
        """Write a length or count; when the condition `absent` holds, that of null."""
        n = self.fresh("n")
        size = f"{size} + 1" if self.flexible else size
        null = "0" if self.flexible else "-1"
        self.line(f"{n} = {size}" if absent is None else f"{n} = {null} if {absent} else {size}")
        if not self.flexible:
            self.fixed(code, n)
            self.flush()
            return
        before, self.run = list(self.run), [*self.run, ("B", n, self.label)]
        with self.block(f"if {n} < 128"):
            if before:
                self.flush()
            else:
                self.line(f"{self.out}.append({n})")
        self.run = before
        with self.block("else"):
            self.flush()
            self.line(f"{self.out} += {long_form}({n})")
        self.run = []

    def sized(self, type: Sized, value: str, nullable: bool) -> None:
        s = self.fresh("s")
        self.line(f"{s} = {value}")
        if type is String:
            encoded = f"{s} = {s}.encode()"
            if nullable:
                with self.block(f"if {s} is not None"):
                    self.line(encoded)
            else:
                self.line(encoded)
        absent = f"{s} is None" if nullable else None
        long_form = "string_length_bytes" if type is String else "uvarint_bytes"
        self.length(type.length_code, f"len({s})", absent, long_form)
        if nullable:
            with self.block(f"if {s}"):
                self.line(f"{self.out} += {s}")
        else:
            self.line(f"{self.out} += {s}")

    def records(self, value: str, nullable: bool) -> None:
        r = self.fresh("r")
        self.line(f"{r} = {value}")
        absent = f"{r} is None" if nullable else None
        self.length(Bytes.length_code, f"records_size({r})", absent, "uvarint_bytes")
        with self.block(f"if {r} is not None"):
            self.line(f"{self.out} = append_records({self.out}, parts, {r})")

    def array(self, element: Any, value: str, nullable: bool) -> None:
        items = self.fresh("items")
        self.line(f"{items} = {value}")
        absent = f"{items} is None" if nullable else None
        self.length("i", f"len({items})", absent, "uvarint_bytes")
        if isinstance(element, Fixed) and element is not Uuid:
            with self.block(f"if {items}"):
                self.line(f"{self.out} += pack(f'>{{len({items})}}{element.code}', *{items})")
            return
        item = self.fresh("item")
        with self.block(f"for {item} in {items} or ()" if nullable else f"for {item} in {items}"):
            if isinstance(element, type):
                self.struct(element, item)
            else:
                self.value(element, item, False)
            self.flush()

    def tagged_section(self, fields: list[Field], source: str) -> None:
        """Write the tagged fields that differ from their defaults, by ascending tag (KIP-482)."""
        if not fields:
            self.run.append(("x", "", self.label))
            return
        self.flush()
        fields = sorted(fields, key=lambda field: field.tag or 0)
        present = [self.differs(field, f"{source}.{field.name}") for field in fields]
        count = self.fresh("n")
        self.line(f"{count} = 0")
        for condition in present:
            with self.block(f"if {condition}"):
                self.line(f"{count} += 1")
        self.line(f"{self.out}.append({count})")
        with self.block(f"if {count}"):
            for field, condition in zip(fields, present, strict=True):
                with self.block(f"if {condition}"), self.inside(field.name):
                    self.tagged_field(field, f"{source}.{field.name}")

    def tagged_field(self, field: Field, value: str) -> None:
        """Write one tagged field by way of a buffer of its own, since its size goes first."""
        outer, self.out = self.out, self.fresh("payload")
        self.line(f"{self.out} = bytearray()")
        self.value(field.type, value, self.version in field.nullable)
        self.flush()
        payload, self.out = self.out, outer
        tag = wire.uvarint_bytes(field.tag or 0)
        self.line(f"{outer} += {tag!r} + uvarint_bytes(len({payload})) + {payload}")
