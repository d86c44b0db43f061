"""A preferred leader election that is asked for by a node of the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import CommandError
from ottla.cli.zookeeper_session import session
from ottla.cli.zookeeper_topics import ZooKeeperTopics
from ottla.registry import paths
from ottla.registry.znodes import decode_preferred_elections, encode_preferred_elections
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kazoo.client import KazooClient

    from ottla.cli.terminal import Terminal

DEPRECATED: Final = (
    "Warning: --zookeeper is deprecated and will be removed in a future version of Kafka.\n"
    "Use --bootstrap-server instead to specify a broker to connect to."
)


def start_preferred_election(
    zookeeper: str, log_level: str, partitions: Sequence[TopicPartition] | None, terminal: Terminal
) -> None:
    """Ask for the preferred leaders of these partitions, or of all there are."""
    terminal.print(DEPRECATED)
    with session(zookeeper, log_level) as client:
        nodes = ZooKeeperTopics(client)
        names = sorted({each.topic for each in partitions or ()} or nodes.list_topics())
        # A dict keeps the order, and each wanted partition is looked up in it.
        existing = dict.fromkeys(
            TopicPartition(name, info.partition)
            for name, topic in nodes.describe_topics(names).items()
            for info in topic.partitions
        )
        started = list(existing) if partitions is None else [p for p in partitions if p in existing]
        _write_election(client, zookeeper, started)
    terminal.print(f"Created preferred replica election path with {_joined(started, ',')}")
    terminal.print(
        "Successfully started preferred replica election for partitions "
        f"Set({_joined(started, ', ')})"
    )
    for partition in partitions or ():
        if partition not in existing:
            terminal.print(
                f"Skipping preferred replica leader election for partition {partition} since it "
                "doesn't exist."
            )


def _write_election(
    client: KazooClient, zookeeper: str, partitions: Iterable[TopicPartition]
) -> None:
    from kazoo.exceptions import NodeExistsError, NoNodeError

    path = paths.PREFERRED_REPLICA_ELECTION
    try:
        client.create(path, encode_preferred_elections(partitions))
    except NodeExistsError:
        under_way = decode_preferred_elections(client.get(path)[0] or b"")
        raise CommandError(
            "Preferred replica leader election currently in progress for "
            f"{_joined(under_way, ', ')}. Aborting operation"
        ) from None
    except NoNodeError:
        raise CommandError(f"no cluster has ever been in ZooKeeper at {zookeeper}") from None


def _joined(partitions: Iterable[TopicPartition], separator: str) -> str:
    return separator.join(map(str, partitions))
