"""The settings of one console, as its command line gives them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.structs import Value, field

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.console.masks import Mask
    from ottla.console.protobuf_values import ProtobufTopics

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_CONSOLE_PORT: Final = 8090


class ConsoleSettings(Value, frozen=True):
    """Where a console listens, which brokers it asks, and how much it shows and changes."""

    bootstrap_servers: str
    client: Mapping[str, str] = field(default_factory=dict)
    """Settings of its clients, by Kafka's names."""
    host: str = DEFAULT_HOST
    port: int = DEFAULT_CONSOLE_PORT
    name: str = ""
    """The name of the cluster at the top of each page; its brokers' address where it is empty."""
    names: tuple[str, ...] = ()
    """Host names besides localhost and addresses by which browsers may call it."""
    has_token: bool = True
    """Whether a browser is let in by a token only."""
    has_login: bool = False
    """Whether each user logs in with a name and a password of the cluster (SASL)."""
    read_only: bool = False
    hide_records: bool = False
    """Whether keys, values and headers of records are shown nowhere."""
    masks: tuple[Mask, ...] = ()
    connect: str = ""
    """The URL of a worker of Kafka Connect, whose connectors have pages; empty for none."""
    metrics: tuple[str, ...] = ()
    """The URLs of brokers' metrics, as text for Prometheus; a name and password may be in them."""
    alerts: Mapping[str, int] = field(default_factory=dict)
    """Limits of the rules of alerts that are not those by default, in their units; -1: off."""
    webhook: str = ""
    """The URL to which alerts are sent; empty for none."""
    report: str = ""
    """The HTML file that a run of a pipeline or of a site writes; empty for none."""
    zookeeper: str = ""
    """The ZooKeeper whose tree the page of the registry shows, as `host:2181/chroot`; empty for
    the registry that brokers show beside their metrics."""
    schema_registry: str = ""
    """The URL of a schema registry, by whose schemas values are read; empty for none."""
    protobuf: tuple[ProtobufTopics, ...] = ()
    """Topics whose values are messages of Protocol Buffers."""

    @property
    def shown_name(self) -> str:
        """The name at the top of each page."""
        return self.name or self.bootstrap_servers

    @property
    def shows_all_of_records(self) -> bool:
        """Whether no part of any record is hidden, so that texts which may quote them are shown."""
        return not self.hide_records and not self.masks
