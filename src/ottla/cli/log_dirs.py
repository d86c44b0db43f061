"""`ottla log-dirs`: the log directories of the brokers, as JSON."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.command import Command
from ottla.cli.command_error import answers
from ottla.cli.options import (
    add_bootstrap_server,
    add_command_config,
    add_flag,
    bootstrap_server,
    check_brokers,
    integers,
    require,
)
from ottla.cli.property_files import command_settings
from ottla.cli.table import TEXT, add_format, show_rows

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Mapping

    from ottla.cli.terminal import Terminal
    from ottla.clients.admin.log_dirs import LogDirDescription, LogDirs


NO_TOPIC: Final[dict[str, Any]] = {
    "topic": None,
    "partitions": 0,
    "bytes": 0,
    "of_disk": None,
    "offset_lag": 0,
    "moving": False,
    "replicas": [],
}
"""What a row has for a directory that has failed: nobody knows what is in it."""


class LogDirsCommand(Command):
    """Asks brokers for their log directories and the sizes of the replicas in them."""

    name = "log-dirs"
    examples = ("ottla log-dirs --bootstrap-server localhost:9092 --describe --topic-list test",)

    def add_arguments(self, parser: ArgumentParser) -> None:
        # Here --broker-list has a meaning of its own, as in Kafka's script.
        add_bootstrap_server(parser, older_names=())
        add_command_config(parser)
        add_format(parser)
        add_flag(parser, "--describe", "Describe the log directories; required.")
        parser.add_argument(
            "--topic-list", metavar="NAMES", help="Only these topics, with commas between."
        )
        parser.add_argument(
            "--broker-list", metavar="IDS", help="Only these brokers, with commas between."
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        require(arguments, "--describe")
        servers = bootstrap_server(arguments)
        listed = arguments.broker_list
        wanted = integers(listed, "--broker-list") if listed else None
        topics = {name for name in (arguments.topic_list or "").split(",") if name}
        with terminal.admin(servers, command_settings(arguments)) as admin:
            alive = sorted(node.id for node in admin.describe_cluster().nodes)
            brokers = alive if wanted is None else wanted
            check_brokers(brokers, alive)
            described, failed = answers(admin.describe_log_dirs, brokers)
        for broker, error in failed.items():
            terminal.note(f"Error: no log directories of broker {broker}: {error}")
        if arguments.format != TEXT:
            show_rows(topic_rows(described, topics), arguments.format, terminal)
            return 1 if failed else 0
        terminal.print(
            "Querying brokers for log directories information\n"
            "Received log directory information from brokers " + ",".join(map(str, described))
        )
        rows = [
            {"broker": broker, "logDirs": [row(*each, topics) for each in sorted(dirs.items())]}
            for broker, dirs in described.items()
        ]
        document = {"version": 1, "brokers": rows}
        terminal.print(json.dumps(document, separators=(",", ":")))
        return 1 if failed else 0


def topic_rows(described: Mapping[int, LogDirs], topics: set[str]) -> list[dict[str, Any]]:
    """A row for each topic in a directory, the largest first, and for each failed directory."""
    rows = [
        row
        for broker, dirs in sorted(described.items())
        for path, found in sorted(dirs.items())
        for row in dir_rows(broker, path, found, topics)
    ]
    return sorted(rows, key=lambda row: -row["bytes"])


def dir_rows(
    broker: int, path: str, found: LogDirDescription, topics: set[str]
) -> Iterator[dict[str, Any]]:
    """A row for each topic that has replicas in the directory; one without a topic if it failed."""
    error = found.error.name if found.error else None
    shown = {"broker": broker, "log_dir": path}
    if error is not None:
        yield {**shown, **NO_TOPIC, "error": error}
    for topic, replicas in groupby(sorted(found.replicas.items()), key=lambda each: each[0].topic):
        if topics and topic not in topics:
            continue
        mine = list(replicas)
        size = sum(replica.size_in_bytes for _, replica in mine)
        yield {
            **shown,
            "topic": topic,
            "partitions": len(mine),
            "bytes": size,
            "of_disk": f"{size / found.total_bytes:.2%}" if found.total_bytes > 0 else None,
            "offset_lag": sum(replica.offset_lag for _, replica in mine),
            "moving": any(replica.is_future for _, replica in mine),
            "error": error,
            "replicas": [{"partition": p.partition, **replica._asdict()} for p, replica in mine],
        }


def row(path: str, described: LogDirDescription, topics: set[str]) -> dict[str, Any]:
    """A directory with its replicas, under Kafka's names."""
    return {
        "logDir": path,
        "error": described.error.name if described.error else None,
        "partitions": [
            {
                "partition": str(partition),
                "size": replica.size_in_bytes,
                "offsetLag": replica.offset_lag,
                "isFuture": replica.is_future,
            }
            for partition, replica in sorted(described.replicas.items())
            if not topics or partition.topic in topics
        ],
    }
