"""`ottla warehouse load`: topics into a table, once or until Ctrl-C."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError

from ottla.cli.command_error import CommandError, UsageError, spark_failures
from ottla.cli.options import bootstrap_server, key_values, one_of
from ottla.cli.terminal import Progress, Terminal, check_reachable, interruptible
from ottla.config.connect_config import SPARK_CONF
from ottla.pipelines.execution import Start
from ottla.pipelines.runner import spark_session
from ottla.spark.data_loss import DataLossError
from ottla.spark.lookup import OffsetLookup
from ottla.spark.options import OptionError, whole_name
from ottla.warehouse.delta import DeltaHome
from ottla.warehouse.delta_maintenance import compact
from ottla.warehouse.layout import Layout
from ottla.warehouse.plain_parquet import ParquetHome
from ottla.warehouse.table_location import Place, WarehouseError
from ottla.warehouse.warehouse_load import DEFAULT_NAME, Loaded, LoadOptions, WarehouseLoad

if TYPE_CHECKING:
    from argparse import Namespace

    from ottla.warehouse.loads import Table


def place_of(arguments: Namespace) -> Place:
    """Where the table is."""
    return Place.of(arguments.table, key_values(arguments.storage_option))


def source_options(arguments: Namespace, start: str, option: str) -> dict[str, str]:
    """Brokers, topics and starting offsets, as options of Spark's source."""
    topics = (
        {"subscribe": arguments.topic}
        if one_of(arguments, ("--topic", "--topics")) == "--topic"
        else {"subscribePattern": whole_name(arguments.topics)}
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


DEFAULT_PERIOD_S = 10
DEFAULT_LOG = "warehouse-spark.log"


def load(arguments: Namespace, terminal: Terminal) -> int:
    """Load, and print a line for each commit and one for all of them."""
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

    A load does not fail where that fails: files that are not merged now are merged the next time.
    """

    def __init__(self, place: Place, every: int, terminal: Terminal) -> None:
        self._place = place
        self._every = every
        self._terminal = terminal
        self._commits = 0

    def after_commit(self) -> None:
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
