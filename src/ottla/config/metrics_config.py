"""The settings of metrics and health: those that a broker serves, and those of clients (KIP-714).

Those of the broker are our own, as Kafka has JMX in their place.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final, Self

from ottla.config.config_def import LOW, ConfigTable, config_key
from ottla.config.config_type import STRING, Password
from ottla.config.rule import at_least, between, one_of
from ottla.errors import ConfigError
from ottla.structs import NamedTuple

LOOPBACK: Final = "127.0.0.1"
HTTP: Final = "http"
HTTPS: Final = "https"


class MetricsEndPoint(NamedTuple):
    """Where metrics are served; port 0 is any free one."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


class MetricsConfig(ConfigTable, group=True):
    """Metrics and health over HTTP."""

    metrics_listener: MetricsEndPoint | None = config_key(
        default=None,
        type=STRING,
        doc="Where metrics and health are served over HTTP, as http://127.0.0.1:9404; without a "
        "host only this machine can connect, and http://0.0.0.0:9404 is every address. https:// "
        "takes the keys of ssl.*. Unset: nothing is measured and nothing served. Ottla's own; "
        "needs `pip install ottla[metrics]`.",
    )
    metrics_listener_username: str | None = config_key(
        default=None,
        doc="The user that metrics.listener asks for (HTTP basic authentication), except for "
        "/healthz and /readyz. Ottla's own.",
    )
    metrics_listener_password: Password | None = config_key(
        default=None,
        doc="The password of metrics.listener.username. Ottla's own.",
    )
    metrics_names: str = config_key(
        default="jmx-exporter",
        rule=one_of("jmx-exporter", "confluent"),
        importance=LOW,
        doc="Whose names metrics have in Prometheus: those of the JMX exporter's rules for Kafka "
        "and of Strimzi, or those of Confluent's dashboards. Ottla's own.",
    )
    metrics_partitions_enable: bool = config_key(
        default=True,
        importance=LOW,
        doc="Whether metrics of single partitions are served: about 14 series for each of them. "
        "Ottla's own.",
    )
    metrics_max_series: int = config_key(
        default=500_000,
        rule=at_least(0),
        importance=LOW,
        doc="How many series with the names of topics, partitions, groups and clients one reading "
        "may have; those beyond it are left out, with a warning. Ottla's own.",
    )

    metric_reporters: tuple[str, ...] = config_key(
        default=(),
        importance=LOW,
        doc="Python classes that get the broker's metrics: names of entry points in "
        "ottla.metric_reporters, or module:Class. Those of Java cannot be run.",
    )
    metric_reporters_interval_ms: int = config_key(
        default=10_000,
        rule=at_least(100),
        importance=LOW,
        doc="How often metric.reporters get the metrics. Ottla's own.",
    )
    telemetry_max_bytes: int = config_key(
        default=1_048_576,
        rule=at_least(1),
        importance=LOW,
        doc="How many bytes of metrics a client may push at once (KIP-714), also when they are "
        "decompressed.",
    )
    request_log_principals: tuple[str, ...] = config_key(
        default=(),
        importance=LOW,
        doc="Whose requests the request log has, such as User:alice; empty: everybody's. The log "
        "is on while the logger kafka.request.logger is at DEBUG. Ottla's own.",
    )
    request_log_client_ids: tuple[str, ...] = config_key(
        default=(),
        importance=LOW,
        doc="The requests of which client ids the request log has; empty: of all. Ottla's own.",
    )
    request_log_apis: tuple[str, ...] = config_key(
        default=(),
        importance=LOW,
        doc="Which requests the request log has, such as Produce, Fetch; empty: all. Ottla's own.",
    )
    request_log_slower_than_ms: int = config_key(
        default=0,
        rule=at_least(0),
        importance=LOW,
        doc="The request log has requests that took at least so long. Ottla's own.",
    )
    ottla_log_format: str = config_key(
        default="text",
        rule=one_of("text", "json"),
        importance=LOW,
        doc="How the broker writes its log: as Kafka does, or as a line of JSON for each event, "
        "with timestamp, level, logger and message. Ottla's own.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        text = values["metrics_listener"]
        values["metrics_listener"] = parse_metrics_listener(text) if text else None
        pair = values["metrics_listener_username"], values["metrics_listener_password"]
        if (pair[0] is None) != (pair[1] is None):
            missing = "username" if pair[0] is None else "password"
            raise ConfigError(
                f"metrics.listener.{missing}: must be set, as metrics.listener.username and "
                "metrics.listener.password belong together"
            )


def package_missing(error: ImportError) -> ConfigError:
    """The error where `metrics.listener` is set and a package for it is missing."""
    return ConfigError(
        f"metrics.listener: needs the package {error.name}; pip install 'ottla[metrics]'"
    )


def parse_metrics_listener(text: str) -> MetricsEndPoint:
    """`http://127.0.0.1:9404` as scheme, host and port."""
    # Imported only here: a broker without the setting saves the time.
    from urllib.parse import urlsplit

    rule = f"metrics.listener={text}: must be http://host:port or https://host:port"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ConfigError(rule) from None
    if parts.scheme not in (HTTP, HTTPS) or port is None or parts.path.strip("/") or parts.query:
        raise ConfigError(rule)
    return MetricsEndPoint(parts.scheme, parts.hostname or LOOPBACK, port)


MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""The fields that `match` may look at."""


class ClientMetricsConfig(ConfigTable):
    """A subscription."""

    metrics: tuple[str, ...] = config_key(
        default=(),
        doc="The beginnings of the names of the metrics that clients push; * is all of them.",
    )
    interval_ms: int = config_key(
        default=300_000,
        rule=between(100, 3_600_000),
        doc="How often they do.",
    )
    match: tuple[str, ...] = config_key(
        default=(),
        doc="Which clients, as client_id=regex and the like, all of which must match; none: all.",
    )

    @classmethod
    def of(cls, overrides: Mapping[str, str]) -> Self:
        """ConfigError for an unknown setting, or a bad value."""
        for name in overrides:
            if name not in cls.keys:
                raise ConfigError(f"{name}: not a setting of client metrics")
        given: dict[str, Any] = {cls.keys[name].attribute: overrides[name] for name in overrides}
        config = cls(**given)
        config.patterns()
        return config

    def patterns(self) -> dict[str, re.Pattern[str]]:
        """The fields that must match, each with its pattern."""
        found: dict[str, Any] = {}
        for text in self.match:
            key, _, pattern = text.partition("=")
            if key not in MATCHED or not pattern:
                raise ConfigError(f"match={text}: must be one of {', '.join(MATCHED)}, =, a regex")
            try:
                found[key] = re.compile(pattern)
            except re.error as error:
                raise ConfigError(f"match={text}: no regular expression: {error}") from None
        return found
