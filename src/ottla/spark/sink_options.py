"""The options of the sink, and the columns that it writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from ottla.spark.options import Given, OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options as the writers of tasks need them; `topic` is None where a column has it."""

    topic: str | None
    include_headers: bool
    exactly_once: bool
    transactional_id_prefix: str
    client: Mapping[str, str]

    @classmethod
    def for_batch(cls, options: Mapping[str, str]) -> SinkOptions:
        """The options of `df.write`."""
        given = Given(options, (*SINK_OPTIONS, *OF_SPARK), DECIDED_BY_SINK)
        if given.flag("exactlyOnce", False):
            shown = given.shown("exactlyOnce")
            raise OptionError(f"{shown}: only streams can; a batch is written at least once")
        return cls._of(given, False)

    @classmethod
    def for_stream(cls, options: Mapping[str, str]) -> SinkOptions:
        """The options of `df.writeStream`."""
        given = Given(options, (*SINK_OPTIONS, *OF_SPARK), DECIDED_BY_SINK)
        return cls._of(given, given.flag("exactlyOnce", True))

    @classmethod
    def _of(cls, given: Given, exactly_once: bool) -> SinkOptions:
        # Invalid settings raise here, before anything is written.
        given.check_settings("producer", **({"transactional.id": "x"} if exactly_once else {}))
        topic = given["topic"].strip() if "topic" in given else None
        if topic == "":
            raise OptionError("topic=: must be the name of a topic")
        name = "transactionalIdPrefix"
        return cls(
            topic,
            given.flag("includeHeaders", True),
            exactly_once,
            given[name] if name in given else SINK_DEFAULTS[name],
            given.client_settings(),
        )


SINK_OPTIONS: Final[dict[str, str]] = {
    "topic": "The topic of all rows; it goes before a column `topic`.",
    "includeHeaders": "Whether a column `headers` is written.",
    "exactlyOnce": (
        "Whether a stream writes in transactions, so that each record is there once for readers "
        "with `isolation.level=read_committed`; `false`: at least once, without transactions."
    ),
    "transactionalIdPrefix": (
        "How the names of a stream's transactions and of the group of its decisions begin; the "
        "query's id follows."
    ),
}
SINK_DEFAULTS: Final[dict[str, str]] = {
    "includeHeaders": "true",
    "exactlyOnce": "true",
    "transactionalIdPrefix": "ottla-spark",
}
# Options that Spark adds to those of a sink, or takes for itself.
OF_SPARK: Final = ("checkpointLocation", "queryName", "path", "outputMode")
DECIDED_BY_SINK: Final[dict[str, str]] = {
    "kafka.key.serializer": "keys are strings or binaries, and written as they are",
    "kafka.value.serializer": "values are strings or binaries, and written as they are",
    "kafka.transactional.id": "the sink makes its own; see the option transactionalIdPrefix",
    "kafka.interceptor.classes": "the sink writes whole batches, not single records",
    "kafka.partitioner.class": "give rows a column `partition` instead",
}
HEADERS_FORM: Final = "an array of structs of `key`, a string, and `value`, a binary"
WHOLE_NUMBERS: Final = (ByteType, ShortType, IntegerType, LongType)


def check_schema(schema: StructType, options: SinkOptions) -> None:
    """Refuse rows that cannot become records; columns of other names are left out."""
    columns = {field.name.lower(): field.dataType for field in schema.fields}
    if "value" not in columns:
        found = ", ".join(field.name for field in schema.fields) or "none"
        raise OptionError(f"columns {found}: there must be a column `value`")
    for name in ("value", "key"):
        if not isinstance(columns.get(name, BinaryType()), (BinaryType, StringType)):
            raise _wrong(name, columns[name], "a string or a binary")
    if options.topic is None:
        if "topic" not in columns:
            raise OptionError("topic: set the option, or give every row a column `topic`")
        if not isinstance(columns["topic"], StringType):
            raise _wrong("topic", columns["topic"], "a string")
    if not isinstance(columns.get("partition", IntegerType()), WHOLE_NUMBERS):
        raise _wrong("partition", columns["partition"], "a whole number")
    if "headers" in columns and options.include_headers and not _are_headers(columns["headers"]):
        raise _wrong("headers", columns["headers"], HEADERS_FORM)


def _wrong(name: str, found: DataType, rule: str) -> OptionError:
    return OptionError(f"column {name}: must be {rule}, and is {found.simpleString()}")


def _are_headers(found: DataType) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    fields = found.elementType.fields
    return (
        [field.name.lower() for field in fields] == ["key", "value"]
        and isinstance(fields[0].dataType, StringType)
        and isinstance(fields[1].dataType, BinaryType)
    )
