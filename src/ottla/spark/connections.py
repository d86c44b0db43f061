"""Clients that this process keeps open, by their settings.

Spark makes a new reader object for every task and planner call, but its Python processes live on
from one micro-batch to the next; connecting once for each process keeps small batches quick.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from ottla.clients.admin.admin import Admin
    from ottla.clients.partition_reader import PartitionReader
    from ottla.clients.producer.producer import Producer
    from ottla.clients.producer.transactions import TransactionCompleter

# Threads do not survive a fork: a client belongs to the process that made it.
Key: TypeAlias = tuple[int, frozenset[tuple[str, str]]]
CLIENT_ID = "ottla-spark"

_admins: dict[Key, Admin] = {}
_readers: dict[Key, PartitionReader] = {}
_producers: dict[Key, Producer] = {}
_completers: dict[Key, TransactionCompleter] = {}
# Those that are not in use.
_transactional_producers: dict[Key, Producer] = {}


def admin(settings: Mapping[str, str]) -> Admin:
    """The admin client for these settings."""
    from ottla.clients.admin.admin import Admin

    key = key_of(settings)
    if key not in _admins:
        _admins[key] = Admin(_admin_settings(settings))
    return _admins[key]


def partition_reader(settings: Mapping[str, str]) -> PartitionReader:
    """The reader of record batches for these settings."""
    from ottla.clients.partition_reader import SCAN_FETCH_BYTES, PartitionReader

    key = key_of(settings)
    if key not in _readers:
        fixed = {"client.id": CLIENT_ID, "max.partition.fetch.bytes": str(SCAN_FETCH_BYTES)}
        _readers[key] = PartitionReader({**fixed, **settings})
    return _readers[key]


def producer(settings: Mapping[str, str]) -> Producer:
    """The producer, without transactions, for these settings."""
    from ottla.clients.producer.producer import Producer

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
    from ottla.clients.producer.producer import Producer

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
    from ottla.clients.producer.transactions import TransactionCompleter

    key = key_of(settings)
    if key not in _completers:
        _completers[key] = TransactionCompleter({"client.id": CLIENT_ID, **settings})
    return _completers[key]


def key_of(settings: Mapping[str, str]) -> Key:
    """The key that a client is kept under."""
    return os.getpid(), frozenset(settings.items())


def _admin_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a consumer that an admin client has, too."""
    from ottla.config.client_config import AdminConfig

    return {"client.id": CLIENT_ID, **AdminConfig.known_of(settings)}
