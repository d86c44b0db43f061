"""`ottla warehouse`: tables filled from topics, and what is done with them."""

from __future__ import annotations

import os
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError, require_packages, spark_failures
from ottla.cli.options import (
    Options,
    add_bootstrap_server,
    add_flag,
    add_integer,
    add_repeated,
    bootstrap_server,
    check_action,
    forbid_with,
    key_values,
    one_of,
)
from ottla.cli.terminal import Progress, Terminal, check_reachable, interruptible

if TYPE_CHECKING:
    from ottla.warehouse.loads import Table
    from ottla.warehouse.table_location import Place
    from ottla.warehouse.warehouse_load import Loaded, LoadOptions, WarehouseLoad


# The options that each action needs, and those that it may have.
NEEDS = {
    "load": ("--table",),
    "rewind": ("--table", "--to"),
    "compact": ("--table",),
    "vacuum": ("--table",),
    "history": ("--table",),
    "query": ("--table", "--sql"),
}
LOAD_OPTIONS = (
    "--bootstrap-server",
    "--topic",
    "--topics",
    "--format",
    "--name",
    "--from",
    "--fields",
    "--partition-by",
    "--time-column",
    "--headers",
    "--max-records",
    "--min-tasks",
    "--accept-new-topic",
    "--continuous",
    "--once",
    "--every",
    "--compact-every",
    "--master",
    "--conf",
    "--spark-log",
    "--source-option",
)
TAKES = {
    "load": LOAD_OPTIONS,
    "rewind": ("--bootstrap-server", "--topic", "--topics", "--name", "--source-option"),
    "compact": ("--target-size",),
    "vacuum": ("--format", "--retain-hours", "--delete"),
    "history": ("--limit",),
    "query": ("--at-version",),
}


class WarehouseCommand(Command):
    """Loads topics into tables and looks after the tables; only `load` needs Spark."""

    name = "warehouse"
    help = "Load topics into Delta tables (or Parquet), each record once; query and compact them."
    examples = (
        "ottla warehouse load --bootstrap-server localhost:9092 --topic pages --table lake/pages "
        "--partition-by day",
        "ottla warehouse query --table lake/pages --sql 'SELECT day, count(*) FROM records "
        "GROUP BY day'",
        "ottla warehouse rewind --bootstrap-server localhost:9092 --topic pages "
        "--table lake/pages --to 2026-03-02T08:00:00Z",
        "ottla warehouse compact --table lake/pages",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "action",
            metavar="ACTION",
            choices=tuple(NEEDS),
            help="`load` topics, `rewind` a load to an earlier offset, `compact` small files, "
            "`vacuum` unused files, show the `history`, or `query` with SQL.",
        )
        _add_places(parser)
        loads = parser.add_argument_group("load")
        _add_load_options(loads)
        _add_pace_options(loads)
        _add_spark_options(parser.add_argument_group("load: Spark"))
        _add_table_options(parser.add_argument_group("rewind, compact, vacuum, history, query"))

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        action: str = arguments.action
        check_options(arguments)
        if action == "load":
            return load(arguments, terminal)

        require_deltalake()
        actions = {
            "rewind": rewind,
            "compact": compact_table,
            "vacuum": vacuum_table,
            "history": show_history,
            "query": query,
        }
        return actions[action](arguments, terminal)


def check_options(arguments: Namespace) -> None:
    """Raise UsageError for an option that the action does not have."""
    action = arguments.action
    check_action(arguments, action, NEEDS, TAKES)
    for option in (
        *("--max-records", "--min-tasks", "--every", "--compact-every"),
        *("--limit", "--target-size"),
    ):
        number = getattr(arguments, option.lstrip("-").replace("-", "_"))
        if number is not None and number < 1:
            raise UsageError(f"{option} {number}: must be at least 1")
    forbid_with(arguments, "--continuous", ("--once",))
    if arguments.compact_every is not None and arguments.format == "parquet":
        raise UsageError("--compact-every is for Delta tables; plain Parquet stays as it is")


