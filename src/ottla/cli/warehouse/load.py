"""`ottla warehouse load`: topics into a table, once or until Ctrl-C."""

from __future__ import annotations

import threading
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.options import bootstrap_server, key_values
from ottla.cli.pipeline.errors import require_packages, spark_failures
from ottla.cli.terminal import Progress, Terminal, check_reachable, interruptible
from ottla.cli.warehouse.arguments import place_of, source_options

if TYPE_CHECKING:
    from ottla.warehouse.loads import Table
    from ottla.warehouse.warehouse_load import Loaded, LoadOptions, WarehouseLoad

DEFAULT_PERIOD_S = 10
DEFAULT_LOG = "warehouse-spark.log"


def load(arguments: Namespace, terminal: Terminal) -> int:
    """Load, and print a line for each commit and one for all of them."""
    require_packages("deltalake")
    from ottla.pipelines.runner import spark_session
    from ottla.spark.data_loss import DataLossError
    from ottla.spark.lookup import OffsetLookup
    from ottla.spark.option_parsing import OptionError
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
            settings=key_values(arguments.conf),
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
    from ottla.spark.option_parsing import OptionError
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
        )
        options.source_options()
    except (OptionError, WarehouseError) as error:
        raise UsageError(str(error)) from None
    return options


def _run(work: WarehouseLoad, arguments: Namespace, terminal: Terminal) -> int:
    is_over = threading.Event()
    with terminal.progress("loading", "rows") as progress:
        commits = Commits(terminal, progress)
        if arguments.continuous:
            terminal.print("loading until Ctrl-C")
            terminal.out.flush()
            with interruptible(is_over):
                while not is_over.is_set():
                    loaded = work.step()
                    if loaded is not None:
                        commits.add(loaded)
                    else:
                        is_over.wait(arguments.every or DEFAULT_PERIOD_S)
        else:
            terminal.print("loading what is there now")
            terminal.out.flush()
            work.run(commits.add)
        commits.print_sum()
    return 0


class Commits:
    """Prints a line for each commit, or a bar at a terminal, and one for the sum."""

    def __init__(self, terminal: Terminal, progress: Progress) -> None:
        self.terminal = terminal
        self.progress = progress
        self.started_s = time.monotonic()
        self.rows = 0
        self.count = 0

    def add(self, loaded: Loaded) -> None:
        self.rows += loaded.row_count
        self.count += 1
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
