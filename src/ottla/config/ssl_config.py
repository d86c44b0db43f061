"""TLS: keys, certificates, trust and negotiation, under Kafka's ssl.* keys.

Java key stores (JKS) cannot be read here, so the default of the two types is PEM. Secrets, and
settings that may hold one, are of type password: they are shown nowhere.

Of a broker: whether clients must show a certificate, and the overrides of single listeners.
`listener.name.<name>.ssl.*` wins over `ssl.*` on the listener of that name, which is written in
lower case there. `listener.name.<name>.max.connection.creation.rate` holds beside that of all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Final, Self

from ottla.config.config_def import HIGH, LOW, ConfigTable, ConfigTableType, config_key, dotted
from ottla.config.config_type import INT, Password
from ottla.config.known_keys import BROKER_REFUSED, BROKER_UNUSED, SSL_UNUSED, Refusal, refuse
from ottla.config.rule import Rule, at_least, each_one_of, one_of
from ottla.errors import ConfigError

PEM: Final = "PEM"
PKCS12: Final = "PKCS12"
JKS: Final = "JKS"
TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"
HTTPS: Final = "https"


class SslConfig(ConfigTable, group=True):
    """The settings that client and server both have."""

    ssl_keystore_type: str = config_key(
        default=PEM,
        rule=one_of(PEM, PKCS12, JKS),
        doc="The format of the key store: PEM, or PKCS12 (needs `pip install ottla[pkcs12]`). "
        "JKS is refused: Java's own format is not read here.",
    )
    ssl_keystore_location: str | None = config_key(
        default=None,
        importance=HIGH,
        doc="The file with this side's private key and its certificate, followed by the chain.",
    )
    ssl_keystore_password: Password | None = config_key(
        default=None,
        importance=HIGH,
        doc="The password of a PKCS12 file; PEM has ssl.key.password only.",
    )
    ssl_keystore_certificate_chain: Password | None = config_key(
        default=None,
        importance=HIGH,
        doc="The certificate and its chain as PEM text, in the place of ssl.keystore.location.",
    )
    ssl_keystore_key: Password | None = config_key(
        default=None,
        importance=HIGH,
        doc="The private key (PKCS#8) as PEM text, beside ssl.keystore.certificate.chain.",
    )
    ssl_key_password: Password | None = config_key(
        default=None,
        importance=HIGH,
        doc="The password of the private key, where that is encrypted.",
    )
    ssl_truststore_type: str = config_key(
        default=PEM,
        rule=one_of(PEM, PKCS12, JKS),
        doc="The format of the trust store, as ssl.keystore.type.",
    )
    ssl_truststore_location: str | None = config_key(
        default=None,
        importance=HIGH,
        doc="The file with the certificates of those whose signatures are trusted. "
        "Unset: the certificate authorities that the operating system trusts.",
    )
    ssl_truststore_password: Password | None = config_key(
        default=None,
        importance=HIGH,
        doc="The password of a PKCS12 trust store.",
    )
    ssl_truststore_certificates: Password | None = config_key(
        default=None,
        importance=HIGH,
        doc="The trusted certificates as PEM text, in the place of ssl.truststore.location.",
    )
    ssl_enabled_protocols: tuple[str, ...] = config_key(
        default=(TLS_1_2, TLS_1_3),
        rule=each_one_of(TLS_1_2, TLS_1_3),
        doc="The versions of TLS that may be negotiated.",
    )
    ssl_cipher_suites: tuple[str, ...] = config_key(
        default=(),
        importance=LOW,
        doc="The cipher suites that may be negotiated, by their IANA names. Empty: OpenSSL's "
        "choice. A TLS version of which no suite is named is not used; of TLSv1.3 all or none of "
        "TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384 and TLS_CHACHA20_POLY1305_SHA256 "
        "must be named.",
    )
    ssl_endpoint_identification_algorithm: str = config_key(
        default=HTTPS,
        rule=one_of(HTTPS, "HTTPS", ""),
        importance=LOW,
        doc="Whether the one who connects checks that the certificate is for the host that was "
        "asked for: https, or empty for no check.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        _check_store(values, "keystore", "ssl_keystore_certificate_chain")
        _check_store(values, "truststore", "ssl_truststore_certificates")
        chain, key = values["ssl_keystore_certificate_chain"], values["ssl_keystore_key"]
        if (chain is None) != (key is None):
            missing = "ssl.keystore.key" if key is None else "ssl.keystore.certificate.chain"
            raise ConfigError(
                f"{missing}: must be set, as ssl.keystore.key and "
                "ssl.keystore.certificate.chain belong together"
            )


class SslSettings(SslConfig):
    """The values of `SslConfig` alone: those of a side that connects."""


def ssl_settings(config: ConfigTable) -> SslSettings:
    """The ssl.* settings of a larger table."""
    return SslSettings.parse(given_settings(config, SslSettings))


def given_settings(config: ConfigTable, part: ConfigTableType) -> dict[str, Any]:
    """The values of a table for settings that another one has as well."""
    return {
        name: getattr(config, row.attribute)
        for name, row in part.keys.items()
        if config.is_given(name)
    }


def _check_store(values: Mapping[str, Any], store: str, inline: str) -> None:
    """One place for a store, of a kind that can be read, with no password that has no use."""
    kind, location = values[f"ssl_{store}_type"], values[f"ssl_{store}_location"]
    name = f"ssl.{store}"
    if kind == JKS:
        raise ConfigError(
            f"{name}.type=JKS: Java key stores cannot be read; set {name}.type=PEM "
            f"and have {name}.location name a PEM file"
        )
    inline_key = inline.replace("_", ".")
    if values[inline] is not None and location is not None:
        raise ConfigError(f"{inline_key}: cannot be set together with {name}.location={location}")
    if values[inline] is not None and kind != PEM:
        raise ConfigError(f"{inline_key}: needs {name}.type=PEM, not {kind}")
    if kind == PEM and values[f"ssl_{store}_password"] is not None:
        hint = "; the key's own is ssl.key.password" if store == "keystore" else ""
        raise ConfigError(f"{name}.password: cannot be set with {name}.type=PEM{hint}")


_OVERRIDE: Final = r"(listener\.name\.(.+?)\.)(ssl\..+)"
_CREATION_RATE: Final = r"listener\.name\.([^.]+)\.max\.connection\.creation\.rate"
_LISTENER: Final = r"listener\.name\.([^.]+)\."


class ClientAuthConfig(ConfigTable, group=True):
    """The certificate that a listener asks of its clients."""

    ssl_client_auth: str = config_key(
        default="none",
        rule=one_of("none", "requested", "required"),
        doc="Whether clients have to show a certificate: none does not ask, requested asks and "
        "checks it where there is one, required refuses clients without.",
    )
    ssl_principal_mapping_rules: str = config_key(
        default="DEFAULT",
        doc="How the name in a client's certificate becomes its principal. Rules with commas "
        "between: RULE:<regex>/<replacement>/[L|U], of which the first counts whose regex matches "
        "the whole name, or DEFAULT, the name as it is. A client that no rule matches is refused.",
    )
    ssl_allow_dn_changes: bool = config_key(
        default=False,
        importance=LOW,
        doc="Whether a certificate that is changed while the broker runs may have another subject.",
    )
    ssl_allow_san_changes: bool = config_key(
        default=False,
        importance=LOW,
        doc="Whether a certificate that is changed while the broker runs may lack hosts and "
        "addresses (subjectAltName) of the one before.",
    )


class PasswordEncoderConfig(ConfigTable, group=True):
    """How passwords are encrypted that are changed while the broker runs."""

    password_encoder_secret: Password | None = config_key(
        default=None,
        doc="The secret by which passwords are encrypted in the registry. Unset: passwords cannot "
        "be changed while the broker runs. Needs `pip install ottla[pkcs12]`.",
    )
    password_encoder_old_secret: Password | None = config_key(
        default=None,
        doc="The secret from before: what was encrypted by it is read, until it is written again.",
    )
    password_encoder_keyfactory_algorithm: str = config_key(
        default="PBKDF2WithHmacSHA512",
        rule=one_of(*(f"PBKDF2WithHmacSHA{size}" for size in (1, 224, 256, 384, 512))),
        importance=LOW,
        doc="How a key is derived from the secret.",
    )
    password_encoder_cipher_algorithm: str = config_key(
        default="AES/CBC/PKCS5Padding",
        rule=one_of("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"),
        importance=LOW,
        doc="How passwords are encrypted.",
    )
    password_encoder_key_length: int = config_key(
        default=128,
        rule=Rule("be 128, 192 or 256", lambda bits: bits in (128, 192, 256)),
        importance=LOW,
        doc="The bits of the key.",
    )
    password_encoder_iterations: int = config_key(
        default=4096,
        rule=at_least(1024),
        importance=LOW,
        doc="How often the secret is hashed for the key.",
    )


class ListenerSslSettings(ClientAuthConfig, SslSettings):
    """TLS of one listener."""

    unused: ClassVar[Mapping[str, str]] = SSL_UNUSED
    refused: ClassVar[Mapping[str, Refusal]] = BROKER_REFUSED


class ListenerSslConfig(PasswordEncoderConfig, ClientAuthConfig, SslConfig, group=True):
    """TLS of all listeners, and the overrides of single ones."""

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
            if match := re.fullmatch(_OVERRIDE, name):
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
        """Pass over a listener's setting as well, which may name a SASL mechanism."""
        match = re.match(_LISTENER, name)
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
            match = re.fullmatch(_OVERRIDE, name)
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
        if match := re.fullmatch(_CREATION_RATE, name):
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
