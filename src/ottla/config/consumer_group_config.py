"""The settings of one consumer group; what a group does not set comes from its broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from ottla.config.broker_config import BrokerConfig
from ottla.config.config_def import ConfigTable, config_key
from ottla.config.config_type import INT, at_least
from ottla.errors import ConfigError


class ConsumerGroupConfig(ConfigTable):
    """What one group is set up with: its own values over those of the broker."""

    consumer_session_timeout_ms: int = config_key(
        default=45000,
        type=INT,
        rule=at_least(1),
        broker_keys=("group.consumer.session.timeout.ms",),
        doc="A member of the group that is silent for this long is put out of it.",
    )
    consumer_heartbeat_interval_ms: int = config_key(
        default=5000,
        type=INT,
        rule=at_least(1),
        broker_keys=("group.consumer.heartbeat.interval.ms",),
        doc="How often members of the group are told to send heartbeats.",
    )

    @classmethod
    def of(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> Self:
        """What is in force for a group with these overrides."""
        given = {
            row.attribute: getattr(broker, BrokerConfig.keys[row.broker_keys[0]].attribute)
            for row in cls.keys.values()
        }
        given |= {
            row.attribute: overrides[name] for name, row in cls.keys.items() if name in overrides
        }
        return cls(**given)

    @classmethod
    def validate(cls, broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
        """ConfigError for an unknown setting, or a value that the broker does not allow."""
        for name in overrides:
            if name not in cls.keys:
                raise ConfigError(f"{name}: not a setting of groups")
        config = cls.of(broker, overrides)
        for name in overrides:
            row = cls.keys[name]
            least, most = cls.limits(broker, name)
            value = getattr(config, row.attribute)
            if not least <= value <= most:
                raise ConfigError(
                    f"{name}={value}: must be from {limit_key(name, 'min')} ({least}) "
                    f"to {limit_key(name, 'max')} ({most})"
                )
        if config.consumer_heartbeat_interval_ms >= config.consumer_session_timeout_ms:
            raise ConfigError(
                f"consumer.heartbeat.interval.ms={config.consumer_heartbeat_interval_ms}: must be "
                f"less than consumer.session.timeout.ms ({config.consumer_session_timeout_ms})"
            )

    @classmethod
    def limits(cls, broker: BrokerConfig, name: str) -> tuple[int, int]:
        """The least and the greatest value that the broker allows for a setting."""
        least, most = (BrokerConfig.keys[limit_key(name, end)] for end in ("min", "max"))
        return getattr(broker, least.attribute), getattr(broker, most.attribute)


def limit_key(name: str, end: str) -> str:
    """The name of the broker's setting that limits a setting of a group."""
    return "group." + name.replace("consumer.", f"consumer.{end}.", 1)
