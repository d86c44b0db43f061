"""Checks of a running cluster: clocks of its records, replication and leaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.cli.command_error import answers
from ottla.cli.finding import ERROR, WARNING, Finding
from ottla.cli.host_checks import LEAST_FREE_SHARE, unreachable
from ottla.clients.admin.admin_client import BulkError
from ottla.clients.topic_offsets import ListOffsetsResult
from ottla.errors import KafkaError
from ottla.log.log_retention import FUTURE_MS
from ottla.structs import INTERNAL_TOPICS, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ottla import Admin
    from ottla.cli.machine import Machine
    from ottla.clients.admin.descriptions import TopicDescription
    from ottla.clients.admin.log_dirs import LogDirs


def cluster(admin: Admin, host: Machine) -> Iterator[Finding]:
    """The findings of a running cluster: its brokers and its partitions."""
    nodes = admin.describe_cluster().nodes
    for node in nodes:
        refusal = host.refusal(node.host, node.port)
        if refusal:
            yield unreachable(f"broker {node.id} advertises {node.host}:{node.port}: {refusal}")
    described, silent = log_dirs(admin, [node.id for node in nodes])
    yield from silent_brokers(silent)
    yield from log_directories(described)
    topics = admin.describe_topics(sorted(admin.list_topics()))
    leaderless, behind, single = [], [], []
    for name, topic in topics.items():
        for each in topic.partitions:
            if each.leader < 0:
                leaderless.append(f"{name}-{each.partition}")
            elif len(each.isr) < len(each.replicas):
                behind.append(f"{name}-{each.partition}")
        is_single = any(len(each.replicas) == 1 for each in topic.partitions)
        if is_single and name in INTERNAL_TOPICS and len(nodes) > 1:
            single.append(name)
    yield from replication(leaderless, behind, single)
    yield from future_records(admin, topics, set(silent), host.now_s())


def log_dirs(admin: Admin, brokers: list[int]) -> tuple[dict[int, LogDirs], dict[int, KafkaError]]:
    """The directories of the brokers, and the errors of those that do not answer.

    Whoever may not ask for directories learns nothing of them.
    """
    try:
        described, failed = answers(admin.describe_log_dirs, brokers)
    except KafkaError as error:
        described, failed = {}, getattr(error, "results", {})
    silent = {each: error for each, error in failed.items() if error.retriable}
    return described, silent


def silent_brokers(silent: Mapping[int, KafkaError]) -> Iterator[Finding]:
    """Brokers that are registered, and do not answer: they hang, or cannot be reached."""
    for broker, error in sorted(silent.items()):
        yield Finding(
            "brokers",
            ERROR,
            f"broker {broker} does not answer: {error}",
            "each broker answers",
            "what it leads can be neither written nor read, until its session is over",
            "look at its log, its disk and its load; restart it where it hangs",
        )


def log_directories(described: Mapping[int, LogDirs]) -> Iterator[Finding]:
    """Directories that a broker has taken out of service, and those that are nearly full."""
    for broker, dirs in sorted(described.items()):
        for path, found in sorted(dirs.items()):
            if found.error:
                yield Finding(
                    "log directory",
                    ERROR,
                    f"{path} of broker {broker} has failed: {found.error.name}",
                    "each directory is in service",
                    "its replicas are away until the broker is started again",
                    "look at the broker's log; mend or replace the disk, and restart the broker",
                )
            elif 0 <= found.usable_bytes < LEAST_FREE_SHARE * found.total_bytes:
                yield Finding(
                    "free space",
                    ERROR,
                    f"{found.usable_bytes:,} bytes are free for {path} of broker {broker}",
                    f"at least {LEAST_FREE_SHARE * 100:.0f} % of the volume",
                    "a broker whose disk is full refuses records, or takes the directory offline",
                    "lower retention.ms or retention.bytes of the largest topics (ottla log-dirs "
                    "--describe), or move replicas (ottla reassign-partitions)",
                )


def future_records(
    admin: Admin, topics: Mapping[str, TopicDescription], silent: Collection[int], now_s: float
) -> Iterator[Finding]:
    """Records that say they are of a time to come, which no retention by time deletes."""
    future_ms = int(now_s * 1000) + FUTURE_MS
    led = {
        TopicPartition(name, each.partition): future_ms
        for name, topic in topics.items()
        for each in topic.partitions
        if each.leader >= 0 and each.leader not in silent
    }
    try:
        answers: Mapping[TopicPartition, object] = admin.list_offsets(led)
    except BulkError as error:  # a partition whose broker is gone is reported above
        answers = error.results
    found = [
        partition
        for partition, each in answers.items()
        if isinstance(each, ListOffsetsResult) and each.offset >= 0
    ]
    if found:
        yield Finding(
            "records",
            WARNING,
            f"records with timestamps of the future: {some([str(each) for each in found])}",
            "timestamps in milliseconds, of now or of the past",
            "retention.ms deletes neither their segments nor those behind them until that time",
            "mend the producer's clock, and set message.timestamp.after.max.ms for the topic; "
            "what is there goes by retention.bytes, or when its offsets are deleted",
        )


def replication(leaderless: list[str], behind: list[str], single: list[str]) -> Iterator[Finding]:
    """The findings about partitions without a leader, replicas that lag, and lone copies."""
    describe = "ottla topics --describe"
    if leaderless:
        yield Finding(
            "replication",
            ERROR,
            f"partitions without a leader: {some(leaderless)}",
            "each partition has a leader",
            "nobody can write or read them",
            f"start the brokers that have their replicas: {describe} --unavailable-partitions",
        )
    if behind:
        yield Finding(
            "replication",
            WARNING,
            f"partitions with replicas out of sync: {some(behind)}",
            "all replicas are in sync",
            "the next broker that dies may take the last copy of records with it",
            f"look at the brokers that are missing: {describe} --under-replicated-partitions",
        )
    for name in single:
        yield Finding(
            "replication",
            WARNING,
            f"{name} has partitions with one replica",
            "as many replicas as the topics of users, 3 at best",
            "offsets of groups, or transactions, are gone with one broker",
            "ottla reassign-partitions --execute with a plan of more replicas",
        )


def some(names: list[str], most: int = 5) -> str:
    """The first of the names, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
