"""A node of ZooKeeper where no server answers as one; `tests/system/console` has a real one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from visitor import Visitor, visit

from ottla.console import zookeeper_node as module
from ottla.console.refusals import Refused
from ottla.console.zookeeper_node import zookeeper_node


@contextmanager
def odd_server(answer: bytes) -> Iterator[str]:
    """A server that says the same to each that connects, and nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted = []

        def serve() -> None:
            while True:
                try:
                    accepted.append(server.accept()[0])
                except OSError:  # the test is over
                    return
                accepted[-1].sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for each in accepted:
            each.close()


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 64, b"\0" * 64]
)
def test_server_that_is_no_zookeeper_is_waited_for_no_longer_than_the_limit(answer, monkeypatch):
    """It says nothing, or something else; the sentence names its address."""
    monkeypatch.setattr(module, "ANSWER_LIMIT_S", 0.3)
    monkeypatch.setattr(module, "SESSION_TIMEOUT_S", 0.3)
    with odd_server(answer) as address, pytest.raises(Refused, match=address) as raised:
        zookeeper_node(address, "/")
    assert raised.value.status == 502


def test_page_without_a_server_says_so(monkeypatch, group_broker):
    """And the path is looked at before."""
    monkeypatch.setattr(module, "ANSWER_LIMIT_S", 0.3)

    async def walk(visitor: Visitor) -> None:
        answer = await visitor.get("/registry")
        assert answer.status == 502
        assert "No ZooKeeper answers at 127.0.0.1:1/kafka." in answer.text
        assert (await visitor.get("/registry?path=brokers")).status == 400
        assert (await visitor.get("/registry?path=/../x")).status == 400

    visit(group_broker.bootstrap_servers, walk, zookeeper="127.0.0.1:1/kafka")
