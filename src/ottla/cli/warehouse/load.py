"""`ottla warehouse load`: topics into a table, once or until Ctrl-C."""

from __future__ import annotations

import threading
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.command_error import CommandError, UsageError
from ottla.cli.interruption import interruptible
from ottla.cli.options import bootstrap_server, key_values
from ottla.cli.pipeline.errors import require_packages, spark_failures
from ottla.cli.terminal import Terminal, check_reachable
from ottla.cli.warehouse.arguments import place_of, source_options

if TYPE_CHECKING:
    from ottla.warehouse.loads import Table
    from ottla.warehouse.warehouse_load import Loaded, LoadOptions, WarehouseLoad

DEFAULT_PERIOD_S = 10
DEFAULT_LOG = "warehouse-spark.log"


def load(arguments: Namespace, terminal: Terminal) -> int:
    """A line for each commit, and one for the sum of them."""
    require_packages("deltalake")
    from ottla.pipelines.runner import spark_session
    from ottla.spark.data_loss import DataLossError
    from ottla.spark.given import OptionError
    from ottla.spark.lookup import OffsetLookup
    from ottla.warehouse.delta import DeltaHome
    from ottla.warehouse.places import WarehouseError
    from ottla.warehouse.plain_parquet import ParquetHome
    from ottla.warehouse.warehouse_load import WarehouseLoad

    options = load_options(arguments)
    check_reachable(bootstrap_server(arguments))
    log = Path(arguments.spark_log or DEFAULT_LOG)
    try:
        # A topic that is not there is told before Spark is started.
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
    """What to load; a mistake is reported before anything is started."""
    from ottla.spark.given import OptionError
    from ottla.warehouse.loads import Layout
    from ottla.warehouse.places import WarehouseError
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
    started_s = time.monotonic()
    sums = [0, 0]

    def show(loaded: Loaded) -> None:
        sums[0] += loaded.row_count
        sums[1] += 1
        terminal.print(
            f"{time.monotonic() - started_s:7.1f} s  version {loaded.version}: "
            f"{loaded.row_count:,} rows in {loaded.file_count} files"
        )
        terminal.out.flush()

    if arguments.continuous:
        terminal.print("loading until Ctrl-C")
        terminal.out.flush()
        with interruptible(is_over):
            while not is_over.is_set():
                loaded = work.step()
                if loaded is not None:
                    show(loaded)
                else:
                    is_over.wait(arguments.every or DEFAULT_PERIOD_S)
    else:
        terminal.print("loading what is there now")
        terminal.out.flush()
        work.run(show)
    seconds = time.monotonic() - started_s
    terminal.print(f"{sums[0]:,} rows in {sums[1]} commits, {sums[0] / seconds:,.0f} rows/s")
    return 0
