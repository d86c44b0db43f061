"""SASL: which mechanisms a listener has, whose passwords it knows, and a client's own login.

`listener.name.<name>.<mechanism>.sasl.jaas.config`, name and mechanism in lower case, configures
one mechanism of one listener, in the form of Java's login modules (JAAS). OAUTHBEARER has
settings besides: which tokens a listener takes, and where a client gets its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Self

from ottla.config.config_def import LOW, config_key, dotted
from ottla.config.config_type import INT_MAX, LONG, PASSWORD
from ottla.config.delegation_token_config import DelegationTokenConfig
from ottla.config.jaas import (
    GSSAPI,
    LOGIN_MODULES,
    NEEDS_ENTRY,
    OAUTHBEARER,
    JaasEntry,
    parse_jaas,
    require_module,
)
from ottla.config.known_keys import shown
from ottla.config.network_config import NetworkConfig, is_sasl
from ottla.config.oauthbearer_config import (
    OAuthBearerListenerConfig,
    OAuthBearerSettings,
    check_tokens_are_verified,
    oauth_login_options,
)
from ottla.config.rule import at_least, between
from ottla.config.sasl_client_config import SaslLogin, checked_login, kerberos_options
from ottla.config.ssl_config import ListenerSslConfig
from ottla.config.zookeeper_config import ZooKeeperConfig
from ottla.errors import ConfigError
from ottla.structs import Value


class SaslSettings(Value, frozen=True):
    """The settings of one listener."""

    mechanisms: tuple[str, ...]
    entries: Mapping[str, JaasEntry]
    """The entry of each mechanism that needs one."""
    max_reauth_ms: Mapping[str, int]
    """How long a session may last, by its mechanism; 0 is no limit."""
    oauth: OAuthBearerSettings | None
    """The tokens that OAUTHBEARER takes, where it is among the mechanisms."""
    kerberos_service: str | None = None
    """The first part of this broker's own principal, where that is said."""
    kerberos_rules: str = "DEFAULT"


_OF_LISTENER: Final = (
    r"listener\.name\.(?P<listener>.+?)\."
    r"(?:(?P<mechanism>plain|scram-sha-256|scram-sha-512|gssapi|oauthbearer)\.)?"
    r"(?P<key>sasl\.enabled\.mechanisms|sasl\.jaas\.config|connections\.max\.reauth\.ms"
    + "".join("|" + re.escape(name) for name in OAuthBearerListenerConfig.keys)
    + ")"
)