def _add_places(parser: Options) -> None:
    add_bootstrap_server(parser)
    parser.add_argument(
        "--table",
        metavar="PLACE",
        help="Required. The table: a folder, or an address such as s3://bucket/table.",
    )
    add_repeated(
        parser,
        "--storage-option",
        "KEY=VALUE",
        "A setting for access to object storage, as delta-rs names it; may be repeated.",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="The name of the load: each name has offsets of its own in the table. "
        "Default: warehouse.",
    )
    parser.add_argument("--topic", metavar="NAME,...", help="The topics to load.")
    parser.add_argument(
        "--topics", metavar="REGEX", help="Load the topics whose whole name matches."
    )
    add_repeated(
        parser,
        "--source-option",
        "KEY=VALUE",
        "An option of Spark's source, such as kafka.security.protocol=SSL or "
        "failOnDataLoss=false; may be repeated.",
    )


def _add_load_options(parser: Options) -> None:
    parser.add_argument(
        "--format",
        metavar="FORMAT",
        choices=("delta", "parquet"),
        help="load, vacuum: delta, or parquet: a folder of plain files, with fewer guarantees. "
        "Default: delta.",
    )
    parser.add_argument(
        "--from",
        dest="from",
        metavar="WHERE",
        help="Where the first load of a name begins: earliest, latest, a time "
        "(2026-03-02T08:00:00Z or ms since 1970), or offsets as JSON. Default: earliest.",
    )
    parser.add_argument(
        "--fields",
        metavar="DDL",
        help="Columns to read from values that are JSON: 'path string, status int, time "
        "timestamp'. A table gets columns that it does not have.",
    )
    parser.add_argument(
        "--partition-by",
        metavar="WHAT",
        choices=("none", "day", "hour"),
        help="none, day, or hour (columns day and hour). Default: none.",
    )
    parser.add_argument(
        "--time-column",
        metavar="NAME",
        help="The column that gives day and hour. Default: timestamp, which is the record's.",
    )
    add_flag(parser, "--headers", "Keep the headers of records, in a column.")
    add_integer(
        parser,
        "--max-records",
        "N",
        "A commit has about so many records at most. Default: all there are.",
    )
    add_integer(
        parser,
        "--min-tasks",
        "N",
        "Cut a load into so many tasks at least. Default: one for each partition.",
    )
    add_flag(
        parser,
        "--accept-new-topic",
        "Load a topic that was deleted and created again from its beginning into the same table; "
        "without this it is refused.",
    )


def _add_pace_options(parser: Options) -> None:
    """Options that say until when a load runs, and what it does between two commits."""
    add_flag(parser, "--once", "Load what is there now, and end. This is the default.")
    add_flag(parser, "--continuous", "Load until Ctrl-C.")
    add_integer(
        parser, "--every", "SECONDS", "Look for new records so often (--continuous). Default: 10."
    )

    add_integer(
        parser,
        "--compact-every",
        "N",
        "Merge small files after so many commits (delta). Default: never; `compact` does it.",
    )


def _add_spark_options(parser: Options) -> None:
    parser.add_argument("--master", metavar="URL", help="Spark's master. Default: local[2].")
    add_repeated(parser, "--conf", "KEY=VALUE", "A setting of Spark; may be repeated.")
    parser.add_argument(
        "--spark-log", metavar="PATH", help="Where Spark logs to. Default: warehouse-spark.log."
    )


def _add_table_options(parser: Options) -> None:
    parser.add_argument(
        "--to",
        metavar="WHERE",
        help="rewind: to earliest, a time, or offsets as JSON. Rows from there on are deleted, and "
        "the next load reads their records again.",
    )
    add_integer(
        parser,
        "--target-size",
        "BYTES",
        "compact: how large files should become. Default: what the table says, or 100 MB.",
    )
    add_integer(
        parser,
        "--retain-hours",
        "N",
        "vacuum: keep what a version of the last so many hours uses, and younger files. "
        "Default: 168.",
    )
    add_flag(parser, "--delete", "vacuum: delete the files; else they are only shown.")
    add_integer(parser, "--limit", "N", "history: so many commits. Default: 20.")
    parser.add_argument("--sql", metavar="QUERY", help="query: SQL over the table `records`.")
    add_integer(
        parser, "--at-version", "N", "query: this version of the table. Default: the newest."
    )


# The table, topics and start that the arguments name.


def place_of(arguments: Namespace) -> Place:
    """Where the table is."""
    from ottla.warehouse.table_location import Place

    return Place.of(arguments.table, key_values(arguments.storage_option))


