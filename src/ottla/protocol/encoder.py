"""Generates the function that writes one version of a message.

Values of fixed size are collected and packed in one go; everything goes to one bytearray, except
records, which are passed on as parts of their own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ottla.protocol import wire
from ottla.protocol.codegen import FunctionSource
from ottla.protocol.types import Array, Field, Fixed, Records, Sized, String, StructType, Uuid

MAX_MESSAGE_LENGTH = 1000
"""The letters of an error's text that are sent: it may quote a peer; strings end at 32767 bytes."""


class EncoderSource(FunctionSource):
    """`encode(m, out, parts)`: `run` collects fixed-size values to be packed in one go."""

    def __init__(self, cls: StructType, version: int, in_slices: bool = False) -> None:
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
        if in_slices:
            self.begin_slices()
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

    def struct(self, cls: StructType, source: str) -> None:
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
        """Refuse a set value of a field that this version lacks, unless it is ignorable."""
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
            return f"({value} is not None and ({inner}))"
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
            if nullable:
                self.nullable_struct(type, part)
            else:
                self.struct(type, part)

    def nullable_struct(self, cls: StructType, part: str) -> None:
        """A byte says whether there is a struct: 1, or -1 for null."""
        self.flush()
        with self.block(f"if {part} is None"):
            self.line(f"{self.out}.append(255)")
        with self.block("else"):
            self.line(f"{self.out}.append(1)")
            self.struct(cls, part)
            self.flush()

    @contextmanager
    def unless_null(self, value: str, code: str, nullable: bool) -> Iterator[None]:
        """Code inside writes a value that is not None; the length of null is written here."""
        if not nullable:
            yield
            return
        before = list(self.run)
        with self.block(f"if {value} is None"):
            self.fixed("x" if self.flexible else code, "-1")
            self.flush()
        self.run = before
        with self.block("else"):
            yield
            self.flush()

    def length(self, code: str, size: str, long_form: str) -> None:
        """Write a length or count: on its own in the compact form, if it takes several bytes."""
        if not self.flexible:
            self.fixed(code, size)
            self.flush()
            return
        n = self.fresh("n")
        self.line(f"{n} = {size} + 1")
        before = list(self.run)
        with self.block(f"if {n} < 128"):
            if before:
                self.fixed("B", n)
                self.flush()
            else:
                self.line(f"{self.out}.append({n})")
        self.run = before
        with self.block("else"):
            self.flush()
            self.line(f"{self.out} += {long_form}({n})")

    def sized(self, type: Sized, value: str, nullable: bool) -> None:
        s = self.fresh("s")
        cut = f"[:{MAX_MESSAGE_LENGTH}]" if value.endswith("error_message") else ""
        encoded = f"{cut}.encode()" if type is String else ""
        self.line(f"{s} = {value}{'' if nullable else encoded}")
        with self.unless_null(s, type.length_code, nullable):
            if nullable and encoded:
                self.line(f"{s} = {s}{encoded}")
            long_form = "string_length_bytes" if type is String else "uvarint_bytes"
            self.length(type.length_code, f"len({s})", long_form)
            self.line(f"{self.out} += {s}")

    def records(self, value: str, nullable: bool) -> None:
        r = self.fresh("r")
        self.line(f"{r} = {value}")
        with self.unless_null(r, Records.length_code, nullable):
            self.length(Records.length_code, f"records_size({r})", "uvarint_bytes")
            self.line(f"{self.out} = append_records({self.out}, parts, {r})")

    def array(self, element: Any, value: str, nullable: bool) -> None:
        items = self.fresh("items")
        self.line(f"{items} = {value}")
        with self.unless_null(items, "i", nullable):
            self.length("i", f"len({items})", "uvarint_bytes")
            if isinstance(element, Fixed) and element is not Uuid:
                with self.block(f"if {items}"):
                    packed = f"pack(f'>{{len({items})}}{element.code}', *{items})"
                    self.line(f"{self.out} += {packed}")
                return
            item = self.fresh("item")
            with self.block(f"for {item} in {items}"):
                if isinstance(element, StructType):
                    self.struct(element, item)
                else:
                    self.value(element, item, False)
                self.flush()
                self.maybe_pause()

    def tagged_section(self, fields: list[Field], source: str) -> None:
        """Write the tagged fields that differ from their defaults, by ascending tag (KIP-482)."""
        if not fields:
            self.fixed("x", "0")
            return
        self.flush()
        fields = sorted(fields, key=lambda field: field.tag or 0)
        present = [self.differs(field, f"{source}.{field.name}") for field in fields]
        with self.block(f"if {' or '.join(present)}"):
            counts = " + ".join(f"(1 if {condition} else 0)" for condition in present)
            self.line(f"{self.out}.append({counts})")
            for field, condition in zip(fields, present, strict=True):
                with self.block(f"if {condition}"), self.inside(field.name):
                    self.tagged_field(field, f"{source}.{field.name}")
        with self.block("else"):
            self.line(f"{self.out}.append(0)")

    def tagged_field(self, field: Field, value: str) -> None:
        """Write one tagged field by way of a buffer of its own, since its size goes first."""
        outer, self.out = self.out, self.fresh("payload")
        self.line(f"{self.out} = bytearray()")
        self.value(field.type, value, self.version in field.nullable)
        self.flush()
        payload, self.out = self.out, outer
        tag = wire.uvarint_bytes(field.tag or 0)
        self.line(f"{outer} += {tag!r} + uvarint_bytes(len({payload})) + {payload}")
