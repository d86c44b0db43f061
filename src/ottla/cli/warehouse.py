"""`ottla warehouse`: tables filled from topics, and their upkeep."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError, require_packages
from ottla.cli.options import (
    LARGEST_INT,
    Options,
    add_bootstrap_server,
    add_flag,
    add_integer,
    add_repeated,
    check_action,
    forbid_with,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ottla.cli.terminal import Terminal


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
        require_for(action)
        from ottla.cli.warehouse_loading import load
        from ottla.cli.warehouse_tables import ACTIONS

        return (ACTIONS | {"load": load})[action](arguments, terminal)


def require_for(action: str) -> None:
    """Raise CommandError unless the packages of an action are installed: all but load do without
    Spark, and without Java."""
    if action == "load":
        require_packages("deltalake")
    elif find_spec("deltalake") is None:
        raise CommandError("deltalake missing: pip install 'ottla[spark]'")


def check_options(arguments: Namespace) -> None:
    """Raise UsageError for an option that the action does not have."""
    action = arguments.action
    check_action(arguments, action, NEEDS, TAKES)
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
        least=1,
    )
    add_integer(
        parser,
        "--min-tasks",
        "N",
        "Cut a load into so many tasks at least. Default: one for each partition.",
        least=1,
        most=LARGEST_INT,
    )
    add_flag(
        parser,
        "--accept-new-topic",
        "Load a topic that was deleted and created again from its beginning into the same table; "
        "without this it is refused.",
    )


def _add_pace_options(parser: Options) -> None:
    """Options that say until when a load runs, and how often it compacts its table."""
    add_flag(parser, "--once", "Load what is there now, and end. This is the default.")
    add_flag(parser, "--continuous", "Load until Ctrl-C.")
    add_integer(
        parser,
        "--every",
        "SECONDS",
        "Look for new records so often (--continuous). Default: 10.",
        least=1,
        most=LARGEST_INT,
    )

    add_integer(
        parser,
        "--compact-every",
        "N",
        "Merge small files after so many commits (delta). Default: never; `compact` does it.",
        least=1,
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
        least=1,
    )
    add_integer(
        parser,
        "--retain-hours",
        "N",
        "vacuum: keep what a version of the last so many hours uses, and younger files. "
        "Default: 168.",
        least=0,
        most=LARGEST_INT,
    )
    add_flag(parser, "--delete", "vacuum: delete the files; else they are only shown.")
    add_integer(parser, "--limit", "N", "history: so many commits. Default: 20.", least=1)
    parser.add_argument("--sql", metavar="QUERY", help="query: SQL over the table `records`.")
    add_integer(
        parser,
        "--at-version",
        "N",
        "query: this version of the table. Default: the newest.",
        least=0,
    )
