"""The actions of `ottla warehouse` on tables that exist, which need no Spark."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from deltalake.exceptions import DeltaError

from ottla.cli.command_error import CommandError
from ottla.cli.options import bootstrap_server
from ottla.cli.terminal import Terminal, check_reachable
from ottla.cli.warehouse_loading import place_of, source_options
from ottla.pipelines.tables import ResultTable
from ottla.spark.lookup import OffsetLookup
from ottla.spark.options import SourceOptions
from ottla.warehouse.delta import DeltaHome, history, sql
from ottla.warehouse.delta_maintenance import DEFAULT_RETENTION_H, compact, vacuum
from ottla.warehouse.plain_parquet import ParquetHome
from ottla.warehouse.table_location import WarehouseError
from ottla.warehouse.warehouse_load import DEFAULT_NAME

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator

DEFAULT_LIMIT = 20
PRINTED_ROWS = 1000
# The facts of a commit, in the order in which they are shown.
FACTS = (
    "ottla.load",
    "ottla.number",
    "ottla.batch",
    "ottla.rows",
    "ottla.files",
    "ottla.offsets.from",
    "ottla.offsets.to",
    "ottla.order",
    "ottla.rewound.to",
)


@contextmanager
def table_failures() -> Iterator[None]:
    """Turn the exceptions of tables and delta-rs into one line."""
    try:
        yield
    except (WarehouseError, DeltaError) as error:
        raise CommandError(str(error)) from error


def rewind(arguments: Namespace, terminal: Terminal) -> int:
    """Remove rows and reset offsets in one commit; the next load continues from there."""
    options = SourceOptions.for_batch(source_options(arguments, arguments.to, "--to"))
    check_reachable(bootstrap_server(arguments))
    lookup = OffsetLookup(options)
    to = lookup.offsets(options.starting, lookup.partitions(must_exist=True))
    with table_failures():
        snapshot, name = DeltaHome(place_of(arguments)).snapshot(), arguments.name
        ids = lookup.topic_ids({each.topic for each in to})
        snapshot.check_rewind(name or DEFAULT_NAME, to, ids, lookup.earliest(to))
        back = snapshot.rewind(name or DEFAULT_NAME, to, ids)
    for where, (before, after) in back.items():
        terminal.print(f"{where}: from offset {before} back to {after}")
    if not back:
        terminal.print("nothing has been loaded from there on")
    return 0


def compact_table(arguments: Namespace, terminal: Terminal) -> int:
    with table_failures():
        done = compact(place_of(arguments), arguments.target_size)
    terminal.print(f"{done.files_before} files became {done.files_after}")
    return 0


def vacuum_table(arguments: Namespace, terminal: Terminal) -> int:
    hours = DEFAULT_RETENTION_H if arguments.retain_hours is None else arguments.retain_hours
    with table_failures():
        place = place_of(arguments)
        if arguments.format == "parquet":
            found = ParquetHome(place).vacuum(hours, delete=arguments.delete)
        else:
            found = vacuum(place, hours, delete=arguments.delete)
    for path in found:
        terminal.print(path)
    what = "deleted" if arguments.delete else "could be deleted (--delete)"
    terminal.print(f"{len(found)} {what}")
    return 0


def show_history(arguments: Namespace, terminal: Terminal) -> int:
    with table_failures():
        commits = history(place_of(arguments), arguments.limit or DEFAULT_LIMIT)
    for each in commits:
        moment = datetime.fromtimestamp(each["timestamp_ms"] / 1000, UTC)
        facts = each["facts"]
        said = "".join(
            f"  {key.removeprefix('ottla.')}={facts[key]}" for key in FACTS if key in facts
        )
        terminal.print(
            f"{each['version']:6}  {moment:%Y-%m-%dT%H:%M:%SZ}  {each['operation']}{said}"
        )
    return 0


def query(arguments: Namespace, terminal: Terminal) -> int:
    """The rows that an SQL query finds, as text."""
    with table_failures():
        place = place_of(arguments)
        try:
            found = sql(
                place.uri,
                arguments.sql,
                version=arguments.at_version,
                storage_options=place.storage_options,
            )
        except (ValueError, RuntimeError) as error:
            raise CommandError(f"--sql: {error}") from error
    terminal.print(ResultTable(found.column_names, found.to_pylist()).as_text(PRINTED_ROWS))
    return 0


ACTIONS: Final[dict[str, Callable[[Namespace, Terminal], int]]] = {
    "rewind": rewind,
    "compact": compact_table,
    "vacuum": vacuum_table,
    "history": show_history,
    "query": query,
}
