"""`ottla transactions`: the actions of kafka-transactions.sh, in its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.cli.command import Command
from ottla.cli.command_error import CommandError, UsageError, listed
from ottla.cli.hanging_transactions import find_hanging
from ottla.cli.options import (
    LARGEST_INT,
    LARGEST_SHORT,
    add_bootstrap_server,
    add_command_config,
    add_integer,
    bootstrap_server,
    check_action,
    given,
    require,
)
from ottla.cli.property_files import command_settings
from ottla.cli.table import add_format, show_columns
from ottla.cli.topic_views import note_no_coordinators
from ottla.clients.admin.transactions import HangingTransaction
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TRANSACTIONS_TOPIC, TopicPartition

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from ottla import Admin
    from ottla.cli.terminal import Terminal


FORCE_TERMINATE: Final = "force-terminate"
# Apache Kafka 4.1 alone writes this action, and its option, in another way than all the others.
SPELLINGS: Final = {"forceTerminateTransaction": FORCE_TERMINATE}
REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "list": (),
    "describe": ("--transactional-id",),
    "describe-producers": ("--topic", "--partition"),
    "abort": ("--topic", "--partition"),
    "find-hanging": (),
    FORCE_TERMINATE: ("--transactional-id",),
}
OPTIONAL: Final[dict[str, tuple[str, ...]]] = {
    "list": ("--duration-filter", "--transactional-id-pattern"),
    "describe-producers": ("--broker-id",),
    "abort": ("--start-offset", "--producer-id", "--producer-epoch", "--coordinator-epoch"),
    "find-hanging": ("--broker-id", "--max-transaction-timeout", "--topic", "--partition"),
}


class TransactionsCommand(Command):
    """Shows transactions and producers, and ends transactions that hang."""

    name = "transactions"
    examples = (
        "ottla transactions --bootstrap-server localhost:9092 list",
        "ottla transactions --bootstrap-server localhost:9092 describe --transactional-id till-1",
        "ottla transactions --bootstrap-server localhost:9092 find-hanging --broker-id 0",
        "ottla transactions --bootstrap-server localhost:9092 abort --topic test --partition 0"
        " --start-offset 1234",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "action",
            metavar="ACTION",
            choices=[*REQUIRED, *SPELLINGS],
            help=f"{', '.join(REQUIRED)}; Kafka's {', '.join(SPELLINGS)} is known as well.",
        )
        add_bootstrap_server(parser)
        add_command_config(parser)
        add_format(parser)
        _add_choice(parser)
        _add_transaction(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        action = SPELLINGS.get(arguments.action, arguments.action)
        check(action, arguments)
        servers = bootstrap_server(arguments)
        with terminal.admin(servers, command_settings(arguments)) as admin:
            return _run(action, admin, arguments, terminal) or 0


def _run(action: str, admin: Admin, arguments: Namespace, terminal: Terminal) -> int | None:
    runs: dict[str, Callable[[Admin, Namespace, Terminal], int | None]] = {
        "list": list_transactions,
        "describe": describe_transaction,
        "describe-producers": describe_producers,
        "abort": abort_transaction,
        "find-hanging": find_hanging,
        FORCE_TERMINATE: force_terminate,
    }
    return runs[action](admin, arguments, terminal)


def _add_choice(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--transactional-id",
        "--transactionalId",
        dest="transactional_id",
        metavar="ID",
        help="describe, force-terminate: the transactional id.",
    )
    add_integer(
        parser,
        "--duration-filter",
        "MS",
        "list: only transactions that have been open for longer than this; all if below 0.",
    )
    parser.add_argument(
        "--transactional-id-pattern",
        metavar="REGEX",
        help="list: only transactional ids that this regular expression matches as a whole.",
    )
    parser.add_argument("--topic", metavar="TOPIC", help="The topic; for find-hanging not needed.")
    add_integer(
        parser,
        "--partition",
        "P",
        "The partition; for find-hanging not needed.",
        least=0,
        most=LARGEST_INT,
    )
    add_integer(
        parser,
        "--broker-id",
        "ID",
        "describe-producers: ask this replica in place of the leader. find-hanging: search "
        "the partitions of this broker.",
        least=0,
        most=LARGEST_INT,
    )
    add_integer(
        parser,
        "--max-transaction-timeout",
        "MINUTES",
        "find-hanging: only producers that have written nothing for longer than this; 15 "
        "if missing, which is the default of the brokers' transaction.max.timeout.ms.",
        least=0,
        most=LARGEST_INT,
    )


def _add_transaction(parser: ArgumentParser) -> None:
    add_integer(
        parser,
        "--start-offset",
        "OFFSET",
        "abort: where the transaction begins, as describe-producers and find-hanging say.",
        least=0,
    )
    add_integer(
        parser,
        "--producer-id",
        "ID",
        "abort: the producer's id, in place of --start-offset, together with the next two.",
        least=0,
    )
    add_integer(
        parser,
        "--producer-epoch",
        "EPOCH",
        "abort: the producer's epoch.",
        least=0,
        most=LARGEST_SHORT,
    )
    add_integer(
        parser,
        "--coordinator-epoch",
        "EPOCH",
        "abort: the epoch of the coordinator in the producer's last marker; -1 if none.",
        least=-1,
        most=LARGEST_INT,
    )


def check(action: str, arguments: Namespace) -> None:
    """Raise UsageError unless the options fit the action."""
    check_action(arguments, action, REQUIRED, OPTIONAL)
    if action == "abort":
        _check_abort(arguments)
    if action == "find-hanging":
        _check_find_hanging(arguments)


def _check_abort(arguments: Namespace) -> None:
    names = OPTIONAL["abort"][1:]
    used = [option for option in names if given(arguments, option)]
    if given(arguments, "--start-offset"):
        if used:
            raise UsageError(f"option --start-offset cannot be used with option {used[0]}")
        return
    if not used:
        raise UsageError(
            "the transaction to abort is named by --start-offset, or by --producer-id, "
            "--producer-epoch and --coordinator-epoch"
        )
    require(arguments, *names)


def _check_find_hanging(arguments: Namespace) -> None:
    if not given(arguments, "--topic"):
        if given(arguments, "--partition"):
            raise UsageError("option --partition needs --topic")
        if not given(arguments, "--broker-id"):
            raise UsageError("find-hanging needs --topic or --broker-id, which say where to search")


def abort_transaction(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Write an abort marker into one partition, without the coordinator."""
    partition = TopicPartition(arguments.topic, arguments.partition)
    if arguments.start_offset is not None:
        hanging = _beginning_at(admin, partition, arguments.start_offset)
    else:
        hanging = _hanging_transaction(partition, arguments)
    admin.abort_transaction(hanging)


