"""What only Linux has is used where it is there, and not needed elsewhere."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket

import kqueue_calls
import pytest

from ottla import Consumer, Producer, TopicPartition
from ottla.errors import ConfigError
from ottla.network import tls_transport, transport
from ottla.network.transport import PROBE_SECONDS, probe
from ottla.runtime import LocalDisk
from ottla.runtime.poller import EpollPoller, pollers
from ottla.runtime.portable_pollers import KqueuePoller
from ottla.runtime.serving_loop import open_poller
from ottla.testing import InProcessBroker, InProcessCluster

OS_CALLS = ("posix_fadvise", "preadv", "sendfile", "RWF_NOWAIT")
COUNT = 20
VALUE = b"x" * 100_000


@pytest.fixture
def other_system(monkeypatch):
    """A system without Linux's calls."""
    for name in OS_CALLS:
        monkeypatch.delattr(os, name)
    for name in ("TCP_KEEPIDLE", "TCP_KEEPCNT"):
        monkeypatch.delattr(socket, name)
    for module in (tls_transport, transport):
        monkeypatch.setattr(module, "MSG_MORE", 0)


def test_records_are_produced_and_fetched_from_a_disk(other_system, tmp_path):
    """Files are read where the kernel does not send them."""
    with InProcessBroker(data_dir=tmp_path) as broker:
        with Producer(broker.bootstrap_servers) as producer:
            for future in [producer.send("t", VALUE) for _ in range(COUNT)]:
                future.result()

        assert [record.value for record in broker.records("t")] == [VALUE] * COUNT


def test_broker_serves_where_there_is_only_select(monkeypatch):
    """The last of the pollers does for plain requests, long polls and many records."""
    for name in ("epoll", "poll"):
        monkeypatch.delattr(select, name)
    with InProcessBroker() as broker, Producer(broker.bootstrap_servers) as producer:
        for future in [producer.send("t", VALUE) for _ in range(COUNT)]:
            future.result()
        with Consumer(broker.bootstrap_servers) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek_to_beginning()
            records = iter(consumer)
            values = [next(records).value for _ in range(COUNT)]
            producer.send("t", b"waited for").result()
            assert next(records).value == b"waited for"

    assert values == [VALUE] * COUNT


def test_best_poller_of_the_system_is_taken(monkeypatch):
    """epoll here, kqueue where that is, poll and select at the last."""
    for name in ("epoll", "poll"):
        best = open_poller("auto")
        assert isinstance(best, EpollPoller) == (name == "epoll")
        best.close()
        monkeypatch.delattr(select, name)
    assert pollers() == ("select",)
    monkeypatch.setattr(select, "kqueue", kqueue_calls.kqueue, raising=False)
    best = open_poller("auto")

    assert isinstance(best, KqueuePoller)
    best.close()


@pytest.mark.parametrize("kind", [InProcessBroker, InProcessCluster])
def test_poller_that_the_system_lacks_is_named(kind):
    """With those that it has."""
    with (
        pytest.raises(ConfigError, match=r"ottla\.network\.poller=kqueue: this system has epoll"),
        kind(ottla_network_poller="kqueue"),
    ):
        pass


def test_client_without_an_address_is_passed_over(monkeypatch):
    """macOS accepts a client that has gone already, and knows no address of it."""
    accept = socket.socket.accept
    gone = []

    def accept_without_address(listener):
        client, address = accept(listener)
        if not gone:
            gone.append(client)
            return client, None
        return client, address

    monkeypatch.setattr(socket.socket, "accept", accept_without_address)
    with InProcessBroker() as broker, Producer(broker.bootstrap_servers) as producer:
        producer.send("t", b"value").result()

    assert gone[0].fileno() == -1


def test_macos_syncs_past_the_cache_of_the_disk(monkeypatch, tmp_path):
    """fsync alone ends there; where the file system has no such call it has to do."""
    calls = []

    def full_sync(fd, command):
        calls.append(command)
        if len(calls) > 1:
            raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", full_sync)
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append("fsync"))
    file = LocalDisk().open(str(tmp_path / "log"), create=True)
    file.fsync()
    file.fsync()
    file.close()

    assert calls == [51, 51, "fsync"]


def test_file_is_sent_cold_where_the_page_cache_cannot_be_asked(other_system, tmp_path):
    """It counts as cached, and to read ahead does no harm."""
    (tmp_path / "log").write_bytes(VALUE)
    file = LocalDisk().open(str(tmp_path / "log"))

    assert file.is_cached(len(VALUE), 0)
    file.read_ahead(len(VALUE), 0)
    file.close()


def test_probe_uses_the_name_that_the_system_has(other_system, monkeypatch):
    """KEEPALIVE is macOS's name for the idle time before the first probe."""
    monkeypatch.setattr(socket, "TCP_KEEPALIVE", 4, raising=False)  # Linux's TCP_KEEPIDLE
    with socket.socket() as endpoint:
        probe(endpoint)

        assert endpoint.getsockopt(socket.IPPROTO_TCP, 4) == PROBE_SECONDS
