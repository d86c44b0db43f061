"""Values whose schemas a schema registry has, in the wire format of Confluent.

A value begins with a byte 0 and the number of its schema in four bytes. Schemas never change, so
that each is asked for once; one that is not there is asked for again after a minute.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.connect_rest import ConnectRefusedError, ConnectRest
from ottla.console.avro_values import AvroSchema
from ottla.console.decoding import AVRO, JSON, parse_exactly
from ottla.structs import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ottla.console.console_cluster import ConsoleCluster

HEAD_BYTES: Final = 5
MOST_KNOWN: Final = 1_000
MOST_ASKED: Final = 20
"""Schemas that one page asks for."""
LIMIT_S: Final = 3
ASKING_MS: Final = 1_000 * LIMIT_S
"""After so long a page asks for no further schema: a slow registry would take so long for each."""
FORGET_MS: Final = 60_000
LONGEST_SCHEMA: Final = 1024 * 1024


class SchemaReader(NamedTuple):
    """What reads the bytes that have one schema, and the kind of their values."""

    kind: str
    value_of: Callable[[bytes], Any]


class SchemaRegistry:
    """The schemas of a registry that were used last, as functions from bytes to a value."""

    def __init__(self, cluster: ConsoleCluster) -> None:
        self._cluster = cluster
        self._rest = ConnectRest(cluster.schema_registry, LIMIT_S)
        self._known: dict[int, tuple[int, SchemaReader | None]] = {}
        self._asking = asyncio.Lock()

    async def prepare(self, values: Iterable[bytes | None]) -> bool:
        """Ask for the schemas of some keys and values, as far as they are not known.

        Returns whether there was no time for some: these are asked for by the pages that follow.
        """
        clock = self._cluster.runtime.clock
        async with self._asking:
            now_ms = clock.monotonic_ms()
            wanted = {number for data in values if (number := schema_number(data))}
            missing = [each for each in wanted if not self._is_known(each, now_ms)]
            for number in sorted(missing)[:MOST_ASKED]:
                if clock.monotonic_ms() - now_ms >= ASKING_MS:
                    break
                try:
                    read = await self._ask(number)
                except OSError:  # nothing answers: the others would wait as long
                    self._known |= dict.fromkeys(missing, (now_ms, None))
                    break
                self._known[number] = (now_ms, read)
            while len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
            return not all(self._is_known(each, now_ms) for each in missing)

    def value_of(self, data: bytes) -> tuple[str, Any]:
        """The kind and the value of some bytes; ValueError where no schema fits."""
        _, read = self._known.get(schema_number(data), (0, None))
        if read is None:
            raise ValueError("no schema is known of this value")
        return read.kind, read.value_of(data[HEAD_BYTES:])

    def _is_known(self, number: int, now_ms: int) -> bool:
        at_ms, read = self._known.get(number, (-FORGET_MS, None))
        return read is not None or now_ms - at_ms < FORGET_MS

    async def _ask(self, number: int) -> SchemaReader | None:
        def read() -> SchemaReader | None:
            return reader_of(self._rest.ask("GET", f"/schemas/ids/{number}"))

        try:  # a long schema is read by the thread that has waited for it
            return await self._cluster.limits.calls.run(read)
        except (ConnectRefusedError, ValueError):
            return None


def schema_number(data: bytes | None) -> int:
    """The number of the schema with which some bytes begin; 0 where they do not."""
    if data is None or len(data) <= HEAD_BYTES or data[0]:
        return 0
    return int.from_bytes(data[1:HEAD_BYTES])


def reader_of(answer: Any) -> SchemaReader | None:
    """The reader of a registry's answer; None for a type of schema that is not read here.

    Raises ValueError for one of Avro that is none, or needs others.
    """
    schema = answer.get("schema") if isinstance(answer, dict) else None
    if not isinstance(schema, str) or len(schema) > LONGEST_SCHEMA:
        return None
    kind = answer.get("schemaType", "AVRO")
    if kind == "JSON":
        return SchemaReader(JSON, parse_exactly)
    return SchemaReader(AVRO, AvroSchema(schema).value_of) if kind == "AVRO" else None
