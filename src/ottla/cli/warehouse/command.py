"""`ottla warehouse`: the options, and which action they ask for."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from ottla.cli.command import Command, UsageError
from ottla.cli.options import add_bootstrap_server, given, require
from ottla.cli.terminal import Terminal

# What each action needs, and what it understands beside that.
NEEDS = {
    "load": ("--bootstrap-server", "--table"),
    "rewind": ("--bootstrap-server", "--table", "--to"),
    "compact": ("--table",),
    "vacuum": ("--table",),
    "history": ("--table",),
    "query": ("--table", "--sql"),
}
LOAD_OPTIONS = (
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
    "--continuous",
    "--once",
    "--every",
    "--master",
    "--conf",
    "--spark-log",
    "--source-option",
)
TAKES = {
    "load": LOAD_OPTIONS,
    "rewind": ("--topic", "--topics", "--name", "--source-option"),
    "compact": ("--target-size",),
    "vacuum": ("--format", "--retain-hours", "--delete"),
    "history": ("--limit",),
    "query": ("--at-version",),
}
EVERYWHERE = ("--storage-option",)


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
            "`vacuum` files that nobody needs, show the `history`, or `query` with SQL.",
        )
        _add_places(parser)
        _add_load_options(parser)
        _add_spark_options(parser)
        _add_table_options(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        action: str = arguments.action
        check_options(arguments)
        if action == "load":
            from ottla.cli.warehouse.load import load

            return load(arguments, terminal)
        from ottla.cli.warehouse import tables

        tables.require_deltalake()
        actions = {
            "rewind": tables.rewind,
            "compact": tables.compact_table,
            "vacuum": tables.vacuum_table,
            "history": tables.show_history,
            "query": tables.query,
        }
        return actions[action](arguments, terminal)


def check_options(arguments: Namespace) -> None:
    """An option that an action does not know is a mistake, not something to pass over."""
    action = arguments.action
    require(arguments, *NEEDS[action])
    known = {*NEEDS[action], *TAKES[action], *EVERYWHERE}
    every = {option for options in (*NEEDS.values(), *TAKES.values()) for option in options}
    for option in sorted(every - known):
        if given(arguments, option):
            raise UsageError(f"{option} does not go with {action}")
    for option in ("--max-records", "--min-tasks", "--every", "--limit", "--target-size"):
        number = getattr(arguments, option.lstrip("-").replace("-", "_"))
        if number is not None and number < 1:
            raise UsageError(f"{option} {number}: must be at least 1")
    if action == "load" and given(arguments, "--continuous") and given(arguments, "--once"):
        raise UsageError("option --continuous cannot be used with option --once")


def _add_places(parser: ArgumentParser) -> None:
    add_bootstrap_server(parser)
    parser.add_argument(
        "--table",
        metavar="PLACE",
        help="Required. The table: a folder, or an address such as s3://bucket/table.",
    )
    parser.add_argument(
        "--storage-option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="A setting to get into object storage, as delta-rs names them; may be repeated.",
    )
    parser.add_argument(
        "--name",
        metavar="NAME",
        help="Whose offsets in the table are meant: each name reads the topics for itself. "
        "Default: warehouse.",
    )
    parser.add_argument("--topic", metavar="NAME,...", help="The topics to load.")
    parser.add_argument(
        "--topics", metavar="REGEX", help="Load the topics whose whole name matches."
    )
    parser.add_argument(
        "--source-option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="An option of Spark's source, such as kafka.security.protocol=SSL or "
        "failOnDataLoss=false; may be repeated.",
    )


def _add_load_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        metavar="FORMAT",
        choices=("delta", "parquet"),
        help="load, vacuum: delta, or parquet: a folder of plain files, with less to hold on to. "
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
        help="Whose day or hour. Default: timestamp, which is the record's.",
    )
    parser.add_argument(
        "--headers", action="store_true", help="Keep the headers of records, in a column."
    )
    parser.add_argument(
        "--max-records",
        metavar="N",
        type=int,
        help="A commit has about so many records at most. Default: all there are.",
    )
    parser.add_argument(
        "--min-tasks",
        metavar="N",
        type=int,
        help="Cut a load into so many tasks at least. Default: one for each partition.",
    )
    parser.add_argument(
        "--once", action="store_true", help="Load what is there now, and end. This is the default."
    )
    parser.add_argument("--continuous", action="store_true", help="Load until Ctrl-C.")
    parser.add_argument(
        "--every",
        metavar="SECONDS",
        type=int,
        help="Look for new records so often (--continuous). Default: 10.",
    )


def _add_spark_options(parser: ArgumentParser) -> None:
    parser.add_argument("--master", metavar="URL", help="Spark's master. Default: local[2].")
    parser.add_argument(
        "--conf",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="A setting of Spark; may be repeated.",
    )
    parser.add_argument(
        "--spark-log", metavar="PATH", help="Where Spark logs to. Default: warehouse-spark.log."
    )


def _add_table_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--to",
        metavar="WHERE",
        help="rewind: to earliest, a time, or offsets as JSON. Rows from there on are deleted, and "
        "the next load reads their records again.",
    )
    parser.add_argument(
        "--target-size",
        metavar="BYTES",
        type=int,
        help="compact: how large files should become. Default: what the table says, or 100 MB.",
    )
    parser.add_argument(
        "--retain-hours",
        metavar="N",
        type=int,
        help="vacuum: keep what versions of so many hours need, and what is younger. Default: 168.",
    )
    parser.add_argument(
        "--delete", action="store_true", help="vacuum: delete the files; else they are only shown."
    )
    parser.add_argument(
        "--limit", metavar="N", type=int, help="history: so many commits. Default: 20."
    )
    parser.add_argument("--sql", metavar="QUERY", help="query: SQL over the table `records`.")
    parser.add_argument(
        "--at-version", metavar="N", type=int, help="query: the table as it was. Default: as it is."
    )
