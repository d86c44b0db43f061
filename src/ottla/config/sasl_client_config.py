"""Settings of a client that logs in by SASL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.config.config_def import config_key
from ottla.config.config_type import CLASS, Password
from ottla.config.jaas import (
    GSSAPI,
    LOGIN_MODULES,
    NEEDS_OF_LOGIN,
    OAUTHBEARER,
    parse_jaas,
    require_module,
)
from ottla.config.known_keys import shown
from ottla.config.network_config import is_sasl
from ottla.config.oauthbearer_config import OAuthBearerConfig, oauth_login_options
from ottla.errors import ConfigError
from ottla.structs import Value, field

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class SaslLogin(Value, frozen=True):
    """A mechanism, and the options of its login module."""

    mechanism: str
    options: Mapping[str, str] = field(repr=False)
    held: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The state of a mechanism between two logins, such as a token."""


def checked_login(key: str, mechanism: str, options: Mapping[str, str]) -> SaslLogin:
    for name in NEEDS_OF_LOGIN[mechanism]:
        if not options.get(name):
            raise ConfigError(f"{key}: must have {name}, for {mechanism}")
    return SaslLogin(mechanism, options)


class SaslClientConfig(OAuthBearerConfig, group=True):
    """The login of a client."""

    sasl_mechanism: str = config_key(
        default=GSSAPI,
        doc="How the client logs in, of " + ", ".join(LOGIN_MODULES) + ", where security.protocol "
        "is SASL_PLAINTEXT or SASL_SSL.",
    )
    sasl_jaas_config: Password | None = config_key(
        default=None,
        doc="The login in the form of Java's login modules: "
        '<login module> required username="<name>" password="<password>"; and nothing else.',
    )
    sasl_kerberos_service_name: str | None = config_key(
        default=None,
        doc="The first part of the brokers' principals, kafka of kafka/host@REALM, for GSSAPI.",
    )
    sasl_oauthbearer_token_source: Any = config_key(
        default=None,
        type=CLASS,
        doc="Gives tokens for OAUTHBEARER, in the place of a URL: a callable without arguments "
        "that returns one as text, or the import path of it. It may take its time: it is called "
        "in a thread, once for each token. Ottla's own setting.",
    )
    sasl_username: str | None = config_key(
        default=None,
        doc="The name to log in with, as librdkafka has it: in the place of sasl.jaas.config.",
    )
    sasl_password: Password | None = config_key(
        default=None,
        doc="The password, beside sasl.username.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        if is_sasl(values["security_protocol"]):
            _client_login(values)
            return
        for row in SaslClientConfig.keys.values():
            value = values[row.attribute]
            if value not in (None, "", row.default):
                raise ConfigError(
                    f"{row.name}={shown(row.name, value)}: must not be set with security.protocol="
                    f"{values['security_protocol']}, which would not use it; "
                    "SASL_SSL and SASL_PLAINTEXT do"
                )

    def sasl_login(self) -> SaslLogin | None:
        """The login; None where the protocol has none."""
        values = {row.attribute: getattr(self, row.attribute) for row in type(self).keys.values()}
        return _client_login(values) if is_sasl(values["security_protocol"]) else None


def kerberos_options(
    key: str, options: Mapping[str, str], service: str | None
) -> Mapping[str, str]:
    """The options of a login by Kerberos, with the service that it is for.

    Raises:
        ConfigError: the service is not named, or a keytab is asked for that is not.
    """
    service = service or options.get("serviceName")
    if not service:
        raise ConfigError(f"sasl.kerberos.service.name: must be set, or serviceName in {key}")
    if options.get("useKeyTab", "").lower() == "true":
        for name in ("keyTab", "principal"):
            if not options.get(name):
                raise ConfigError(f"{key}: must have {name}, with useKeyTab=true")
    return {**options, "serviceName": service}


def _jaas_options(values: Mapping[str, Any], mechanism: str) -> Mapping[str, str]:
    """The options of sasl.jaas.config, which must be an entry for this mechanism; none if unset."""
    if values["sasl_jaas_config"] is None:
        return {}
    entry = parse_jaas("sasl.jaas.config", values["sasl_jaas_config"].value)
    require_module("sasl.jaas.config", entry, mechanism)
    return entry.options


def _oauth_login(values: Mapping[str, Any]) -> SaslLogin:
    options = _jaas_options(values, OAUTHBEARER)
    source = values["sasl_oauthbearer_token_source"]
    if source is None:
        return SaslLogin(OAUTHBEARER, oauth_login_options("sasl.jaas.config", values, options))
    if not callable(source):
        raise ConfigError(f"sasl.oauthbearer.token.source={source}: must be callable")
    others = [
        name for name in OAuthBearerConfig.keys if values[OAuthBearerConfig.keys[name].attribute]
    ]
    if others or any(name.startswith("unsecured") for name in options):
        raise ConfigError(
            f"sasl.oauthbearer.token.source: must not be set together with "
            f"{', '.join(others) or 'unsecured tokens in sasl.jaas.config'}"
        )
    return SaslLogin(OAUTHBEARER, options, {"source": source})


def _kerberos_login(values: Mapping[str, Any]) -> SaslLogin:
    options = _jaas_options(values, GSSAPI)
    for name in ("sasl_username", "sasl_password"):
        if values[name] is not None:
            raise ConfigError(
                f"{name.replace('_', '.')}: must not be set with sasl.mechanism=GSSAPI, which "
                "would not use it"
            )
    service = values["sasl_kerberos_service_name"]
    return SaslLogin(GSSAPI, kerberos_options("sasl.jaas.config", options, service))


def _client_login(values: Mapping[str, Any]) -> SaslLogin:
    mechanism, jaas = values["sasl_mechanism"], values["sasl_jaas_config"]
    if mechanism not in LOGIN_MODULES:
        raise ConfigError(
            f"sasl.mechanism={mechanism}: must be one of {', '.join(LOGIN_MODULES)} with "
            f"security.protocol={values['security_protocol']}"
        )
    username, password = values["sasl_username"], values["sasl_password"]
    if mechanism == OAUTHBEARER:
        return _oauth_login(values)
    if mechanism == GSSAPI:
        return _kerberos_login(values)
    if jaas is not None:
        if username is not None or password is not None:
            raise ConfigError("sasl.username: cannot be set together with sasl.jaas.config")
        return checked_login("sasl.jaas.config", mechanism, _jaas_options(values, mechanism))
    options = {"username": username, "password": password and password.value}
    for name in NEEDS_OF_LOGIN[mechanism]:
        if not options.get(name):
            raise ConfigError(
                f"sasl.{name}: must be set for sasl.mechanism={mechanism}, or sasl.jaas.config"
            )
    return SaslLogin(mechanism, {name: text for name, text in options.items() if text})
