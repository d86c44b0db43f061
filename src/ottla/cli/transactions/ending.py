"""`ottla transactions abort` and `force-terminate`: end stuck transactions."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from ottla.cli.command_error import CommandError
from ottla.cli.terminal import Terminal
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from ottla import Admin
    from ottla.clients.admin.transactions import HangingTransaction


def abort_transaction(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Write an abort marker into one partition, without the coordinator."""
    partition = TopicPartition(arguments.topic, arguments.partition)
    if arguments.start_offset is not None:
        hanging = _beginning_at(admin, partition, arguments.start_offset)
    else:
        hanging = _named(partition, arguments)
    admin.abort_transaction(hanging)


def force_terminate(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Have the coordinator abort what is open under the id, and fence its producer."""
    admin.fence_producers([arguments.transactional_id])


def _beginning_at(admin: Admin, partition: TopicPartition, offset: int) -> HangingTransaction:
    from ottla.clients.admin.transactions import HangingTransaction

    for producer in admin.describe_producers([partition])[partition]:
        if producer.transaction_start_offset == offset:
            return HangingTransaction(
                partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
            )
    raise CommandError(f"no open transaction begins at offset {offset} of partition {partition}")


def _named(partition: TopicPartition, arguments: Namespace) -> HangingTransaction:
    from ottla.clients.admin.transactions import HangingTransaction

    return HangingTransaction(
        partition,
        arguments.producer_id,
        arguments.producer_epoch,
        arguments.coordinator_epoch,
    )
