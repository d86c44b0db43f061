"""The owners of open transactions: the transactional ids under which coordinators know them.

A transaction without an owner hangs, and may be aborted behind the back of all coordinators. So it
has none only where every coordinator was asked: a part of __transaction_state without a leader, an
id that could not be described, and ids that this user may not see leave it open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.admin.descriptions import TransactionFilter
from ottla.clients.admin.transactions import ANY_ID, OpenTransaction, TransactionDescription
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TRANSACTIONS_TOPIC, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.clients.admin.transactions import TransactionListing
    from ottla.console.console_cluster import ConsoleCluster


class TransactionOwners(NamedTuple):
    """The ids that coordinators list, by producer, and their descriptions by id."""

    names: Mapping[int, str]
    described: Mapping[str, TransactionDescription | KafkaError]
    leaderless: int
    """The partitions of __transaction_state that no broker leads: their ids are not listed."""

    def of(self, found: OpenTransaction) -> str | None:
        """The id of a transaction; None where no coordinator that was asked has it."""
        name = self.names.get(found.producer.producer_id)
        known = None if name is None else self.described.get(name)
        return name if isinstance(known, TransactionDescription) and found.is_of(known) else None

    def doubt(self, found: OpenTransaction) -> str:
        """Why a coordinator may have a transaction that has no owner here; empty where none has."""
        if self.leaderless:
            return (
                f"{self.leaderless} partitions of {TRANSACTIONS_TOPIC} have no leader, and their "
                "transactions are not known"
            )
        of_any = self.described.get(ANY_ID)
        if (
            isinstance(of_any, KafkaError)
            and of_any.error is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            and found.producer.producer_id not in self.names
        ):
            return "it may be of a transactional id that this user may not see"
        known = self.described.get(self.names.get(found.producer.producer_id, ""))
        if (
            isinstance(known, KafkaError)
            and known.error is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        ):
            return f"its coordinator does not describe it: {known.message}"
        return ""


async def owners_of(
    cluster: ConsoleCluster,
    opened: Iterable[OpenTransaction],
    listed: Iterable[TransactionListing] | None = None,
) -> TransactionOwners:
    """The owners of open transactions; `listed` are all ids, where they were asked for already."""
    ids = {each.producer.producer_id for each in opened}
    if listed is None:
        wanted = TransactionFilter(producer_ids=sorted(ids))
        listed = await cluster.transactions.list_transactions(wanted)
    names = {each.producer_id: each.transactional_id for each in listed if each.producer_id in ids}
    await cluster.all_topics.fetch_one(TRANSACTIONS_TOPIC)
    state = cluster.all_topics.cluster.topics.get(TRANSACTIONS_TOPIC)
    leaderless = 0 if state is None else len(state.partitions.keys() - {*state.available})
    asked = [*names.values(), *([] if leaderless or ids <= names.keys() else [ANY_ID])]
    described = await cluster.transactions.describe_transactions(asked)
    return TransactionOwners(names, described, leaderless)
