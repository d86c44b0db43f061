"""A worker as a whole: its thread, its herder, its REST API. Commands and tests start this.

    with ConnectWorker.standalone(properties) as worker:
        worker.create({"name": "logs", "connector.class": "FileStreamSource", ...})
        print(worker.url)

Everything of the worker runs on one loop in a thread of its own, but for plug-ins, which have
threads of theirs. Methods here are for other threads, and wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from ottla.clients.admin.admin import Admin
from ottla.clients.client_settings import ClosedOnExit
from ottla.config.connect_config import DistributedConfig, StandaloneConfig, WorkerConfig
from ottla.connect.distributed_herder import DistributedHerder, offset_topic
from ottla.connect.herder import Herder, StandaloneHerder
from ottla.connect.offset_storage import FileOffsetStorage
from ottla.connect.plugin_thread import TargetState
from ottla.connect.secret_filter import SecretFilter
from ottla.connect.worker import Worker
from ottla.connect.worker_clients import WorkerClients
from ottla.errors import ConfigError, KafkaError
from ottla.runtime.io_thread import IoThread, run_in_thread

logger = logging.getLogger(__name__)

CLOSE_LIMIT_MS = 60_000
MakeHerder = Callable[[Any], Any]


class ConnectWorker(ClosedOnExit):
    """A worker that runs in this process."""

    herder: Herder

    def __init__(
        self, config: WorkerConfig, properties: Mapping[str, str], make: MakeHerder
    ) -> None:
        """`make` builds the herder, on the loop, of this object's runtime."""
        self.config = config
        self.properties = dict(properties)
        self._io = IoThread("connect-worker")
        self.runtime = self._io.runtime
        self.url = ""
        """Where its REST API is reached."""
        try:
            self._check_cluster()
            self._io.run(self._start(make))
        except BaseException:
            self._io.close()
            raise

    @classmethod
    def standalone(cls, properties: Mapping[str, str]) -> ConnectWorker:
        """A worker of its own, which keeps offsets in a file."""
        config = StandaloneConfig.parse(properties)
        offsets = FileOffsetStorage(config.offset_storage_file_filename)

        async def make(self: ConnectWorker) -> Herder:
            return StandaloneHerder(Worker(config, self.properties, self.runtime, offsets))

        return cls(config, properties, make)

    @classmethod
    def distributed(cls, properties: Mapping[str, str]) -> ConnectWorker:
        """A worker of a group, which keeps everything in topics; it joins when it listens."""
        config = DistributedConfig.parse(properties)

        async def make(self: ConnectWorker) -> Herder:
            from ottla.connect.rest import WorkerRequests

            settings = WorkerClients(config, self.properties, {}).worker_settings()
            offsets = offset_topic(config, self.properties, settings)
            await asyncio.wrap_future(run_in_thread(offsets.start, "connect-offsets"))
            worker = Worker(config, self.properties, self.runtime, offsets)
            herder = DistributedHerder(
                worker, config, settings, WorkerRequests(config, self.properties).ask
            )
            await herder.start()
            return herder

        return cls(config, properties, make)

    def create(
        self, properties: Mapping[str, str], target: TargetState | None = None
    ) -> dict[str, Any]:
        """Create a connector, or change the one of this name; its info as REST has it."""
        name = properties.get("name", "").strip()
        if not name:
            raise ConfigError("name: must be set")
        call = self.herder.put_config(name, properties, may_replace=True, target=target)
        info: dict[str, Any] = self._io.run(call)[1]
        return info

    def status(self, name: str) -> dict[str, Any]:
        """The status of a connector and its tasks, as REST has it."""

        async def status() -> dict[str, Any]:
            return self.herder.status(name)

        return self._io.run(status())

    def run(self, work: Any) -> Any:
        """Run a coroutine on the worker's loop."""
        return self._io.run(work)

    def close(self) -> None:
        """Stop all that runs, store offsets, end the REST API."""
        if not self._io.is_alive:
            return
        # Tasks may take that long to stop, and then connectors.
        limit_ms = 2 * self.config.task_shutdown_graceful_timeout_ms + CLOSE_LIMIT_MS
        try:
            self._io.run(self._close(), limit_ms)
        finally:
            self._io.close()

    def _check_cluster(self) -> None:
        """The cluster must answer before anything is begun: a wrong address is reported at once."""
        clients = WorkerClients(self.config, self.properties, {})
        with clients.admin("connect-worker") as admin:
            self._cluster_id = _cluster_id(admin)

    async def _start(self, make: MakeHerder) -> None:
        from ottla.connect.rest import RestServer

        self.herder = await make(self)
        self._secrets = SecretFilter(self.herder.worker.providers.hide)
        self._secrets.begin()
        self.herder.kafka_cluster_id = self._cluster_id
        self.rest = RestServer(self.config, self.herder)
        try:
            await self.rest.start()
        except OSError as error:
            await self.herder.close()
            self._secrets.end()
            listeners = ",".join(self.config.listeners)
            raise ConfigError(f"listeners={listeners}: cannot be listened at: {error}") from None
        self.url = self.rest.advertised_url
        self.herder.worker_id = self.url.partition("://")[2].rstrip("/")
        if isinstance(self.herder, DistributedHerder):
            self.herder.begin(self.url)

    async def _close(self) -> None:
        await self.rest.close()
        await self.herder.close()
        self._secrets.end()


def _cluster_id(admin: Admin) -> str | None:
    try:
        return admin.describe_cluster().cluster_id
    except KafkaError as error:
        raise ConfigError(f"bootstrap.servers: no broker answers there: {error.message}") from error
