"""A SELECT over topics, in a process of its own: see `sql_statement` and `sql_worker`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from ottla.console.masks import mask_text
from ottla.console.record_search import SEARCH_GRACE_MS, SEARCH_MS
from ottla.console.refusals import NotFound, Refused
from ottla.console.worker_process import WorkerProcess, module
from ottla.structs import IsolationLevel, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.console.console_settings import ConsoleSettings
    from ottla.console.page import Visit

SQL_MS: Final = 10_000
"""How long DuckDB may take; reading the topics may take as long as a search."""
NUMBERS: Final = ("INTEGER", "UINTEGER", "DOUBLE", "FLOAT", "DECIMAL")
TIMES: Final = ("TIME", "DATE")
WORKER: Final = WorkerProcess(module("sql_worker"), ("rows", "error"), "statement")


class SqlColumn(NamedTuple):
    """A column of a result, with DuckDB's type."""

    name: str
    type: str

    @property
    def is_number(self) -> bool:
        """Whether its values are compared by their size."""
        return self.type.endswith("INT") or (
            self.type.startswith(NUMBERS) and not self.type.endswith("]")
        )

    @property
    def is_time(self) -> bool:
        """Whether its values are times, which stay on one line."""
        return self.type.startswith(TIMES) and not self.type.endswith("]")


class SqlResult(NamedTuple):
    """The rows of a statement by the names of their columns, and how much of topics was read."""

    columns: list[SqlColumn]
    rows: list[dict[str, Any]]
    is_cut: bool
    """Whether there are more rows."""
    topics: list[dict[str, Any]]
    """The fields of `topic_tables.ReadTopic` of each topic."""
    ms: int


def has_sql(settings: ConsoleSettings) -> bool:
    """Whether statements are run: records are shown, and the packages of `ottla[sql]` are there."""
    return not settings.hide_records and bool(find_spec("duckdb") and find_spec("pyarrow"))


async def run_sql(
    visit: Visit,
    text: str,
    count: int,
    on_progress: Callable[[dict[str, int]], object] = lambda said: None,
) -> SqlResult:
    """The first rows of a statement; Refused or NotFound for one that cannot be run."""
    cluster, clock = visit.cluster, visit.cluster.runtime.clock
    committed = visit.query.get("committed") == "1"
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    job = {
        "client": cluster.client_settings,
        "text": text,
        "now_ms": clock.now_ms(),
        "isolation": int(isolation),
        "schema_registry": cluster.schema_registry,
        "masks": [mask_text(each) for each in visit.settings.masks],
        "count": count,
    }
    limit_s = (SEARCH_MS + SQL_MS + SEARCH_GRACE_MS) / 1000
    began_ms = clock.monotonic_ms()
    async with cluster.limits.searching(cluster.user):
        try:
            found = await WORKER.run(job, limit_s, on_progress)
        except TimeoutError:
            raise Refused(f"The statement was stopped after {limit_s:.0f} s.") from None
    if "error" in found:
        raise failure(found)
    columns = named_columns(found["columns"])
    names = [each.name for each in columns]
    rows = [dict(zip(names, row, strict=True)) for row in found["rows"]]
    ms = clock.monotonic_ms() - began_ms
    return SqlResult(columns, rows, found["is_cut"], found["topics"], ms)


def failure(found: Mapping[str, Any]) -> Refused | NotFound:
    """The reason of a worker why there are no rows."""
    if found["status"] == 404:
        return NotFound(found["error"], found["near"])
    return Refused(found["error"], found["status"])


def named_columns(columns: Sequence[Sequence[str]]) -> list[SqlColumn]:
    """The columns of a result; a name that stands twice gets a number."""
    found: dict[str, SqlColumn] = {}
    for name, kind in columns:
        number, own = 1, name
        while own in found:
            number += 1
            own = f"{name}_{number}"
        found[own] = SqlColumn(own, kind)
    return [*found.values()]
