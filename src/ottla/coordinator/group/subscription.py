"""Which topics a member reads, as far as its subscription can be read."""

from __future__ import annotations

from typing import Final

from ottla.errors import ProtocolError
from ottla.protocol.message import decode_versioned
from ottla.protocol.offsets_topic import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a consumer's subscription; None if the bytes are of another kind.

    The coordinator hands subscriptions from member to member unread. Only the expiry of offsets
    wants to know the topics (KIP-211), so bytes that cannot be read are no error.
    """
    try:
        return frozenset(decode_versioned(ConsumerProtocolSubscription, metadata).topics)
    except ProtocolError:
        return None