def source_options(arguments: Namespace, start: str, option: str) -> dict[str, str]:
    """Brokers, topics and starting offsets, as options of Spark's source."""
    from ottla.pipelines.execution import Start

    topics = (
        {"subscribe": arguments.topic}
        if one_of(arguments, ("--topic", "--topics")) == "--topic"
        else {"subscribePattern": arguments.topics}
    )
    try:
        begin = Start.parse(start).options
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    return {
        "kafka.bootstrap.servers": bootstrap_server(arguments),
        **topics,
        **begin,
        **key_values(arguments.source_option),
    }


# `ottla warehouse load`: topics into a table, once or until Ctrl-C.


DEFAULT_PERIOD_S = 10
DEFAULT_LOG = "warehouse-spark.log"


def load(arguments: Namespace, terminal: Terminal) -> int:
    """Load, and print a line for each commit and one for all of them."""
    require_packages("deltalake")
    from ottla.config.connect_config import SPARK_CONF
    from ottla.pipelines.runner import spark_session
    from ottla.spark.lookup import OffsetLookup
    from ottla.spark.options import OptionError
    from ottla.spark.readers import DataLossError
    from ottla.warehouse.delta import DeltaHome
    from ottla.warehouse.plain_parquet import ParquetHome
    from ottla.warehouse.table_location import WarehouseError
    from ottla.warehouse.warehouse_load import WarehouseLoad

    options = load_options(arguments)
    check_reachable(bootstrap_server(arguments))
    log = Path(arguments.spark_log or DEFAULT_LOG)
    try:
        # A missing topic is reported before Spark is started.
        OffsetLookup(options.source_options()).partitions(must_exist=True)
        home: Table = (ParquetHome if arguments.format == "parquet" else DeltaHome)(
            place_of(arguments)
        )
        terminal.print("starting Spark")
        terminal.out.flush()
        spark = spark_session(
            f"ottla warehouse {options.name}",
            master=arguments.master or "local[2]",
            settings=key_values([*os.environ.get(SPARK_CONF, "").splitlines(), *arguments.conf]),
            short_run=not arguments.continuous,
            log_path=log,
        )
        try:
            with spark_failures(log):
                return _run(WarehouseLoad(spark, home, options), arguments, terminal)
        finally:
            spark.stop()
    except (WarehouseError, DataLossError, OptionError) as error:
        raise CommandError(str(error)) from error


def load_options(arguments: Namespace) -> LoadOptions:
    """The load that is asked for; mistakes are reported before anything is started."""
    from ottla.spark.options import OptionError
    from ottla.warehouse.loads import Layout
    from ottla.warehouse.table_location import WarehouseError
    from ottla.warehouse.warehouse_load import DEFAULT_NAME, LoadOptions

    layout = Layout(
        fields=arguments.fields or "",
        partition_by=arguments.partition_by or "none",
        time_column=arguments.time_column or "timestamp",
        with_headers=arguments.headers,
    )
    source = source_options(arguments, getattr(arguments, "from") or "earliest", "--from")
    try:
        options = LoadOptions(
            source,
            arguments.name or DEFAULT_NAME,
            layout,
            arguments.max_records,
            arguments.min_tasks,
            arguments.accept_new_topic,
        )
        options.source_options()
    except (OptionError, WarehouseError) as error:
        raise UsageError(str(error)) from None
    return options


def _run(work: WarehouseLoad, arguments: Namespace, terminal: Terminal) -> int:
    is_over = threading.Event()
    with terminal.progress("loading", "rows") as progress:
        commits = Commits(terminal, progress)
        every = arguments.compact_every
        tidy = Compaction(place_of(arguments), every, terminal) if every is not None else None

        def on_loaded(loaded: Loaded) -> None:
            commits.add(loaded)
            if tidy is not None:
                tidy.after_commit()

        if arguments.continuous:
            terminal.print("loading until Ctrl-C")
            terminal.out.flush()
            with interruptible(is_over):
                while not is_over.is_set():
                    loaded = work.step()
                    if loaded is not None:
                        on_loaded(loaded)
                    else:
                        is_over.wait(arguments.every or DEFAULT_PERIOD_S)
        else:
            terminal.print("loading what is there now")
            terminal.out.flush()
            work.run(on_loaded)
        commits.print_sum()
    return 0


