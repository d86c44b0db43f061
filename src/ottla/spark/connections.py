"""Clients for reading and asking that this process keeps open, by their settings.

Spark makes a new reader object for every task and planner call, but its Python processes live on
from one micro-batch to the next; connecting once for each process keeps small batches quick.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeAlias

from ottla.clients.admin.admin import Admin
from ottla.clients.partition_reader import SCAN_FETCH_BYTES, PartitionReader
from ottla.config.client_config import AdminConfig

# Threads do not survive a fork: a client belongs to the process that made it.
Key: TypeAlias = tuple[int, frozenset[tuple[str, str]]]
CLIENT_ID = "ottla-spark"

_admins: dict[Key, Admin] = {}
_readers: dict[Key, PartitionReader] = {}


def admin(settings: Mapping[str, str]) -> Admin:
    """The admin client for these settings."""
    key = key_of(settings)
    if key not in _admins:
        _admins[key] = Admin(_admin_settings(settings))
    return _admins[key]


def partition_reader(settings: Mapping[str, str]) -> PartitionReader:
    """The reader of record batches for these settings."""
    key = key_of(settings)
    if key not in _readers:
        fixed = {"client.id": CLIENT_ID, "max.partition.fetch.bytes": str(SCAN_FETCH_BYTES)}
        _readers[key] = PartitionReader({**fixed, **settings})
    return _readers[key]


def key_of(settings: Mapping[str, str]) -> Key:
    """The key that a client is kept under."""
    return os.getpid(), frozenset(settings.items())


def _admin_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a consumer that an admin client has, too."""
    return {"client.id": CLIENT_ID, **AdminConfig.known_of(settings)}
