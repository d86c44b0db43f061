"""`ottla transactions find-hanging`: transactions that only a partition has as open.

A transaction hangs when a partition has it as open and its coordinator does not know it: it never
ends, and read_committed consumers cannot read past it. Only producers that have written nothing
for the maximum transaction timeout are considered, as younger transactions may be about to begin
or end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import CommandError, answers
from ottla.cli.table import show_columns
from ottla.cli.topic_views import leaders_of, note_no_leader
from ottla.clients.admin.transactions import ANY_ID, OpenTransaction
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TRANSACTIONS_TOPIC, TopicPartition

if TYPE_CHECKING:
    from argparse import Namespace

    from ottla import Admin
    from ottla.cli.terminal import Terminal
    from ottla.clients.admin.transactions import ProducerDescription, TransactionDescription


MINUTE_MS: Final = 60_000
DEFAULT_TIMEOUT_MINUTES: Final = 15
HANGING: Final = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)


def find_hanging(admin: Admin, arguments: Namespace, terminal: Terminal) -> int:
    """Print a line for each hanging transaction of the searched partitions.

    1 where some are not searched, as no broker answers for them.
    """
    now_ms = terminal.now_ms()
    minutes = arguments.max_transaction_timeout
    limit_ms = (DEFAULT_TIMEOUT_MINUTES if minutes is None else minutes) * MINUTE_MS
    described, status = producers_of(admin, searched(admin, arguments), arguments, terminal)
    candidates = [
        OpenTransaction(partition, producer)
        for partition, producers in described.items()
        for producer in producers
        if producer.transaction_start_offset is not None
        and now_ms - producer.last_timestamp_ms > limit_ms
    ]
    rows = [
        (
            *partition,
            producer.producer_id,
            producer.producer_epoch,
            producer.coordinator_epoch,
            producer.transaction_start_offset,
            producer.last_timestamp_ms,
            (now_ms - producer.last_timestamp_ms) // MINUTE_MS,
        )
        for partition, producer in unknown_to_coordinators(admin, candidates)
    ]
    show_columns(HANGING, rows, arguments.format, terminal)
    return status


def producers_of(
    admin: Admin, partitions: list[TopicPartition], arguments: Namespace, terminal: Terminal
) -> tuple[dict[TopicPartition, list[ProducerDescription]], int]:
    """The producers of partitions, and 1 where some have no leader, or one that is silent."""
    leaderless: list[TopicPartition] = []
    if arguments.broker_id is None:
        leaders = leaders_of(admin, {each.topic for each in partitions})
        leaderless = [each for each in partitions if leaders.get(each, 0) < 0]
    for partition in leaderless:
        note_no_leader(partition, terminal)
    found, failed = answers(
        lambda asked: admin.describe_producers(asked, arguments.broker_id),
        [each for each in partitions if each not in leaderless],
    )
    for partition, error in failed.items():
        terminal.note(f"Error: partition {partition} is not searched: {error}")
    return found, 1 if leaderless or failed else 0


def searched(admin: Admin, arguments: Namespace) -> list[TopicPartition]:
    """The partitions that the options name."""
    if arguments.partition is not None:
        return [TopicPartition(arguments.topic, arguments.partition)]
    names = sorted(admin.list_topics()) if arguments.topic is None else [arguments.topic]
    return [
        TopicPartition(name, each.partition)
        for name, topic in admin.describe_topics(names).items()
        for each in topic.partitions
        if arguments.broker_id is None or arguments.broker_id in each.replicas
    ]


def unknown_to_coordinators(
    admin: Admin, candidates: list[OpenTransaction]
) -> list[OpenTransaction]:
    """The open transactions that no coordinator knows."""
    if not candidates:
        return []
    require_coordinators(admin)
    ids = {each.producer.producer_id for each in candidates}
    names = {
        listing.producer_id: listing.transactional_id
        for listing in admin.list_transactions(producer_ids=sorted(ids))
    }
    if ids - names.keys():
        require_sight(admin)
    described = {
        producer_id: _description(admin, names[producer_id])
        for producer_id in ids
        if producer_id in names
    }
    return [each for each in candidates if not each.is_of(described.get(each.producer.producer_id))]


def require_coordinators(admin: Admin) -> None:
    """CommandError where some transactional ids have no coordinator: what is theirs seems to hang.

    Who believed that would abort transactions that are committed later.
    """
    if TRANSACTIONS_TOPIC not in admin.list_topics():
        return
    described = admin.describe_topics([TRANSACTIONS_TOPIC])[TRANSACTIONS_TOPIC]
    leaderless = [str(each.partition) for each in described.partitions if each.leader < 0]
    if leaderless:
        raise CommandError(
            f"partitions {', '.join(leaderless)} of {TRANSACTIONS_TOPIC} have no leader: it is not "
            "known which of the open transactions are theirs"
        )


def require_sight(admin: Admin) -> None:
    """CommandError where this user may not see all transactional ids: others seem to hang."""
    try:
        _description(admin, ANY_ID)
    except KafkaError as error:
        if error.error is not ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise
        raise CommandError(
            "this user may not describe all transactional ids: it is not known which of the open "
            "transactions are of the others"
        ) from None


def _description(admin: Admin, name: str) -> TransactionDescription | None:
    """The coordinator's description; None if the id has expired since it was listed."""
    try:
        return admin.describe_transactions([name])[name]
    except KafkaError as error:
        if error.error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        raise
