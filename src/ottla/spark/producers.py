"""Producers that this process keeps open, by their settings: of the sink alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from ottla.clients.producer.producer import Producer
from ottla.clients.producer.transactions import TransactionCompleter
from ottla.spark.connections import CLIENT_ID, Key, key_of

_producers: dict[Key, Producer] = {}
_completers: dict[Key, TransactionCompleter] = {}
# Those that are not in use.
_transactional_producers: dict[Key, Producer] = {}


def producer(settings: Mapping[str, str]) -> Producer:
    """The producer, without transactions, for these settings."""
    key = key_of(settings)
    if key not in _producers:
        _producers[key] = Producer({"client.id": CLIENT_ID, **settings})
    return _producers[key]


@contextmanager
def transactional_producer(
    settings: Mapping[str, str], transactional_id: str
) -> Iterator[Producer]:
    """A producer for one prepared transaction; its connections are kept for the next one.

    Where the block raises it is closed, and its transaction aborted.
    """
    key = key_of(settings)
    producer = _transactional_producers.pop(key, None)
    if producer is None:
        producer = Producer({**settings, "transactional.id": transactional_id})
    try:
        producer.take_id(transactional_id)
        yield producer
    except BaseException:
        producer.close()
        raise
    _transactional_producers[key] = producer


def completer(settings: Mapping[str, str]) -> TransactionCompleter:
    """The client that ends transactions which others have prepared, for these settings."""
    key = key_of(settings)
    if key not in _completers:
        _completers[key] = TransactionCompleter({"client.id": CLIENT_ID, **settings})
    return _completers[key]
