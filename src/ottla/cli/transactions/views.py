"""`ottla transactions list`, `describe` and `describe-producers`, in Kafka's columns."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import CommandError
from ottla.cli.table import TEXT, print_table, show_rows
from ottla.cli.terminal import Terminal
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla import Admin

NONE: Final = "None"
CAPITAL: Final = re.compile(r"(?<=.)(?=[A-Z])")
LISTED: Final = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
DESCRIBED: Final = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
PRODUCERS: Final = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)


def list_transactions(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """A line for each transactional id that passes the filters."""
    try:
        found = admin.list_transactions(
            longer_than_ms=arguments.duration_filter,
            id_pattern=arguments.transactional_id_pattern,
        )
    except KafkaError as error:
        if error.error is not ErrorCode.INVALID_REGULAR_EXPRESSION:
            raise
        raise CommandError(
            f"'{arguments.transactional_id_pattern}' is no regular expression"
        ) from error
    _show(LISTED, found, arguments, terminal)
    if not found:
        terminal.remark("no transactions")


def describe_transaction(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Print one transactional id, with the partitions of its open transaction."""
    name = arguments.transactional_id
    found = admin.describe_transactions([name])[name]
    start_ms: object = NONE
    duration_ms: object = NONE
    if found.start_ms is not None:
        start_ms, duration_ms = found.start_ms, terminal.now_ms() - found.start_ms
    row = (
        found.coordinator_id,
        name,
        found.producer_id,
        found.producer_epoch,
        found.state,
        found.timeout_ms,
        start_ms,
        duration_ms,
        ",".join(map(str, sorted(found.partitions))),
    )
    _show(DESCRIBED, [row], arguments, terminal)


def describe_producers(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """A line for each producer that the partition knows."""
    partition = TopicPartition(arguments.topic, arguments.partition)
    rows = [
        (
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.last_sequence,
            producer.last_timestamp_ms,
            NONE
            if producer.transaction_start_offset is None
            else producer.transaction_start_offset,
        )
        for producer in admin.describe_producers([partition], arguments.broker_id)[partition]
    ]
    _show(PRODUCERS, rows, arguments, terminal)


def _show(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    arguments: Namespace,
    terminal: Terminal,
) -> None:
    """Kafka's columns, or the same values under names with underscores."""
    if arguments.format == TEXT:
        print_table(header, rows, terminal)
        return
    names = [CAPITAL.sub("_", name).lower() for name in header]
    named = [dict(zip(names, map(_or_none, row), strict=True)) for row in rows]
    show_rows(named, arguments.format, terminal)


def _or_none(value: object) -> object:
    return None if value == NONE else value
