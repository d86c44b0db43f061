"""The process of one statement: `python -m ottla.console.sql_worker`, see `sql_query`.

It reads the topics, and only then hands the statement to DuckDB. That has its records in memory, no
file, no network and no setting that can be changed; this process can open nothing from then on.
"""

from __future__ import annotations

import asyncio
import json
import math
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import duckdb

from ottla.console.byte_reader import DEEPEST
from ottla.console.console_cluster import ConsoleCluster
from ottla.console.console_settings import ConsoleSettings
from ottla.console.masks import mask_of
from ottla.console.newest_first import Limits
from ottla.console.refusals import NotFound, Refused
from ottla.console.search_worker import LIMITS, SAY_EVERY_MS
from ottla.console.sql_query import SQL_MS
from ottla.console.sql_statement import (
    JSON_COLUMNS,
    NamedField,
    SqlStatement,
    column_name,
    quoted_name,
    quoted_text,
    statement_of,
)
from ottla.console.topic_tables import ReadTopic, TopicTables, text_of
from ottla.console.worker_process import do_job
from ottla.errors import KafkaError
from ottla.runtime.io_thread import run_in_thread
from ottla.runtime.runtime import real_runtime
from ottla.structs import IsolationLevel

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.runtime import Clock

MOST_MEMORY: Final = 1024 * 1024 * 1024
CAGE: Final = {
    "temp_directory": "",  # first: the next one forbids it
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "memory_limit": "256MB",
    "threads": "1",
}
RESULT_BYTES: Final = 16 * 1024 * 1024
"""As JSON."""
ROWS_AT_ONCE: Final = 1_000
INTEGERS: Final = frozenset({"BIGINT", "UBIGINT"})
NUMBERS: Final = INTEGERS | {"DOUBLE"}
CONTAINERS: Final = frozenset({"ARRAY", "OBJECT"})
NO_JSON: Final = "NO JSON"
"""The kind of all fields of a text that is none."""

Tables = Sequence["tuple[pa.Table, ReadTopic]"]
Say = Callable[[Mapping[str, Any]], object]


class ReadProgress:
    """Says now and then how many offsets were read of all topics that are, or were, read."""

    def __init__(self, say: Say, clock: Clock) -> None:
        self._say = say
        self._clock = clock
        self._topics: dict[str, tuple[int, int]] = {}
        self._said_ms = 0

    def note(self, topic: str, read: int, total: int) -> None:
        """So many were read of a topic."""
        self._topics[topic] = (read, total)
        if self._clock.monotonic_ms() - self._said_ms >= SAY_EVERY_MS:
            self.say_now()

    def say_now(self) -> None:
        """Say it."""
        self._said_ms = self._clock.monotonic_ms()
        read, total = (sum(each) for each in zip((0, 0), *self._topics.values(), strict=True))
        self._say({"read": read, "total": total})


def work(job: dict[str, Any], say: Say) -> None:
    """Run a statement; the answer has its rows, or the reason why there are none."""
    try:
        say(answer(job, say))
    except (Refused, NotFound) as error:
        near = getattr(error, "near", {})
        say({"error": error.message, "status": getattr(error, "status", 404), "near": near})
    except KafkaError as error:
        say({"error": error.message, "status": 502})
    except (duckdb.OutOfMemoryException, MemoryError):
        limit = CAGE["memory_limit"]
        say({"error": f"The statement needs more than {limit} of memory.", "status": 400})
    except duckdb.Error as error:
        say({"error": str(error).partition("\n\nLINE")[0], "status": 400})
    except RecursionError:
        say({"error": "The statement is nested too deep.", "status": 400})


def answer(job: dict[str, Any], say: Say) -> dict[str, Any]:
    """The rows of a statement, and how much of its topics it has read."""
    connection = duckdb.connect()
    for name, setting in CAGE.items():
        connection.execute(f"SET {name} = {quoted_text(setting)}")

    def parse(text: str) -> Mapping[str, Any]:
        ((found,),) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
        tree: dict[str, Any] = json.loads(found)
        return tree

    statement = statement_of(job["text"], parse, job["now_ms"])
    tables = asyncio.run(tables_of(job, statement, say))
    for table, topic in tables:
        connection.register(topic.topic, table)
    for name in statement.tables.keys() - {topic.topic for _, topic in tables}:
        # The statement names it itself, though maybe elsewhere; DuckDB has tables of its own.
        nothing = f"error({quoted_text(f'There is no topic {name}.')}) IS NULL"
        connection.execute(f"CREATE TEMP VIEW {quoted_name(name)} AS SELECT NULL WHERE {nothing}")
    connection.execute("SET lock_configuration = true")
    connection.execute("SELECT now()").fetchall()  # reads the time zone, for which files are opened
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    found = in_time(connection, partial(run, connection, statement, tables, job["count"]))
    return found | {"topics": [topic._asdict() for _, topic in tables]}


