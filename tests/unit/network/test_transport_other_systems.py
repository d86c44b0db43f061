"""What only Linux has is used where it is there, and not needed elsewhere."""

from __future__ import annotations

import os
import socket

import pytest

from ottla import Producer
from ottla.network import transport
from ottla.network.transport import PROBE_SECONDS, probe
from ottla.runtime import LocalDisk
from ottla.testing import InProcessBroker

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
    monkeypatch.setattr(transport, "MSG_MORE", 0)


def test_records_are_produced_and_fetched_from_a_disk(other_system, tmp_path):
    """Files are read where the kernel does not send them."""
    with InProcessBroker(data_dir=tmp_path) as broker:
        with Producer(broker.bootstrap_servers) as producer:
            for future in [producer.send("t", VALUE) for _ in range(COUNT)]:
                future.result()

        assert [record.value for record in broker.records("t")] == [VALUE] * COUNT


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
