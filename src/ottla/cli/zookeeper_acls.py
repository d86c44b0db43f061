"""ACLs as ZooKeeper has them: `ottla acls --authorizer-properties zookeeper.connect=...`.

This is how the first ACLs are made, before any broker runs. Brokers that run follow the change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager

from ottla.cli.zookeeper_session import address, reachable
from ottla.config.broker_config import BrokerConfig
from ottla.errors import KafkaError
from ottla.registry.acl_store import AclStore
from ottla.runtime.io_thread import IoThread
from ottla.runtime.runtime import real_runtime
from ottla.security.acls import AclBinding, AclBindingFilter, AclTable
from ottla.server.membership import cluster_registry


class StoredAcls:
    """The ACLs of a cluster, with the methods of an admin client."""

    def __init__(self, io: IoThread, store: AclStore) -> None:
        self._io = io
        self._store = store

    def describe_acls(self, wanted: AclBindingFilter | None = None) -> list[AclBinding]:
        """The ACLs that match, or all of them."""
        self._io.run(self._store.load())
        return [each for each in self._store.table if wanted is None or wanted.matches(each)]

    def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Add ACLs; the first error is raised."""
        outcomes = self._io.run(self._store.add(list(bindings)))
        _raise_first(outcomes.values())

    def delete_acls(
        self, filters: Iterable[AclBindingFilter]
    ) -> dict[AclBindingFilter, list[AclBinding]]:
        """Remove the ACLs that each filter matches; the first error is raised."""
        wanted = list(filters)
        self._io.run(self._store.load())
        removed = self._io.run(self._store.remove(wanted))
        _raise_first(error for outcomes in removed for error in outcomes.values())
        return {each: list(found) for each, found in zip(wanted, removed, strict=True)}


def _raise_first(errors: Iterable[KafkaError | None]) -> None:
    for error in filter(None, errors):
        raise error


@contextmanager
def stored_acls(settings: Mapping[str, str]) -> Iterator[StoredAcls]:
    """A session for the block, by a broker's settings; CommandError where no server answers."""
    servers, _ = address(settings["zookeeper.connect"])
    reachable(servers)
    with closing(IoThread("ottla-acls")) as io:
        store = io.run(_open(settings))
        try:
            yield StoredAcls(io, store)
        finally:
            io.run(store.registry.close())


async def _open(settings: Mapping[str, str]) -> AclStore:
    runtime = real_runtime(asyncio.get_running_loop(), 1)
    registry = cluster_registry(runtime, BrokerConfig.parse(settings))
    await registry.start()
    store = AclStore(runtime, registry, AclTable())
    await store.ensure_paths()
    return store
