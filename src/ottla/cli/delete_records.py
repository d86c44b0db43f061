"""`ottla delete-records`: drop the records of partitions below an offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError
from ottla.cli.options import add_bootstrap_server, add_command_config, bootstrap_server, require
from ottla.cli.partition_files import read_document, rows_of, topic_of, whole
from ottla.cli.property_files import command_settings
from ottla.cli.topic_views import leaders_of
from ottla.config.whole_number import LARGEST
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from ottla import Admin
    from ottla.cli.terminal import Terminal


class DeleteRecordsCommand(Command):
    """Moves the start of partitions up to the offsets that a JSON file names."""

    name = "delete-records"
    examples = (
        "ottla delete-records --bootstrap-server localhost:9092 --offset-json-file offsets.json",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_bootstrap_server(parser)
        add_command_config(parser)
        parser.add_argument(
            "--offset-json-file",
            metavar="FILE",
            help='Required. {"partitions": [{"topic": "t", "partition": 0, "offset": 10}], '
            '"version": 1}; the offset -1 stands for the end of the log.',
        )

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        require(arguments, "--offset-json-file")
        servers = bootstrap_server(arguments)
        offsets = read_offsets(arguments.offset_json_file)
        with terminal.admin(servers, command_settings(arguments)) as admin:
            terminal.print("Executing records delete operation")
            results = delete_records(admin, offsets)
        terminal.print("Records delete operation completed:")
        failed = 0
        for partition in sorted(results):
            result = results[partition]
            if isinstance(result, KafkaError):
                failed = 1
                terminal.print(f"partition: {partition}\terror: {result}")
            else:
                terminal.print(f"partition: {partition}\tlow_watermark: {result}")
        return failed


def delete_records(
    admin: Admin, offsets: dict[TopicPartition, int]
) -> dict[TopicPartition, int | KafkaError]:
    """The new start of each partition, or why it has none."""
    leaders = leaders_of(admin, {partition.topic for partition in offsets})
    no_leader = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "it does not have a leader")
    found: dict[TopicPartition, int | KafkaError] = {
        partition: no_leader for partition in offsets if leaders.get(partition, 0) < 0
    }
    asked = {each: offset for each, offset in offsets.items() if each not in found}
    try:
        found |= admin.delete_records(asked) if asked else {}
    except KafkaError as error:
        results: dict[TopicPartition, int | KafkaError] | None = getattr(error, "results", None)
        if not results:
            raise
        found |= results
    return found


def read_offsets(path: str) -> dict[TopicPartition, int]:
    """The offset of each partition in the file, which names each partition once."""
    document = read_document(path)
    rows = rows_of(path, document, "partitions")
    found: dict[TopicPartition, int] = {}
    for number, row in enumerate(rows, 1):
        try:
            partition = TopicPartition(topic_of(row), whole(row["partition"]))
            offset = whole(row["offset"], -1, LARGEST)
        except (KeyError, TypeError):
            raise CommandError(
                f"{path}: entry {number} of partitions must have a topic, a partition and an "
                f"offset, which are whole numbers for which there is room: {row}"
            ) from None
        if partition in found:
            raise CommandError(f"{path}: {partition} is named twice")
        found[partition] = offset
    return found
