"""A whole broker in virtual time, on a disk in memory; its processor has no sockets."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from apis_world import Client

from ottla.config.broker_config import BrokerConfig
from ottla.controller.requested_topic import RequestedTopic
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.message import Request
from ottla.registry.embedded import EmbeddedRegistry
from ottla.security.principal import ANONYMOUS
from ottla.server.broker import Broker
from ottla.testing import MemoryDisk, mock_runtime

LOG_DIR = "/logs"
CORRELATION_ID = 7
LISTENER = "PLAINTEXT"


class FakeProcessor:
    """Listens on nothing; it notes what the broker wants of it."""

    def __init__(self, world: BrokerWorld, network: Any) -> None:
        self.world, self.network = world, network
        self.connections: list[Any] = []
        self.listeners: list[Any] = []
        self.sasl: dict[str, Any] = {}
        self.tls: dict[str, Any] = {}
        self.traffic: dict[str, Any] = {}
        self.sent = SimpleNamespace(on_sent=None)
        self.open: dict[str, int] = {}
        self.ip_limits: list[tuple[str, float | None]] = []
        self.max_frame_bytes: Callable[[int], int] | None = None

    def listen(self, name: str, host: str, port: int) -> Any:
        self.world.note("listen")
        if self.world.refused is not None:
            raise self.world.refused
        self.open[name] = port or 9092
        return SimpleNamespace(port=port or 9092)

    def stop_listening(self, name: str) -> None:
        del self.open[name]

    def update_config(self, network: Any) -> None:
        self.network = network

    def start(self) -> None:
        self.world.note("processor.start")

    async def stop(self, timeout_ms: int) -> None:
        self.world.note("processor.stop")

    def limit_ip(self, ip: str, limit: float | None) -> None:
        self.ip_limits.append((ip, limit))


class BrokerWorld:
    """One broker, its disk, and the steps of its life in the order in which they were noted."""

    seeds = itertools.count()

    def __init__(self, disk: MemoryDisk | None = None, **settings: Any) -> None:
        self.runtime = mock_runtime(next(self.seeds), disk)
        self.disk = self.runtime.disk
        if disk is None:
            self.disk.make_dirs(LOG_DIR)
        self.steps: list[tuple[str, str]] = []
        self.refused: OSError | None = None
        """What a listener meets when it is opened."""
        self.registry = EmbeddedRegistry(self.runtime, f"{LOG_DIR}/registry")
        named = {name.replace("_", "."): str(value) for name, value in settings.items()}
        self.config = BrokerConfig.parse({"log.dirs": LOG_DIR, **named})
        self.broker = Broker(
            self.config,
            self.runtime,
            registry=self.registry,
            make_processor=lambda runtime, network, *calls: FakeProcessor(self, network),
        )

    def note(self, step: str) -> None:
        """Remember a step, and the state in which the broker took it."""
        self.steps.append((step, self.broker.state.name))

    def run(self, coroutine: Any) -> Any:
        return self.runtime.scheduler.run(coroutine)

    def start(self) -> BrokerWorld:
        self.run(self.broker.startup())
        self.runtime.advance(10)
        return self

    def stop(self) -> None:
        self.run(self.broker.shutdown())

    def again(self, **settings: Any) -> BrokerWorld:
        """The next process on the same disk, started."""
        self.stop()
        return BrokerWorld(self.disk, **settings).start()

    def spy(self, owner: object, method: str, step: str = "") -> list[tuple[Any, ...]]:
        """Note each call of a method, which is made as before; the list gets its arguments."""
        calls: list[tuple[Any, ...]] = []
        made = getattr(owner, method)

        def call(*arguments: Any, **options: Any) -> Any:
            self.note(step or method)
            calls.append((*arguments, *options.values()))
            return made(*arguments, **options)

        setattr(owner, method, call)
        return calls

    def create(self, name: str, **config: Any) -> None:
        """A topic with one partition."""
        named = {key.replace("_", "."): str(value) for key, value in config.items()}
        topic = RequestedTopic(name, num_partitions=1, replication_factor=1, config=named)
        errors = self.run(self.broker.controller.create_topics([topic]))
        assert not isinstance(errors[name], Exception), errors
        self.runtime.advance(10)

    def change(self, entity_type: str, name: str, **config: Any) -> None:
        """Override settings of a topic or a broker: these, and no others."""
        named = {key.replace("_", "."): str(value) for key, value in config.items()}
        self.run(self.broker.dynamic_config.entities.write(entity_type, name, named))
        self.runtime.advance(10)

    def change_client(self, entity: Any, **config: Any) -> None:
        """Give a user, a client or an address these limits."""
        texts = {key: str(value) for key, value in config.items()}
        entities = self.broker.dynamic_config.entities
        self.run(entities.change_client(entity, lambda before: texts))
        self.runtime.advance(10)

    def ask(
        self,
        body: Request,
        version: int,
        *,
        listener: str = LISTENER,
        principal: Any = ANONYMOUS,
        client_id: str = "app",
    ) -> Any:
        """The answer to a client's request, or why its connection was closed."""
        client = Client(principal, listener_name=listener)
        frame = encode_request(version, CORRELATION_ID, client_id, body)
        client.hand_over(self.broker.apis, bytearray(frame[4:]))
        self.broker.replica_manager.complete_delayed()
        self.runtime.advance(100)
        if not client.sent:
            return client.closed
        return decode_response(type(body), version, client.sent[0])[1]
