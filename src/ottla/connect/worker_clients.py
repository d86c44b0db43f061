"""The producers, consumers and admin clients that a worker makes for its connectors.

Settings come from four places, the later wins: what Connect needs, the worker's own security,
`producer.` (`consumer.`, `admin.`) of the worker's file, and `producer.override.` of the connector,
if connector.client.config.override.policy allows it (KIP-458).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.clients.admin.admin import Admin
from ottla.clients.consumer.consumer import Consumer
from ottla.clients.dead_letter_headers import LARGEST_LETTER
from ottla.clients.producer.producer import Producer
from ottla.config.config_def import dotted
from ottla.config.config_type import INT_MAX
from ottla.config.connect_config import WorkerConfig
from ottla.errors import ConfigError

DEAD_LETTERS: Final = "dlq-producer"
SECURITY: Final = ("security.", "ssl.", "sasl.")
OF_PRINCIPALS: Final = ("security.protocol", "sasl.jaas.config", "sasl.mechanism")
OVERRIDES: Final = ("producer.override.", "consumer.override.", "admin.override.")


def check_overrides(config: WorkerConfig, properties: Mapping[str, str]) -> dict[str, str]:
    """What a connector may not override, and why."""
    policy = config.connector_client_config_override_policy
    wrong = {}
    for key in properties:
        prefix = next((each for each in OVERRIDES if key.startswith(each)), None)
        if prefix is None or policy == "All":
            continue
        if policy == "None" or key.removeprefix(prefix) not in OF_PRINCIPALS:
            wrong[key] = (
                f"{key}: must not be set, the worker has "
                f"connector.client.config.override.policy={policy}"
            )
    return wrong


class WorkerClients:
    """Makes the clients of one connector; the caller closes them."""

    def __init__(
        self,
        config: WorkerConfig,
        worker_properties: Mapping[str, str],
        properties: Mapping[str, str],
    ) -> None:
        self._servers = ",".join(config.bootstrap_servers)
        self._worker = worker_properties
        self._connector = properties
        wrong = check_overrides(config, properties)
        if wrong:
            raise ConfigError(next(iter(wrong.values())))

    def producer(
        self,
        task: Any,
        kind: str = "producer",
        needed: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Producer:
        """The producer of a task: what was acknowledged is neither lost nor there twice.

        Kafka's own has no idempotence; here it is on, unless a setting turns it off. `needed` are
        defaults of the task, `more` are settings that nobody can change.
        """
        settings: dict[str, Any] = {
            "acks": "all",
            "enable.idempotence": "true",
            "delivery.timeout.ms": INT_MAX,
            "linger.ms": 5,
            "client.id": f"connector-{kind}-{task}",
            **(needed or {}),
        }
        if kind == DEAD_LETTERS:
            settings["max.request.size"] = LARGEST_LETTER
        return Producer(self._settings("producer.", settings) | dotted(None, more))

    def producer_settings(self) -> dict[str, Any]:
        """What is set for producers, by the worker or by the connector."""
        return self._settings("producer.", {})

    def consumer(self, task: Any, connector: str) -> Consumer:
        """The consumer of a task of a sink, a member of the group connect-<connector>."""
        settings = {
            "group.id": f"connect-{connector}",
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "client.id": f"connector-consumer-{task}",
        }
        return Consumer(self._settings("consumer.", settings))

    def consumer_group(self, connector: str) -> str:
        """The group of a sink's consumers."""
        default = f"connect-{connector}"
        return str(self._settings("consumer.", {"group.id": default})["group.id"])

    def admin(self, task: Any) -> Admin:
        settings = {"client.id": f"connector-adminclient-{task}"}
        return Admin(self._settings("admin.", settings))

    def worker_settings(self) -> dict[str, Any]:
        """The settings of the worker's own clients: where the cluster is, and who this is."""
        settings: dict[str, Any] = {"bootstrap.servers": self._servers}
        settings |= {k: v for k, v in self._worker.items() if k.startswith(SECURITY)}
        settings.pop("ssl.client.auth", None)
        return settings

    def _settings(self, prefix: str, needed: Mapping[str, Any]) -> dict[str, Any]:
        settings = self.worker_settings() | dict(needed)
        settings |= with_prefix(self._worker, prefix)
        return settings | with_prefix(self._connector, f"{prefix}override.")


def with_prefix(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The settings that begin with a prefix, without it."""
    return {
        key.removeprefix(prefix): value
        for key, value in properties.items()
        if key.startswith(prefix)
    }
