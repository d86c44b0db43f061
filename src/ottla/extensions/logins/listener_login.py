"""The login of a SASL listener: its mechanisms, made from its settings."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from ottla.config.broker_config import BrokerConfig
from ottla.config.jaas import OAUTHBEARER, users_of
from ottla.config.sasl_config import SaslSettings
from ottla.errors import ConfigError
from ottla.network.listener_security import UserSettings
from ottla.security.sasl import MIN_REAUTHENTICATION_MS, PlainServer, SaslListener, SaslServer

logger = logging.getLogger(__name__)

EARLIEST_LOGIN: Final = 0.85
"""Clients log in again after this share of a session, at the earliest (KIP-368)."""


def new_login(config: BrokerConfig, listener_name: str, users: UserSettings) -> SaslListener:
    """The mechanisms of a SASL listener, made from its settings."""
    settings = config.sasl_of(listener_name)
    factories: dict[str, Callable[[], SaslServer]] = {}
    on_start = []
    for each in settings.mechanisms:
        if each == OAUTHBEARER and settings.oauth is not None:
            from ottla.security.oauthbearer import ListenerTokens  # only where it is used

            entry = settings.entries.get(each)
            oauth = ListenerTokens(listener_name, settings.oauth, entry.options if entry else {})
            on_start.append(oauth.start)
            factories[each] = oauth.server
        else:
            factories[each] = _mechanism(each, settings, users)
    for each, limit_ms in settings.max_reauth_ms.items():
        if 0 < limit_ms * EARLIEST_LOGIN < MIN_REAUTHENTICATION_MS:
            logger.warning(
                "connections.max.reauth.ms=%d (%s of listener %s) is too short: a client that logs "
                "in again within %d ms is refused, and one that does not is closed",
                limit_ms,
                each,
                listener_name,
                MIN_REAUTHENTICATION_MS,
            )
    return SaslListener(
        factories,
        settings.max_reauth_ms,
        config.sasl_server_max_receive_size,
        config.connection_failed_authentication_delay_ms,
        tuple(on_start),
    )


def _mechanism(name: str, settings: SaslSettings, users: UserSettings) -> Callable[[], SaslServer]:
    """The maker of an exchange of a mechanism."""
    match name:
        case "PLAIN":
            return partial(PlainServer, users_of(settings.entries[name]))
        case "SCRAM-SHA-256" | "SCRAM-SHA-512":
            from ottla.security.scram import ScramServer, UserCredentials, no_tokens  # if used

            return partial(
                ScramServer,
                name,
                UserCredentials(name, users.of, users.names, users.change_count),
                find_token=users.find_token or no_tokens,
            )
        case "GSSAPI":
            from ottla.security.kerberos import new_server  # only where it is used

            return new_server(
                "the sasl.jaas.config of GSSAPI",
                settings.entries[name].options,
                settings.kerberos_rules,
                settings.kerberos_service,
            )
    raise ConfigError(f"sasl.enabled.mechanisms={name}: there is no such mechanism")
