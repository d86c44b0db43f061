"""The settings of one subscription to clients' metrics (KIP-714): what they push, and who does.

It stands alone as it is a resource of its own, `client-metrics`, as the settings of groups are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Self

from ottla.config.config_def import ConfigTable, config_key
from ottla.config.config_type import INT, LIST, between
from ottla.errors import ConfigError

MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What `match` may look at."""


class ClientMetricsConfig(ConfigTable):
    """A subscription."""

    metrics: tuple[str, ...] = config_key(
        default=(),
        type=LIST,
        doc="The beginnings of the names of the metrics that clients push; * is all of them.",
    )
    interval_ms: int = config_key(
        default=300_000,
        type=INT,
        rule=between(100, 3_600_000),
        doc="How often they do.",
    )
    match: tuple[str, ...] = config_key(
        default=(),
        type=LIST,
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
        """What must match which pattern."""
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
