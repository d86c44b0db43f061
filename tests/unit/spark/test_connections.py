"""Clients that a process keeps."""

from __future__ import annotations

import os

import pytest

from ottla.spark import connections, producers


@pytest.fixture
def opened(monkeypatch):
    """Records the settings of each client that is opened."""
    made = []

    def client(settings):
        made.append(settings)
        return object()

    monkeypatch.setattr(connections, "Admin", client)
    monkeypatch.setattr(connections, "PartitionReader", client)
    monkeypatch.setattr(producers, "Producer", client)
    monkeypatch.setattr(producers, "TransactionCompleter", client)
    monkeypatch.setattr(producers, "_producers", {})
    monkeypatch.setattr(producers, "_completers", {})
    monkeypatch.setattr(connections, "_admins", {})
    monkeypatch.setattr(connections, "_readers", {})
    return made


@pytest.mark.parametrize(
    "get",
    [
        connections.admin,
        connections.partition_reader,
        producers.producer,
        producers.completer,
    ],
)
def test_client_is_opened_once_for_the_same_settings(opened, get):
    """Tasks and micro-batches share it; other settings have a client of their own."""
    first = get({"bootstrap.servers": "x:1"})

    assert get({"bootstrap.servers": "x:1"}) is first
    assert get({"bootstrap.servers": "y:1"}) is not first
    assert len(opened) == 2


class FakeProducer:
    """A producer that knows which ids it had, and whether it is closed."""

    def __init__(self, settings):
        self.ids = [settings["transactional.id"]]
        self.is_closed = False

    def take_id(self, transactional_id):
        self.ids.append(transactional_id)

    def close(self):
        self.is_closed = True


@pytest.fixture
def transactional(monkeypatch):
    """Begins a block with a transactional producer, a fake one, of an empty process."""
    monkeypatch.setattr(producers, "Producer", FakeProducer)
    monkeypatch.setattr(producers, "_transactional_producers", {})
    return lambda name: producers.transactional_producer({"bootstrap.servers": "x:1"}, name)


def test_transactional_producer_is_kept_for_the_next_transaction(transactional):
    """Under another id, but by one transaction at a time."""
    with transactional("a") as first, transactional("b") as second:
        assert first is not second
    with transactional("c") as third:
        assert third.ids[-1] == "c"
        assert third in (first, second)
    assert not third.is_closed


def test_transactional_producer_is_closed_where_its_transaction_fails(transactional):
    """That aborts what is open."""
    with pytest.raises(ValueError, match="no"), transactional("a") as first:
        raise ValueError("no")
    assert first.is_closed
    with transactional("a") as second:
        assert second is not first


def test_forked_process_opens_its_own(opened, monkeypatch):
    """Threads do not follow into a fork, so a client does not either."""
    first = connections.partition_reader({"bootstrap.servers": "x:1"})
    monkeypatch.setattr(os, "getpid", lambda: -1)

    assert connections.partition_reader({"bootstrap.servers": "x:1"}) is not first


def test_admin_takes_only_what_it_knows(opened):
    """Settings of a consumer would be warned of."""
    connections.admin({"bootstrap.servers": "x:1", "fetch.max.bytes": "1", "client.id": "mine"})

    assert opened == [{"bootstrap.servers": "x:1", "client.id": "mine"}]
