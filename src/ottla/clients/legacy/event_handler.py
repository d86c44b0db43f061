"""The handlers of queued data: the settings event.handler and callback.handler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from ottla.clients.legacy.message import Encoder, Message
from ottla.clients.legacy.produce import ProducerRequest
from ottla.clients.legacy.producer_pool import ProducerPool
from ottla.structs import TopicPartition


class QueueItem(NamedTuple):
    """One piece of data in the queue of an async producer, with its partition."""

    data: Any
    topic: str
    partition: int


class EventHandler(Protocol):
    """Serialises a batch of events and sends it; an error that it raises fails the batch."""

    def handle(
        self, events: Sequence[QueueItem], producer: ProducerPool, encoder: Encoder
    ) -> None: ...

    def close(self) -> None: ...


class DefaultEventHandler:
    """Encodes the events, puts those of each partition together, and sends all at once."""

    def handle(self, events: Sequence[QueueItem], producer: ProducerPool, encoder: Encoder) -> None:
        messages: dict[TopicPartition, list[Message]] = {}
        for data, topic, partition in events:
            queue = messages.setdefault(TopicPartition(topic, partition), [])
            queue.append(encoder.to_message(data))
        if messages:
            producer.multi_send(
                [ProducerRequest(*partition, queue) for partition, queue in messages.items()]
            )

    def close(self) -> None:
        """There is nothing to close."""


class CallbackHandler:
    """Sees the data in the queue of an async producer, and may change it. This one does nothing.

    `before_enqueue` and `after_enqueue` run in the threads that call `send`, the others in the
    producer's thread.
    """

    def before_enqueue(self, item: QueueItem) -> QueueItem:
        """Return the item to queue in place of `item`."""
        return item

    def after_enqueue(self, item: QueueItem, added: bool) -> None:
        """The item is in the queue, or there was no room for it."""

    def after_dequeuing_existing_data(self, item: QueueItem | None) -> Sequence[QueueItem]:
        """Return the items for the batch in place of one that has left the queue.

        `item` is None when queue.time has passed: then items that were held back may be returned.
        """
        return () if item is None else (item,)

    def before_sending_data(self, items: Sequence[QueueItem]) -> Sequence[QueueItem]:
        """Return the items to send in place of a complete batch."""
        return items

    def last_batch_before_close(self) -> Sequence[QueueItem]:
        """Return the items that must still be sent, as the producer is being closed."""
        return ()

    def close(self) -> None:
        """The last batch has been sent."""