def in_time(
    connection: duckdb.DuckDBPyConnection, work: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    """The result of some work of DuckDB; Refused where it takes too long."""
    result = run_in_thread(work, "ottla-sql")
    try:
        return result.result(SQL_MS / 1000)
    except TimeoutError:
        connection.interrupt()
        raise Refused(f"The statement was stopped after {SQL_MS // 1000} s.") from None


def run(
    connection: duckdb.DuckDBPyConnection, statement: SqlStatement, tables: Tables, most: int
) -> dict[str, Any]:
    """The rows of a statement whose tables are there."""
    for field, kinds in kinds_of(connection, statement, tables).items():
        body = field.definition(type_of(kinds), NO_JSON not in kinds)
        connection.execute(f"CREATE MACRO {field.macro}(v) AS {body}")
    return rows_of(connection.execute(statement.text), most)


async def tables_of(job: dict[str, Any], statement: SqlStatement, say: Say) -> Tables:
    """The topics of a statement; those that it names itself may be none."""
    names = statement.tables
    if len({each.lower() for each in names}) < len(names):
        raise Refused("topics whose names differ by capital letters alone are read one at a time")
    runtime = real_runtime(asyncio.get_running_loop(), background_workers=1)
    settings = ConsoleSettings(
        job["client"]["bootstrap.servers"],
        client=job["client"],
        schema_registry=job["schema_registry"],
    )
    cluster = ConsoleCluster(runtime, settings)
    share = max(1, len(names))
    progress = ReadProgress(say, runtime.clock)
    tables = TopicTables(
        cluster,
        Limits(LIMITS.records // share, LIMITS.bytes // share, LIMITS.ms // share),
        [mask_of(each) for each in job["masks"]],
        IsolationLevel(job["isolation"]),
        statement.needs_headers,
        progress.note,
    )
    found = []
    try:
        for name, references in names.items():
            try:
                found.append(await tables.read(name, references))
            except NotFound:
                if name.lower() not in statement.named:
                    raise
        progress.say_now()
    finally:
        cluster.close()
        await runtime.close()
    return found


def kinds_of(
    connection: duckdb.DuckDBPyConnection, statement: SqlStatement, tables: Tables
) -> dict[NamedField, set[str]]:
    """The kinds of JSON that fields have in all records that were read."""
    kinds: dict[NamedField, set[str]] = {each: set() for each in statement.fields}
    for part in JSON_COLUMNS:
        fields = [each for each in kinds if each.part == part]
        paths = ", ".join(quoted_text(each.pointer) for each in fields)
        for _, topic in tables if fields else ():
            types = f"CASE WHEN json_valid({part}) THEN json_type({part}, [{paths}]) END"
            table = quoted_name(topic.topic)
            found = connection.execute(
                f"SELECT DISTINCT {types} FROM {table} WHERE {part} IS NOT NULL"
            )
            for (row,) in chunks(found):
                for field, kind in zip(fields, row or [NO_JSON] * len(fields), strict=True):
                    kinds[field] |= {kind} - {None}
    return kinds


def type_of(kinds: set[str]) -> str:
    """The type of a field whose values have these kinds of JSON; text where they are mixed."""
    kinds = kinds - {"NULL", NO_JSON}
    if kinds and kinds <= INTEGERS:
        return "HUGEINT" if "UBIGINT" in kinds else "BIGINT"
    if kinds and kinds <= NUMBERS:
        return "DOUBLE"
    if kinds and kinds <= CONTAINERS:
        return "JSON"
    return "BOOLEAN" if kinds == {"BOOLEAN"} else "VARCHAR"


def rows_of(found: duckdb.DuckDBPyConnection, most: int) -> dict[str, Any]:
    """The columns and the rows of a result, up to a number of rows and of bytes."""
    columns = [[column_name(name), str(kind)] for name, kind, *_ in found.description or ()]
    rows: list[list[Any]] = []
    size, is_cut = 0, False
    for row in chunks(found):
        is_cut = len(rows) >= most or size >= RESULT_BYTES
        if is_cut:
            break
        rows.append([*map(cell, row)])
        row_bytes = len(json.dumps(rows[-1]))
        if row_bytes > RESULT_BYTES:
            raise Refused(f"A row of the result has more than {RESULT_BYTES // 2**20} MB.")
        size += row_bytes
    return {"columns": columns, "rows": rows, "is_cut": is_cut}


def chunks(found: duckdb.DuckDBPyConnection) -> Iterator[Sequence[Any]]:
    """The rows of a result, which is not held as a whole."""
    while rows := found.fetchmany(ROWS_AT_ONCE):
        yield from rows


def cell(value: Any, depth: int = 0) -> Any:
    """A value of DuckDB as JSON has it; numbers beyond JSON, and all other types, are text.

    Refused where it is nested deeper than pages are made of: they go through it by recursion.
    """
    if depth > DEEPEST:
        raise Refused(f"A value of the result is nested deeper than {DEEPEST} levels.")
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return text_of(bytes(value))
    if isinstance(value, dict):
        return {str(cell(name, depth + 1)): cell(each, depth + 1) for name, each in value.items()}
    if isinstance(value, Iterable):
        return [cell(each, depth + 1) for each in value]
    return str(value)


if __name__ == "__main__":
    do_job(MOST_MEMORY, work)
