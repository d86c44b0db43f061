"""The newest micro-batch of a query that counts: kept by Kafka, as offsets of a group.

The offset is the id of the next batch; the metadata beside it name the transactions that make up
the batch. They are committed in a transaction of their own, under an id that only the newest
driver of the query can use: of two drivers that think the query is theirs, one alone can decide.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import TYPE_CHECKING, NamedTuple

from ottla.clients.producer.transactions import PreparedTransaction
from ottla.clients.topic_offsets import OffsetAndMetadata
from ottla.spark import connections
from ottla.structs import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.clients.producer.producer import Producer

DECIDER = "driver"
PIECE_SIZE = 4000
"""Brokers take offset.metadata.max.bytes, 4096 unless set; longer texts go on in other groups."""


class DecisionLog:
    """The newest decision of one sink, as a committed offset."""

    def __init__(self, sink_id: str, settings: Mapping[str, str]) -> None:
        self._sink_id = sink_id
        self._settings = settings

    def newest(self) -> BatchDecision | None:
        """The newest decision; waits for one that is just being made or aborted."""
        head = self._committed(self._sink_id)
        if head is None:
            return None
        try:
            return self._decision(head)
        except (ValueError, TypeError, zlib.error) as error:
            raise ValueError(
                f"group {self._sink_id}: its offset is the newest batch of a sink of Spark, and "
                f"was set by somebody else ({error}): delete the group, and start with a new "
                "checkpoint from the offsets that are wanted"
            ) from None

    def _decision(self, head: OffsetAndMetadata) -> BatchDecision:
        """The decision that begins with this offset; an error of any kind if it is none."""
        first, _, text = head.metadata.partition(":")
        for number in range(1, int(first)):
            piece = self._committed(self._group(number))
            if piece is None or piece.offset != head.offset:
                raise ValueError(
                    f"group {self._group(number)} does not go on group {self._sink_id}"
                )
            text += piece.metadata.partition(":")[2]
        return BatchDecision(head.offset - 1, transactions_of(text))

    def record(self, producer: Producer, decision: BatchDecision, topic: str) -> None:
        """Make a decision; every `newest` after this returns finds it. `topic` may be any topic."""
        text = text_of(decision.transactions)
        pieces = [text[n : n + PIECE_SIZE] for n in range(0, len(text), PIECE_SIZE)]
        where = TopicPartition(topic, 0)
        producer.begin_transaction()
        for number, piece in enumerate(pieces):
            committed = OffsetAndMetadata(decision.batch_id + 1, f"{len(pieces)}:{piece}")
            producer.send_offsets_to_transaction({where: committed}, self._group(number))
        producer.commit_transaction()

    def _group(self, number: int) -> str:
        return f"{self._sink_id}.{number}" if number else self._sink_id

    def _committed(self, group: str) -> OffsetAndMetadata | None:
        admin = connections.admin(self._settings)
        committed = admin.list_group_offsets(group, require_stable=True)
        return max(committed.values(), key=lambda each: each.offset, default=None)


class BatchDecision(NamedTuple):
    """A batch that counts, and the transactions that must be committed for it."""

    batch_id: int
    transactions: list[PreparedTransaction]


def text_of(transactions: Sequence[PreparedTransaction]) -> str:
    """Transactions as a short text: their ids have much in common."""
    packed = zlib.compress(json.dumps(transactions, separators=(",", ":")).encode(), 9)
    return base64.b64encode(packed).decode()


def transactions_of(text: str) -> list[PreparedTransaction]:
    """The transactions in a text that `text_of` made."""
    return [
        PreparedTransaction(*each) for each in json.loads(zlib.decompress(base64.b64decode(text)))
    ]
