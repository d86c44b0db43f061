"""TLS of a broker: whether clients must show a certificate, and what single listeners override.

`listener.name.<name>.ssl.*` wins over `ssl.*` on the listener of that name, which is written in
lower case there. `listener.name.<name>.max.connection.creation.rate` holds beside that of all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Self

from ottla.config.config_def import LOW, ConfigTable, config_key, dotted
from ottla.config.config_type import (
    BOOLEAN,
    INT,
    PASSWORD,
    STRING,
    Password,
    Rule,
    at_least,
    one_of,
)
from ottla.config.known_keys import (
    BROKER_REFUSED,
    BROKER_UNUSED,
    SSL_UNUSED,
    Refusal,
    refuse,
)
from ottla.config.ssl_config import SslConfig, SslSettings, given_settings
from ottla.errors import ConfigError

_OVERRIDE: Final = re.compile(r"(listener\.name\.(.+?)\.)(ssl\..+)")
_CREATION_RATE: Final = re.compile(r"listener\.name\.([^.]+)\.max\.connection\.creation\.rate")
_LISTENER: Final = re.compile(r"listener\.name\.([^.]+)\.")


class ClientAuthConfig(ConfigTable, group=True):
    """What a listener asks of its clients."""

    ssl_client_auth: str = config_key(
        default="none",
        type=STRING,
        rule=one_of("none", "requested", "required"),
        doc="Whether clients have to show a certificate: none does not ask, requested asks and "
        "checks it where there is one, required refuses clients without.",
    )
    ssl_principal_mapping_rules: str = config_key(
        default="DEFAULT",
        type=STRING,
        doc="How the name in a client's certificate becomes its principal. Rules with commas "
        "between: RULE:<regex>/<replacement>/[L|U], of which the first counts whose regex matches "
        "the whole name, or DEFAULT, the name as it is. A client that no rule matches is refused.",
    )
    ssl_allow_dn_changes: bool = config_key(
        default=False,
        type=BOOLEAN,
        importance=LOW,
        doc="Whether a certificate that is changed while the broker runs may have another subject.",
    )
    ssl_allow_san_changes: bool = config_key(
        default=False,
        type=BOOLEAN,
        importance=LOW,
        doc="Whether a certificate that is changed while the broker runs may lack hosts and "
        "addresses (subjectAltName) of the one before.",
    )


class PasswordEncoderConfig(ConfigTable, group=True):
    """How passwords are encrypted that are changed while the broker runs."""

    password_encoder_secret: Password | None = config_key(
        default=None,
        type=PASSWORD,
        doc="The secret by which passwords are encrypted in the registry. Unset: passwords cannot "
        "be changed while the broker runs. Needs `pip install ottla[pkcs12]`.",
    )
    password_encoder_old_secret: Password | None = config_key(
        default=None,
        type=PASSWORD,
        doc="The secret from before: what was encrypted by it is read, until it is written again.",
    )
    password_encoder_keyfactory_algorithm: str = config_key(
        default="PBKDF2WithHmacSHA512",
        type=STRING,
        rule=one_of(*(f"PBKDF2WithHmacSHA{size}" for size in (1, 224, 256, 384, 512))),
        importance=LOW,
        doc="How a key is derived from the secret.",
    )
    password_encoder_cipher_algorithm: str = config_key(
        default="AES/CBC/PKCS5Padding",
        type=STRING,
        rule=one_of("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"),
        importance=LOW,
        doc="How passwords are encrypted.",
    )
    password_encoder_key_length: int = config_key(
        default=128,
        type=INT,
        rule=Rule("be 128, 192 or 256", lambda bits: bits in (128, 192, 256)),
        importance=LOW,
        doc="The bits of the key.",
    )
    password_encoder_iterations: int = config_key(
        default=4096,
        type=INT,
        rule=at_least(1024),
        importance=LOW,
        doc="How often the secret is hashed for the key.",
    )


class ListenerSslSettings(ClientAuthConfig, SslSettings):
    """TLS of one listener."""

    unused: ClassVar[Mapping[str, str]] = SSL_UNUSED
    refused: ClassVar[Mapping[str, Refusal]] = BROKER_REFUSED


class ListenerSslConfig(PasswordEncoderConfig, ClientAuthConfig, SslConfig, group=True):
    """TLS of all listeners, and what single ones override."""

    unused: ClassVar[Mapping[str, str]] = BROKER_UNUSED
    refused: ClassVar[Mapping[str, Refusal]] = BROKER_REFUSED

    __slots__ = ("_of_listeners", "connection_creation_rates")
    _of_listeners: Mapping[str, ListenerSslSettings]
    connection_creation_rates: Mapping[str, int]
    """The connections a second of the listeners that have a limit of their own."""

    @classmethod
    def parse(cls, settings: Mapping[str, Any] | None = None, **keywords: Any) -> Self:
        given = dotted(settings, keywords)
        overrides: dict[str, dict[str, Any]] = {}
        rates = _pop_creation_rates(given)
        for name in list(given):
            if match := _OVERRIDE.fullmatch(name):
                overrides.setdefault(match[1], {})[match[3]] = given.pop(name)
        config = super().parse(given)
        of_listeners = {
            prefix.split(".", 2)[2].rstrip(".").upper(): _with_overrides(config, prefix, values)
            for prefix, values in overrides.items()
        }
        object.__setattr__(config, "_of_listeners", of_listeners)
        object.__setattr__(config, "connection_creation_rates", rates)
        return config

    @classmethod
    def pass_over(cls, name: str, value: Any) -> None:
        """As in the base class; also for a listener's setting, which may name a SASL mechanism."""
        match = _LISTENER.match(name)
        if match is None:
            super().pass_over(name, value)
            return
        of_listener = name[match.end() :]
        for key in (of_listener, of_listener.partition(".")[2]):
            if refuse(key, value, cls.refused, name.removesuffix(key)):
                return
        if of_listener not in cls.known_names():
            cls.refuse_misspelt(of_listener, value, match[0])
        cls.warn_of_unknown(name)

    def replace(self, **changes: Any) -> Self:
        changed = super().replace(**changes)
        object.__setattr__(changed, "_of_listeners", self._of_listeners)
        object.__setattr__(changed, "connection_creation_rates", self.connection_creation_rates)
        return changed

    def with_listener_settings(self, overrides: Mapping[str, Any]) -> Self:
        """The same but for settings of single listeners, by their whole keys."""
        of_listeners = dict(self._of_listeners)
        others = dict(overrides)
        rates = {**self.connection_creation_rates, **_pop_creation_rates(others)}
        given: dict[str, dict[str, Any]] = {}
        for name, value in others.items():
            match = _OVERRIDE.fullmatch(name)
            if match is None:
                raise ConfigError(f"{name}: must be listener.name.<name>.ssl.<key>")
            given.setdefault(match[1], {})[match[3]] = value
        for prefix, values in given.items():
            listener = prefix.split(".", 2)[2].rstrip(".").upper()
            of_listeners[listener] = _with_overrides(self.ssl_of(listener), prefix, values)
        changed = self.replace()
        object.__setattr__(changed, "_of_listeners", of_listeners)
        object.__setattr__(changed, "connection_creation_rates", rates)
        return changed

    def _freeze(self, values: dict[str, Any], given: frozenset[str]) -> None:
        super()._freeze(values, given)
        object.__setattr__(self, "_of_listeners", {})
        object.__setattr__(self, "connection_creation_rates", {})

    def ssl_of(self, listener_name: str) -> ListenerSslSettings:
        """The ssl.* settings that hold on a listener."""
        of_all = ListenerSslSettings.parse(given_settings(self, ListenerSslSettings))
        return self._of_listeners.get(listener_name, of_all)


def _pop_creation_rates(settings: dict[str, Any]) -> dict[str, int]:
    """Take the listeners' own limits of new connections out of the settings."""
    rates = {}
    for name in list(settings):
        if match := _CREATION_RATE.fullmatch(name):
            value = settings.pop(name)
            rate = int(INT.parse(name, value))
            if rate < 1:
                raise ConfigError(f"{name}={value}: must be at least 1")
            rates[match[1].upper()] = rate
    return rates


def _with_overrides(
    config: ConfigTable, prefix: str, overrides: Mapping[str, Any]
) -> ListenerSslSettings:
    of_all = given_settings(config, ListenerSslSettings)
    try:
        return ListenerSslSettings.parse(of_all | dict(overrides))
    except ConfigError as error:
        raise ConfigError(prefix + error.message) from None
