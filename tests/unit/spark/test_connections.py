"""Clients that a process keeps."""

from __future__ import annotations

import os

import pytest

from ottla.clients import partition_reader
from ottla.clients.admin import admin as admin_module
from ottla.clients.producer import producer as producer_module
from ottla.spark import connections


@pytest.fixture
def opened(monkeypatch):
    """Records the settings of each client that is opened."""
    made = []

    def client(settings):
        made.append(settings)
        return object()

    monkeypatch.setattr(admin_module, "Admin", client)
    monkeypatch.setattr(partition_reader, "PartitionReader", client)
    monkeypatch.setattr(producer_module, "Producer", client)
    monkeypatch.setattr(connections, "_producers", {})
    monkeypatch.setattr(connections, "_admins", {})
    monkeypatch.setattr(connections, "_readers", {})
    return made


@pytest.mark.parametrize(
    "get", [connections.admin, connections.partition_reader, connections.producer]
)
def test_client_is_opened_once_for_the_same_settings(opened, get):
    """Tasks and micro-batches share it; other settings have a client of their own."""
    first = get({"bootstrap.servers": "x:1"})

    assert get({"bootstrap.servers": "x:1"}) is first
    assert get({"bootstrap.servers": "y:1"}) is not first
    assert len(opened) == 2


def test_forked_process_opens_its_own(opened, monkeypatch):
    """Threads do not follow into a fork, so a client does not either."""
    first = connections.partition_reader({"bootstrap.servers": "x:1"})
    monkeypatch.setattr(os, "getpid", lambda: -1)

    assert connections.partition_reader({"bootstrap.servers": "x:1"}) is not first


def test_admin_takes_only_what_it_knows(opened):
    """Settings of a consumer would be warned of."""
    connections.admin({"bootstrap.servers": "x:1", "fetch.max.bytes": "1", "client.id": "mine"})

    assert opened == [{"bootstrap.servers": "x:1", "client.id": "mine"}]
