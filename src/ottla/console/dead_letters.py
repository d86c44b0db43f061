"""Where a dead letter comes from, by the headers that its sender has left in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.console.decoding import harmless
from ottla.console.masks import HIDDEN_QUOTE, masks_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ottla.console.masks import Mask

LONGEST_REASON: Final = 500
REASONS: Final = (
    *("reason", "__connect.errors.exception.message", "kafka_dlt-exception-message"),
    "__streams.errors.message",
)
CONVENTIONS: Final = (
    ("source.topic", "source.partition", "source.offset"),
    *(
        (f"{prefix}topic", f"{prefix}partition", f"{prefix}offset")
        for prefix in ("__connect.errors.", "__streams.errors.", "kafka_dlt-original-")
    ),
)
"""The names of the topic, the partition and the offset: Ottla's pipelines, Kafka Connect (KIP-298),
Kafka Streams (KIP-1034), Spring Kafka."""


class Origin(NamedTuple):
    """The record that a dead letter is made of, and the reason in its sender's words."""

    topic: str
    partition: int
    offset: int
    reason: str

    @property
    def path(self) -> str:
        """The record's page."""
        return f"/t/{self.topic}/{self.partition}/{self.offset}"


def origin_of(headers: Sequence[tuple[str, bytes | None]]) -> Origin | None:
    """The origin that a record's headers name; None where it is no dead letter."""
    found = dict(headers)
    reason = next((found[each] for each in REASONS if found.get(each)), None) or b""
    for topic, partition, offset in CONVENTIONS:
        name, where, at = (
            found.get(topic),
            _number(found.get(partition)),
            _number(found.get(offset)),
        )
        if name and where is not None and at is not None:
            text = name.decode("utf-8", "replace")
            words = reason.decode("utf-8", "replace")[:LONGEST_REASON]
            return Origin(harmless(text), where, at, harmless(words))
    return None


def hidden_reason(origin: Origin | None, masks: Iterable[Mask]) -> Origin | None:
    """The origin; without its reason, which may quote the record, where its topic is masked."""
    if origin is None or not origin.reason or not masks_of(masks, origin.topic):
        return origin
    return origin._replace(reason=HIDDEN_QUOTE)


def _number(data: bytes | None) -> int | None:
    """A number as digits, or as the bytes of a Java int or long."""
    if data is None:
        return None
    if data.isdigit() and len(data) < 20:
        return int(data)
    number = int.from_bytes(data, signed=True) if len(data) in (4, 8) else -1
    return number if number >= 0 else None
