"""`ottla transactions list`, `describe` and `describe-producers`, in Kafka's columns."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import CommandError
from ottla.cli.terminal import Terminal
from ottla.cli.transactions.table import print_table
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla import Admin

NONE: Final = "None"
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
    print_table(LISTED, found, terminal)


def describe_transaction(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """One transactional id, with the partitions of what is open."""
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
    print_table(DESCRIBED, [row], terminal)


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
    print_table(PRODUCERS, rows, terminal)
