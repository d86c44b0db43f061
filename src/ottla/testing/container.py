"""`KafkaContainer` without a container: the methods of testcontainers-python's, on a broker here.

A suite that uses `testcontainers.kafka.KafkaContainer` changes its import, and no longer needs
Docker. Arguments for an image, a network or a log of the container have no effect; a call that
would run something in the container is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn, Self

from ottla.testing.in_process_broker import InProcessBroker

IMAGE: Final = "confluentinc/cp-kafka:7.6.0"
PORT: Final = 9093
PREFIX: Final = "KAFKA_"
OWN: Final = frozenset(
    {
        "advertised.listeners",
        "listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "controller.listener.names",
        "controller.quorum.voters",
        "process.roles",
        "node.id",
        "zookeeper.connect",
        "log.dirs",
    }
)
"""Where the broker is and what it consists of: not for the environment of a container to say."""
NOT_SETTINGS: Final = ("heap.opts", "jvm.performance.opts", "log4j", "opts", "jmx", "gc.log.opts")


class KafkaContainer:
    """A broker of Kafka's protocol for tests, started by `start` or as a context manager.

    `image` and other arguments of a container have no effect. `with_env("KAFKA_X_Y", value)` is
    the broker's setting `x.y`.
    """

    def __init__(self, image: str = IMAGE, port: int = PORT, **kwargs: Any) -> None:
        self.image = image
        self.port = port
        """The port inside of the container; `get_exposed_port` says which one clients use."""
        self.kraft_enabled = False
        self.cluster_id = ""
        self.env: dict[str, str] = {}
        for name, value in dict(kwargs.get("env") or {}).items():
            self.with_env(name, value)
        self._host_port = 0
        self._broker: InProcessBroker | None = None

    @property
    def broker(self) -> InProcessBroker:
        """The broker in place of the container, with its waits and faults."""
        if self._broker is None:
            raise RuntimeError("the container was not started")
        return self._broker

    def start(self, timeout: float = 30) -> Self:
        """Start the broker; returns when it serves clients, long before any timeout."""
        broker = InProcessBroker(**settings_of(self.env))
        broker.port = self._host_port
        self._broker = broker.start()
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Stop the broker; its data are gone, as with a container."""
        if self._broker is not None:
            self._broker.stop()
            self._broker = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def get_bootstrap_server(self) -> str:
        """`host:port`, for a client's `bootstrap.servers`."""
        return self.broker.bootstrap_servers

    def get_container_host_ip(self) -> str:
        return self.get_bootstrap_server().rpartition(":")[0]

    def get_exposed_port(self, port: int) -> int:
        """The port on this machine for the broker's one in the container."""
        if port != self.port:
            raise ConnectionError(f"port {port} is not exposed: the broker's is {self.port}")
        return self.broker.port

    # Settings of the container before it starts

    def with_env(self, key: str, value: object) -> Self:
        self.env[key] = str(value)
        return self

    def with_envs(self, **variables: object) -> Self:
        for key, value in variables.items():
            self.with_env(key, value)
        return self

    def with_kraft(self) -> Self:
        """No ZooKeeper: there is none in any case."""
        self.kraft_enabled = True
        return self

    def with_cluster_id(self, cluster_id: str) -> Self:
        """Noted, as the container does with KRaft; the broker makes an id of its own."""
        self.cluster_id = cluster_id
        return self

    def with_exposed_ports(self, *ports: str | int) -> Self:
        return self

    def with_bind_ports(self, container: str | int, host: str | int | None = None) -> Self:
        """Have the broker listen on the port `host` of this machine."""
        if int(str(container).partition("/")[0]) == self.port:
            self._host_port = int(host or 0)
        return self

    def with_name(self, name: str) -> Self:
        return self

    def with_network(self, network: object) -> Self:
        return self

    def with_network_aliases(self, *aliases: object) -> Self:
        return self

    def with_kwargs(self, **kwargs: object) -> Self:
        return self

    def maybe_emulate_amd64(self) -> Self:
        return self

    def with_command(self, command: object) -> NoReturn:
        _refuse("with_command", "there is no container in which to run a command")

    def with_volume_mapping(self, host: str, container: str, mode: str = "ro") -> NoReturn:
        _refuse("with_volume_mapping", "use InProcessBroker(data_dir) for a broker on a directory")

    def exec(self, command: object) -> NoReturn:
        _refuse("exec", "use Admin, or `ottla` on the command line, with get_bootstrap_server()")

    def get_wrapped_container(self) -> NoReturn:
        _refuse("get_wrapped_container", "there is no container")

    def get_logs(self) -> tuple[bytes, bytes]:
        """Nothing: the broker logs with `logging`, under the names of its modules."""
        return b"", b""


def settings_of(env: Mapping[str, str]) -> dict[str, Any]:
    """The broker's settings among the variables of a container's environment.

    As in Kafka's images: KAFKA_, and the name with underscores for dots.
    """
    found = {}
    for variable, value in env.items():
        name = variable.removeprefix(PREFIX).lower().replace("_", ".")
        is_setting = variable.startswith(PREFIX) and not name.startswith(NOT_SETTINGS)
        if is_setting and name not in OWN:
            found[name] = value
    return found


def _refuse(method: str, instead: str) -> NoReturn:
    raise RuntimeError(f"{method}: ottla.testing.KafkaContainer is no container; {instead}")
