"""An `Admin` in a virtual world, and the calls that tests make of it, in tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from mock_kafka import MockCluster
from virtual_thread import virtual_threads

from ottla import Admin, KafkaError
from ottla.errors import ErrorCode
from ottla.protocol.message import Request, Response
from ottla.testing import MockRuntime

ANYONE = None
CONTROLLER = 1
COORDINATOR = 2
REQUEST_TIMEOUT_MS = 30_000


def admin_of(
    runtime: MockRuntime, cluster: MockCluster, patch: pytest.MonkeyPatch, **settings: Any
) -> Admin:
    """An admin client of the cluster, whose calls run in virtual time."""
    virtual_threads(patch, runtime, "ottla.clients.admin.admin")
    return Admin(cluster.bootstrap_servers, **settings)


def asked(cluster: MockCluster, kind: type[Request]) -> list[tuple[int, Any]]:
    """The requests of a kind, and the brokers that have got them."""
    return [
        (node_id, request)
        for node_id, broker in cluster.brokers.items()
        for request in broker.sent(kind)
    ]


class Call(NamedTuple):
    """A call, the request that it makes of a broker (None: of any), and what comes of the answer.

    An error code in the place of the result is that of the error that is raised.
    """

    call: Callable[[Admin], Any]
    broker: int | None
    request: Request
    answer: Response
    result: Any

    def check(self, admin: Admin, cluster: MockCluster) -> None:
        """Make the call, and compare."""
        kind = type(self.request)
        for broker in cluster.brokers.values():
            broker.on(kind, self.answer)
        if isinstance(self.result, ErrorCode):
            with pytest.raises(KafkaError) as caught:
                self.call(admin)
            assert caught.value.error is self.result
        else:
            assert self.call(admin) == self.result
        ((broker_id, request),) = asked(cluster, kind)
        assert request == self.request
        assert self.broker in (ANYONE, broker_id)
        assert cluster.runtime.clock.monotonic_ms() == 0, "an attempt failed, and was repeated"


class OldBroker(NamedTuple):
    """A call that needs a version of an API; brokers that have only those before are too old."""

    call: Callable[[Admin], Any]
    kind: type[Request]
    version: int

    def check(self, admin: Admin, cluster: MockCluster) -> None:
        """Make the call of brokers that are too old."""
        for broker in cluster.brokers.values():
            broker.versions[self.kind.api_key] = (0, self.version - 1)
        with pytest.raises(KafkaError, match=f"needs one of the versions {self.version} to"):
            self.call(admin)
        assert asked(cluster, self.kind) == []
