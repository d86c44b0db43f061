"""The topics that a member of a classic group reads, if its subscription can be parsed."""

from __future__ import annotations

from typing import Final

from ottla.errors import ProtocolError
from ottla.protocol.consumer_protocol import decode_subscription

MAX_SUBSCRIPTION_NAMES: Final = 25_000
"""The most names in the subscriptions of a group; with more, they count as unreadable."""


def name_count(metadata: bytes) -> int:
    """How many topics a consumer's subscription says to name, behind its version."""
    return max(0, int.from_bytes(metadata[2:6], "big", signed=True))


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None if the bytes are of another kind.

    The coordinator passes subscriptions to the leader unparsed. Only the expiry of offsets needs
    the topics (KIP-211), so bytes that cannot be parsed are no error.
    """
    try:
        return frozenset(decode_subscription(metadata).topics)
    except ProtocolError:
        return None
