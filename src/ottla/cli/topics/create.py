"""`ottla topics --create`."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from ottla.cli.command_error import UsageError
from ottla.cli.options import key_values
from ottla.cli.terminal import Terminal
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla import Admin

COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') "
    "could collide. To avoid issues it is best to use either, but not both."
)


def create_topic(admin: Admin, arguments: Namespace, terminal: Terminal) -> None:
    """Create the topic and say so."""
    from ottla.clients.admin.descriptions import NewTopic

    name: str = arguments.topic
    if "." in name or "_" in name:
        terminal.print(COLLISION_WARNING)
    assignment = (
        parse_assignment(arguments.replica_assignment) if arguments.replica_assignment else None
    )
    topic = NewTopic(
        name,
        num_partitions=_or_default(arguments.partitions),
        replication_factor=_or_default(arguments.replication_factor),
        replica_assignment=assignment,
        configs=topic_settings(arguments.config),
    )
    try:
        admin.create_topics([topic])
    except KafkaError as error:
        if error.error is ErrorCode.TOPIC_ALREADY_EXISTS and arguments.if_not_exists:
            return
        raise
    terminal.print(f"Created topic {name}.")


def topic_settings(pairs: list[str]) -> dict[str, str]:
    """`key=value` arguments, none of which may lack its value."""
    for pair in pairs:
        if "=" not in pair:
            raise UsageError(f"--config takes key=value, not '{pair}'")
    return {key: value.strip() for key, value in key_values(pairs).items()}


def parse_assignment(text: str) -> dict[int, list[int]]:
    """`0:1,1:2` as the replicas of each partition, all partitions having as many."""
    try:
        assignment = {
            partition: [int(broker) for broker in brokers.split(":")]
            for partition, brokers in enumerate(text.split(","))
        }
    except ValueError:
        raise UsageError(
            f"--replica-assignment takes broker ids like 0:1,1:2, not '{text}'"
        ) from None
    for partition, brokers in assignment.items():
        if len(set(brokers)) != len(brokers):
            raise UsageError(f"partition {partition} names a broker twice: {brokers}")
        if len(brokers) != len(assignment[0]):
            raise UsageError(
                f"partition {partition} has {len(brokers)} replicas, partition 0 has "
                f"{len(assignment[0])}; all partitions need as many"
            )
    return assignment


def _or_default(count: int | None) -> int:
    """-1 leaves the choice to the broker (KIP-464)."""
    return -1 if count is None else count
