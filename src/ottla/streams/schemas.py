"""Dataclasses as Spark's types, and JSON as dataclasses.

A dataclass is read and written by the names of its fields, and may hold others, lists and dicts.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

SCALARS: dict[Any, DataType] = {
    str: StringType(),
    int: LongType(),
    float: DoubleType(),
    bool: BooleanType(),
}


def spark_type(annotation: Any) -> DataType:
    """The type of a column that holds objects of an annotated type."""
    if annotation in SCALARS:
        return SCALARS[annotation]
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        hints = typing.get_type_hints(annotation)
        names = [field.name for field in dataclasses.fields(annotation)]
        return StructType([StructField(name, spark_type(hints[name])) for name in names])
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list:
        return ArrayType(spark_type(arguments[0]))
    if origin is dict and arguments[0] is str:
        return MapType(StringType(), spark_type(arguments[1]))
    inner = optional_of(annotation)
    if inner is not None:
        return spark_type(inner)
    raise TypeError(
        f"{annotation}: a field may be str, int, float, bool, a dataclass, list[...], "
        "dict[str, ...], or one of these or None"
    )


def optional_of(annotation: Any) -> Any:
    """X for `X | None`; None for everything else."""
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return None
    some = [each for each in typing.get_args(annotation) if each is not types.NoneType]
    return some[0] if len(some) == 1 else None


def constructed(annotation: Any, data: Any) -> Any:
    """Parsed JSON as an object of this type; fields that it lacks are None."""
    if data is None:
        return None
    annotation = optional_of(annotation) or annotation
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        hints = typing.get_type_hints(annotation)
        fields = [field.name for field in dataclasses.fields(annotation)]
        return annotation(**{name: constructed(hints[name], data.get(name)) for name in fields})
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list:
        return [constructed(arguments[0], each) for each in data]
    if origin is dict:
        return {name: constructed(arguments[1], each) for name, each in data.items()}
    return data


def plain(thing: Any) -> Any:
    """Dataclasses as dicts, at any depth: what can be written as JSON."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return dataclasses.asdict(thing)
    if isinstance(thing, Mapping):
        return {name: plain(each) for name, each in thing.items()}
    if isinstance(thing, (list, tuple)):
        return [plain(each) for each in thing]
    return thing
