"""How many topics one AddPartitionsToTxn may name: asked before its rights, and without them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.protocol.transactions import AddPartitionsToTxnRequest

MOST_ADDED_TOPICS: Final = 2_000
"""A step of the loop has time for so many; each costs as much as five of its partitions."""


def check_topics(body: AddPartitionsToTxnRequest) -> None:
    """Refuse more topics than are added to a transaction in one step: they are added as a whole."""
    count = len(body.v3_and_below_topics)
    if count > MOST_ADDED_TOPICS:
        raise KafkaError.of(
            ErrorCode.INVALID_REQUEST,
            f"an AddPartitionsToTxn of {count} topics, of at most {MOST_ADDED_TOPICS}",
        )