def force_terminate(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Have the coordinator abort the open transaction of the id, and fence its producer."""
    admin.fence_producers([arguments.transactional_id])


def _beginning_at(admin: Admin, partition: TopicPartition, offset: int) -> HangingTransaction:
    for producer in admin.describe_producers([partition])[partition]:
        if producer.transaction_start_offset == offset:
            return HangingTransaction(
                partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
            )
    raise CommandError(f"no open transaction begins at offset {offset} of partition {partition}")


def _hanging_transaction(partition: TopicPartition, arguments: Namespace) -> HangingTransaction:
    return HangingTransaction(
        partition,
        arguments.producer_id,
        arguments.producer_epoch,
        arguments.coordinator_epoch,
    )


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


def list_transactions(admin: Admin, arguments: Namespace, terminal: Terminal) -> int:
    """A line for each transactional id that passes the filters; 1 where a broker has no answer."""
    try:
        found, status = listed(
            lambda: admin.list_transactions(
                longer_than_ms=arguments.duration_filter,
                id_pattern=arguments.transactional_id_pattern,
            ),
            "transactions",
            terminal.note,
        )
    except KafkaError as error:
        if error.error is not ErrorCode.INVALID_REGULAR_EXPRESSION:
            raise
        raise CommandError(
            f"'{arguments.transactional_id_pattern}' is no regular expression"
        ) from error
    missing = note_no_coordinators(admin, TRANSACTIONS_TOPIC, "transactional ids", terminal)
    show_columns(LISTED, sorted(found), arguments.format, terminal)
    if not found:
        terminal.remark("no transactions")
    return max(status, missing)


def describe_transaction(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Print one transactional id, with the partitions of its open transaction."""
    name = arguments.transactional_id
    found = admin.describe_transactions([name])[name]
    duration_ms = None if found.start_ms is None else terminal.now_ms() - found.start_ms
    row = (
        found.coordinator_id,
        name,
        found.producer_id,
        found.producer_epoch,
        found.state,
        found.timeout_ms,
        found.start_ms,
        duration_ms,
        ",".join(map(str, sorted(found.partitions))),
    )
    show_columns(DESCRIBED, [row], arguments.format, terminal)


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
            producer.transaction_start_offset,
        )
        for producer in admin.describe_producers([partition], arguments.broker_id)[partition]
    ]
    show_columns(PRODUCERS, rows, arguments.format, terminal)
