"""The page of transactions: those that are open, hanging ones first, and all transactional ids."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING, Final

from ottla.clients.admin.descriptions import TransactionFilter
from ottla.clients.admin.transactions import (
    HangingTransaction,
    OpenTransaction,
    TransactionDescription,
)
from ottla.console.group_look import offset_of, result_of
from ottla.console.page import ChangeOutcome, ConsoleChange, ConsolePage, Data, Visit, whole_number
from ottla.console.refusals import Refused
from ottla.console.row_window import WINDOW, RowWindow
from ottla.console.transaction_owners import owners_of
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import IsolationLevel, NamedTuple, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.clients.admin.transactions import ProducerDescription, TransactionListing
    from ottla.console.console_cluster import ConsoleCluster
    from ottla.console.transaction_owners import TransactionOwners

MOST_PARTITIONS: Final = 5_000
LARGEST_PARTITION: Final = (1 << 31) - 1
"""The partitions whose ends are asked for, to find those with an open transaction."""
MOST_OPEN: Final = 200
HANGS_AFTER_MS: Final = 900_000
"""transaction.max.timeout.ms of brokers by default: no transaction is silent for longer, unless its
coordinator has lost it."""


class OpenLine(NamedTuple):
    """An open transaction in a partition; `held_back` counts the offsets behind its start."""

    topic: str
    partition: int
    start_offset: int
    held_back: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    transactional_id: str | None
    silent_ms: int
    """The time since the producer wrote something to the partition."""
    is_hanging: bool
    command: str
    """The command that ends it; empty where it is not known which one may."""
    doubt: str
    """Why a coordinator may have it that is not known here; else empty."""


class IdLine(NamedTuple):
    """A transactional id; the age is that of its open transaction."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int
    producer_epoch: int | None
    timeout_ms: int | None
    age_ms: int | None
    partitions: Sequence[str]


SORTS: Final[dict[str, Callable[[TransactionListing], tuple[object, ...]]]] = {
    "state": lambda each: (each.state != "Ongoing", each.state, each.transactional_id),
    "id": lambda each: (each.transactional_id,),
}


async def transactions(visit: Visit) -> Data:
    """Open transactions, those that hang first, and a window of the transactional ids."""
    window = RowWindow(visit, SORTS, "state")
    cluster = visit.cluster
    try:
        listed = await cluster.transactions.list_transactions(TransactionFilter())
    except KafkaError as error:
        if error.error is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return {
            **window.data(0, 0),
            "open": [],
            "not_described": [],
            "rows": [],
            "missing": error.message,
        }
    found = sorted((e for e in listed if window.has(e.transactional_id)), key=SORTS[window.sort])
    shown = found[window.first : window.first + WINDOW]
    names = [each.transactional_id for each in shown]
    described = await cluster.transactions.describe_transactions(names)
    now_ms = cluster.runtime.clock.now_ms()
    opened, not_described = await open_lines(cluster, listed)
    return {
        **window.data(len(found), len(listed)),
        "open": opened,
        "not_described": not_described,
        "rows": [id_line(each, described[each.transactional_id], now_ms) for each in shown],
        "missing": "",
    }


def id_line(
    listed: TransactionListing, described: TransactionDescription | KafkaError, now_ms: int
) -> IdLine:
    """A transactional id as its coordinator lists and describes it."""
    known = described if isinstance(described, TransactionDescription) else None
    start_ms = None if known is None else known.start_ms
    return IdLine(
        listed.transactional_id,
        listed.state if known is None else known.state,
        listed.producer_id,
        listed.coordinator_id,
        None if known is None else known.producer_epoch,
        None if known is None else known.timeout_ms,
        max(0, now_ms - start_ms) if start_ms is not None and known and known.partitions else None,
        [] if known is None else sorted(map(str, known.partitions)),
    )


async def open_lines(
    cluster: ConsoleCluster, listed: Sequence[TransactionListing]
) -> tuple[list[OpenLine], list[str]]:
    """The open transactions of all partitions: hanging ones first, then the oldest.

    With them the partitions whose transactions the brokers do not describe.
    """
    held = await held_back(cluster)
    found = await cluster.transactions.describe_producers(list(held)[:MOST_OPEN], None)
    opened = [
        OpenTransaction(partition, producer)
        for partition, producers in found.items()
        if not isinstance(producers, KafkaError)
        for producer in producers
        if producer.transaction_start_offset is not None
    ]
    owners = await owners_of(cluster, opened, listed)
    now_ms = cluster.runtime.clock.now_ms()
    lines = [open_line(each, owners, held[each.partition], now_ms) for each in opened]
    unknown = sorted(str(each) for each, what in found.items() if isinstance(what, KafkaError))
    return sorted(lines, key=lambda each: (not each.is_hanging, -each.silent_ms)), unknown


