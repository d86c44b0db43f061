"""Settings of delegation tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.config.config_def import LOW, ConfigTable, config_key
from ottla.config.config_type import LONG, Password
from ottla.config.rule import at_least
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection


class DelegationTokenConfig(ConfigTable, group=True):
    """Passwords for a while, which brokers make for their clients (KIP-48)."""

    delegation_token_secret_key: Password | None = config_key(
        default=None,
        doc="The secret that makes the passwords of delegation tokens, the same on all brokers. "
        "Unset, there are no tokens. A change ends all tokens.",
    )
    delegation_token_master_key: Password | None = config_key(
        default=None,
        doc="What Kafka calls delegation.token.secret.key before 2.8.",
    )
    delegation_token_max_lifetime_ms: int = config_key(
        default=7 * 24 * 3600 * 1000,
        type=LONG,
        rule=at_least(1),
        doc="How long a token lives at most, however often it is renewed.",
    )
    delegation_token_expiry_time_ms: int = config_key(
        default=24 * 3600 * 1000,
        type=LONG,
        rule=at_least(1),
        doc="How long a token is good before it has to be renewed.",
    )
    delegation_token_expiry_check_interval_ms: int = config_key(
        default=3600 * 1000,
        type=LONG,
        rule=at_least(1),
        importance=LOW,
        doc="How often tokens that have ended are removed; nobody can log in with one before that.",
    )

    @property
    def delegation_token_secret(self) -> bytes:
        """The secret; empty where there are no tokens."""
        key = self.delegation_token_secret_key or self.delegation_token_master_key
        return b"" if key is None else key.value.encode()

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        new, old = values["delegation_token_secret_key"], values["delegation_token_master_key"]
        if new is not None and old is not None and new != old:
            raise ConfigError(
                "delegation.token.master.key=[hidden]: must not be set to something else than "
                "delegation.token.secret.key"
            )