class Compaction:
    """Merges small files after every so many commits.

    A load does not fail where that fails: what is not merged now is merged the next time.
    """

    def __init__(self, place: Place, every: int, terminal: Terminal) -> None:
        self._place = place
        self._every = every
        self._terminal = terminal
        self._commits = 0

    def after_commit(self) -> None:
        from deltalake.exceptions import DeltaError

        from ottla.warehouse.delta import compact

        self._commits += 1
        if self._commits % self._every:
            return
        try:
            done = compact(self._place)
        except DeltaError as error:
            self._terminal.print(f"not compacted this time: {error}")
            return
        if done.files_before:
            self._terminal.print(f"{done.files_before} files became {done.files_after}")


class Commits:
    """Prints a line for each commit, or a bar at a terminal, and one for the sum."""

    def __init__(self, terminal: Terminal, progress: Progress) -> None:
        self.terminal = terminal
        self.progress = progress
        self.started_s = time.monotonic()
        self.rows = 0
        self.count = 0
        self.lost_times = 0

    def add(self, loaded: Loaded) -> None:
        self.rows += loaded.row_count
        self.count += 1
        self.lost_times += loaded.lost_times
        if self.progress.is_shown:
            share = self.rows / (self.rows + loaded.left) if self.rows else None
            self.progress.show(self.rows, share, f"  version {loaded.version}")
            return
        self.terminal.print(
            f"{time.monotonic() - self.started_s:7.1f} s  version {loaded.version}: "
            f"{loaded.row_count:,} rows in {loaded.file_count} files"
        )
        self.terminal.out.flush()

    def print_sum(self) -> None:
        seconds = time.monotonic() - self.started_s
        rate = self.rows / seconds
        self.terminal.print(f"{self.rows:,} rows in {self.count} commits, {rate:,.0f} rows/s")
        if self.lost_times:
            self.terminal.print(
                f"{self.lost_times:,} rows have no timestamp: that of their record is outside the "
                "years 1 to 9999 (a producer that sends microseconds as milliseconds?)"
            )


# The actions on existing tables, which need no Spark.


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


def require_deltalake() -> None:
    from importlib.util import find_spec

    if find_spec("deltalake") is None:
        raise CommandError("deltalake missing: pip install 'ottla[spark]'")


@contextmanager
def table_failures() -> Iterator[None]:
    """Turn what tables and delta-rs raise into one line."""
    from deltalake.exceptions import DeltaError

    from ottla.warehouse.table_location import WarehouseError

    try:
        yield
    except (WarehouseError, DeltaError) as error:
        raise CommandError(str(error)) from error


def rewind(arguments: Namespace, terminal: Terminal) -> int:
    """Remove rows and reset offsets in one commit; the next load continues from there."""
    from ottla.spark.lookup import OffsetLookup
    from ottla.spark.options import SourceOptions
    from ottla.warehouse.delta import DeltaHome
    from ottla.warehouse.warehouse_load import DEFAULT_NAME

    options = SourceOptions.for_batch(source_options(arguments, arguments.to, "--to"))
    check_reachable(bootstrap_server(arguments))
    lookup = OffsetLookup(options)
    to = lookup.offsets(options.starting, lookup.partitions(must_exist=True))
    with table_failures():
        snapshot, name = DeltaHome(place_of(arguments)).snapshot(), arguments.name
        ids = lookup.topic_ids({each.topic for each in to})
        snapshot.check_rewind(name or DEFAULT_NAME, to, ids, lookup.earliest(to))
        back = snapshot.rewind(name or DEFAULT_NAME, to)
    for where, (before, after) in back.items():
        terminal.print(f"{where}: from offset {before} back to {after}")
    if not back:
        terminal.print("nothing has been loaded from there on")
    return 0


def compact_table(arguments: Namespace, terminal: Terminal) -> int:
    from ottla.warehouse.delta import compact

    with table_failures():
        done = compact(place_of(arguments), arguments.target_size)
    terminal.print(f"{done.files_before} files became {done.files_after}")
    return 0


def vacuum_table(arguments: Namespace, terminal: Terminal) -> int:
    from ottla.warehouse.delta import DEFAULT_RETENTION_H, vacuum
    from ottla.warehouse.plain_parquet import ParquetHome

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
    from ottla.warehouse.delta import history

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
    from ottla.pipelines.tables import ResultTable
    from ottla.warehouse.delta import sql

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