async def held_back(cluster: ConsoleCluster) -> dict[TopicPartition, int]:
    """The ends of the partitions whose last stable offset is before the end."""
    known = await cluster.snapshot()
    led = [TopicPartition(name, p) for name, each in known.topics.items() for p in each.available]
    led = led[:MOST_PARTITIONS]
    stable, ends = await asyncio.gather(
        cluster.ends(led, IsolationLevel.READ_COMMITTED), cluster.ends(led)
    )
    found = {each: (offset_of(stable.get(each)), offset_of(ends.get(each))) for each in led}
    return {
        each: end
        for each, (first, end) in found.items()
        if first is not None and end is not None and first < end
    }


def open_line(found: OpenTransaction, owners: TransactionOwners, end: int, now_ms: int) -> OpenLine:
    """An open transaction with the id under which a coordinator knows it, if one does."""
    partition, producer = found
    name = owners.of(found)
    doubt = "" if name is not None else owners.doubt(found)
    silent_ms = max(0, now_ms - producer.last_timestamp_ms)
    start = producer.transaction_start_offset or 0
    return OpenLine(
        *partition,
        start,
        end - start,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        name,
        silent_ms,
        name is None and not doubt and silent_ms > HANGS_AFTER_MS,
        ""
        if doubt
        else abort_command(partition, start)
        if name is None
        else terminate_command(name),
        doubt,
    )


def abort_command(partition: TopicPartition, start: int) -> str:
    """The command that aborts a transaction that its coordinator has lost."""
    return (
        f"ottla transactions abort --topic {partition.topic} "
        f"--partition {partition.partition} --start-offset {start}"
    )


def terminate_command(transactional_id: str) -> str:
    """The command that aborts the transaction of an id, and fences its producer."""
    name = shlex.quote(transactional_id)
    return f"ottla transactions force-terminate --transactional-id {name}"


async def abort(visit: Visit) -> ChangeOutcome:
    """Abort a transaction that no coordinator knows, in one partition."""
    partition, start = place_of(visit)
    found = await visit.cluster.transactions.describe_producers([partition], None)
    producer = _producer_at(result_of(found, partition), start)
    if producer is None:
        raise Refused(f"No open transaction begins at offset {start} of {partition}.")
    opened = OpenTransaction(partition, producer)
    owners = await owners_of(visit.cluster, [opened])
    if owners.of(opened) is not None:
        raise Refused(
            f"The transaction at offset {start} of {partition} is known to its coordinator, "
            "which ends it: terminate its transactional id instead."
        )
    if doubt := owners.doubt(opened):
        raise Refused(f"The transaction at offset {start} of {partition} may not hang: {doubt}.")
    hanging = HangingTransaction(
        partition, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch
    )
    error = await visit.cluster.transactions.abort_transaction(hanging)
    if error is not None:
        raise error
    return ChangeOutcome(
        "/transactions",
        f"The transaction at offset {start} of {partition} is aborted.",
        "transactions abort",
        str(partition),
        {"start_offset": start, "producer_id": producer.producer_id},
    )


def place_of(visit: Visit) -> tuple[TopicPartition, int]:
    """The partition and the offset of a form."""
    partition = whole_number(visit.form.get("partition", ""), LARGEST_PARTITION)
    start = whole_number(visit.form.get("start_offset", ""))
    if partition is None or start is None:
        raise Refused("partition, start_offset: must be whole numbers")
    return TopicPartition(visit.form.get("topic", ""), partition), start


def _producer_at(
    producers: Sequence[ProducerDescription], start: int
) -> ProducerDescription | None:
    return next((each for each in producers if each.transaction_start_offset == start), None)


async def terminate(visit: Visit) -> ChangeOutcome:
    """Abort the open transaction of an id, and fence its producer."""
    name = visit.form.get("id", "")
    if not name:
        raise Refused("id: must be a transactional id")
    described = result_of(await visit.cluster.transactions.describe_transactions([name]), name)
    result_of(await visit.cluster.transactions.fence_producers([name]), name)
    return ChangeOutcome(
        "/transactions",
        f"The transaction of {name} is aborted, and its producer fenced.",
        "transactions force-terminate",
        name,
        {"state": described.state, "partitions": sorted(map(str, described.partitions))},
    )


TRANSACTION_PAGES: Final = (
    ConsolePage(
        "/transactions",
        transactions,
        "transactions.html",
        "Transactions",
        rail="Transactions",
        command="ottla transactions list",
        refresh_s=10,
        home=True,
        table="rows",
    ),
)
TRANSACTION_CHANGES: Final = (
    ConsoleChange("/transactions/abort", abort),
    ConsoleChange("/transactions/terminate", terminate),
)