class ListenerSaslConfig(
    DelegationTokenConfig,
    OAuthBearerListenerConfig,
    NetworkConfig,
    ZooKeeperConfig,
    ListenerSslConfig,
    group=True,
):
    """SASL of all listeners, and the overrides of single ones, or of their mechanisms."""

    sasl_enabled_mechanisms: tuple[str, ...] = config_key(
        default=(GSSAPI,),
        doc="The mechanisms of SASL listeners, of " + ", ".join(LOGIN_MODULES) + ". GSSAPI "
        "needs `pip install ottla[kerberos]`.",
    )
    sasl_mechanism_inter_broker_protocol: str = config_key(
        default=GSSAPI,
        doc="The mechanism by which brokers log in to each other, where their listener is a SASL "
        "one. It must be among the listener's; its login is in the listener's sasl.jaas.config.",
    )
    sasl_kerberos_service_name: str | None = config_key(
        default=None,
        doc="The first part of the principals of brokers, kafka of kafka/host@REALM; for the "
        "logins of brokers to each other by GSSAPI.",
    )
    sasl_kerberos_principal_to_local_rules: str = config_key(
        default="DEFAULT",
        doc="How a name of Kerberos becomes that of a principal. Rules with commas between, of "
        "which the first counts that fits: RULE:[n:form], then the regex in parentheses, then "
        "s/from/to/ with g, /L or /U behind it where wanted; or DEFAULT, the first part of a name "
        "of the broker's own realm. The regexes are Python's.",
    )
    sasl_server_max_receive_size: int = config_key(
        default=524288,
        rule=at_least(1),
        doc="The largest request of a client that is not authenticated yet.",
    )
    connections_max_reauth_ms: int = config_key(
        default=0,
        type=LONG,
        rule=at_least(0),
        doc="How long the session of a client lasts that was authenticated by SASL: it must "
        "authenticate again within that time, or is closed (KIP-368). 0 is no limit.",
    )
    connection_failed_authentication_delay_ms: int = config_key(
        default=100,
        rule=between(0, INT_MAX),
        importance=LOW,
        doc="How long a client that could not be authenticated waits for its answer and its end.",
    )

    __slots__ = ("_sasl_overrides",)
    _sasl_overrides: Mapping[str, Any]

    @classmethod
    def parse(cls, settings: Mapping[str, Any] | None = None, **keywords: Any) -> Self:
        given = dotted(settings, keywords)
        overrides = {name: given.pop(name) for name in list(given) if sasl_key_of(name)}
        config = super().parse(given)
        object.__setattr__(config, "_sasl_overrides", overrides)
        config._check_sasl()
        return config

    def replace(self, **changes: Any) -> Self:
        changed = super().replace(**changes)
        object.__setattr__(changed, "_sasl_overrides", self._sasl_overrides)
        return changed

    def with_listener_settings(self, overrides: Mapping[str, Any]) -> Self:
        of_sasl = {name: overrides[name] for name in overrides if sasl_key_of(name)}
        others = {name: overrides[name] for name in overrides.keys() - of_sasl.keys()}
        changed = super().with_listener_settings(others)
        object.__setattr__(changed, "_sasl_overrides", {**self._sasl_overrides, **of_sasl})
        changed._check_sasl()
        return changed

    def _freeze(self, values: dict[str, Any], given: frozenset[str]) -> None:
        super()._freeze(values, given)
        object.__setattr__(self, "_sasl_overrides", {})

    @property
    def sasl_listeners(self) -> tuple[str, ...]:
        """The names of the listeners whose clients must log in."""
        return tuple(
            each.listener_name for each in self.listeners if is_sasl(each.security_protocol)
        )

    def sasl_of(self, listener_name: str) -> SaslSettings:
        """The mechanisms of a listener and their entries; ConfigError where an entry is missing."""
        key, mechanisms = self._override(
            listener_name, "", "sasl.enabled.mechanisms", self.sasl_enabled_mechanisms
        )
        if not mechanisms:
            raise ConfigError(f"{key}=: must name a mechanism, of {', '.join(LOGIN_MODULES)}")
        entries = {}
        for mechanism in mechanisms:
            if mechanism not in LOGIN_MODULES:
                text = "" if key in self._sasl_overrides or self.is_given(key) else " (the default)"
                raise ConfigError(
                    f"{key}={mechanism}{text}: must be one or more of {', '.join(LOGIN_MODULES)}"
                )
            entry = self._entry(listener_name, mechanism)
            if entry is not None:
                entries[mechanism] = entry
        key = "connections.max.reauth.ms"
        reauth = {
            each: self._override(listener_name, each, key, self.connections_max_reauth_ms)[1]
            for each in mechanisms
        }
        oauth = self._oauth_of(listener_name) if OAUTHBEARER in mechanisms else None
        return SaslSettings(
            tuple(mechanisms),
            entries,
            reauth,
            None if oauth is None else OAuthBearerSettings(**oauth),
            self.sasl_kerberos_service_name,
            self.sasl_kerberos_principal_to_local_rules,
        )

    def _oauth_of(self, listener_name: str) -> dict[str, Any]:
        """The rules for tokens on a listener, by attribute; ConfigError if they do not suffice."""
        given = {
            row.attribute: self._override(
                listener_name, OAUTHBEARER, name, getattr(self, row.attribute)
            )[1]
            for name, row in OAuthBearerListenerConfig.keys.items()
        }
        entry = self._entry(listener_name, OAUTHBEARER)
        key = _prefix(listener_name, OAUTHBEARER) + "sasl.jaas.config"
        check_tokens_are_verified(key, given, entry.options if entry else {})
        return given

    def inter_broker_login(self) -> SaslLogin | None:
        """How this broker logs in to others; None where their listener asks for no login."""
        listener = self.inter_broker_listener_name
        if listener not in self.sasl_listeners:
            return None
        key, mechanism = (
            "sasl.mechanism.inter.broker.protocol",
            self.sasl_mechanism_inter_broker_protocol,
        )
        enabled = self.sasl_of(listener).mechanisms
        if mechanism not in enabled:
            raise ConfigError(
                f"{key}={mechanism}: must be one of listener {listener}, {', '.join(enabled)}"
            )
        entry = self._entry(listener, mechanism)
        where = _prefix(listener, mechanism) + "sasl.jaas.config"
        if entry is None:
            raise ConfigError(f"{where}: must be set, for the login of this broker to others")
        if mechanism == OAUTHBEARER:
            given = self._oauth_of(listener)
            return SaslLogin(mechanism, oauth_login_options(where, given, entry.options))
        if mechanism == GSSAPI:
            options = kerberos_options(where, entry.options, self.sasl_kerberos_service_name)
            return SaslLogin(mechanism, options)
        return checked_login(where, mechanism, entry.options)

    def _entry(self, listener_name: str, mechanism: str) -> JaasEntry | None:
        key = _prefix(listener_name, mechanism) + "sasl.jaas.config"
        value = self._sasl_overrides.get(key)
        if value is None:
            if mechanism in NEEDS_ENTRY:
                held = NEEDS_ENTRY[mechanism]
                raise ConfigError(f"{key}: must be set, as {mechanism} has {held} there")
            return None
        entry = parse_jaas(key, PASSWORD.parse(key, value).value)
        require_module(key, entry, mechanism)
        return entry

    def _override(
        self, listener_name: str, mechanism: str, name: str, of_all: Any
    ) -> tuple[str, Any]:
        """A setting of a mechanism, or else of its listener, or of all; after its whole key."""
        row = type(self).keys[name]
        for prefix in (_prefix(listener_name, mechanism), _prefix(listener_name, "")):
            if prefix + name in self._sasl_overrides:
                try:
                    return prefix + name, row.parse(self._sasl_overrides[prefix + name])
                except ConfigError as error:
                    raise ConfigError(prefix + error.message) from None
        return name, of_all

    def _check_sasl(self) -> None:
        """Settings that ask for a login must lead to one."""
        listeners = self.sasl_listeners
        for name in listeners:
            self.sasl_of(name)
        delay, idle = self.connection_failed_authentication_delay_ms, self.connections_max_idle_ms
        if listeners and 0 <= idle <= delay:
            raise ConfigError(
                f"connection.failed.authentication.delay.ms={delay}: must be less than "
                f"connections.max.idle.ms ({idle})"
            )
        asked = {name: self.text_of(name) for name in _OF_ALL if self.is_given(name)}
        for name, value in asked.items():
            if not listeners and value != type(self).keys[name].format(
                type(self).keys[name].default
            ):
                raise ConfigError(f"{name}={value}: must not be set; no listener {_NO_LISTENER}")
        for name, value in self._sasl_overrides.items():
            match = re.fullmatch(_OF_LISTENER, name)
            assert match is not None, "it was found by this pattern"
            if match["listener"].upper() not in listeners and str(value or "") not in _NOTHING:
                raise ConfigError(
                    f"{name}={shown(name, value)}: must not be set; "
                    f"no listener {match['listener'].upper()} {_NO_LISTENER}"
                )
        if self.zookeeper_connect is not None:
            self.inter_broker_login()


_OF_ALL: Final = (
    "sasl.enabled.mechanisms",
    "sasl.mechanism.inter.broker.protocol",
    "connections.max.reauth.ms",
)
_NOTHING: Final = ("", "0", GSSAPI)
_NO_LISTENER: Final = (
    "uses SASL (SASL_PLAINTEXT or SASL_SSL), so that clients would be served without credentials"
)


def sasl_key_of(name: str) -> str | None:
    """The key in the name of a listener's SASL setting; None for another setting."""
    # A start compiles the pattern only where there is such a setting.
    of_listener = name.startswith("listener.name.") and re.fullmatch(_OF_LISTENER, name)
    return of_listener["key"] if of_listener else None


def _prefix(listener_name: str, mechanism: str) -> str:
    prefix = f"listener.name.{listener_name.lower()}."
    return f"{prefix}{mechanism.lower()}." if mechanism else prefix
