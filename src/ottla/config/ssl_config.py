"""TLS: keys, certificates, whom to trust and what may be negotiated, under Kafka's ssl.* keys.

Java key stores (JKS) cannot be read here, so the default of the two types is PEM. What is secret,
or may be, is of type password: it is shown nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from ottla.config.config_def import HIGH, LOW, ConfigTable, ConfigTableType, config_key
from ottla.config.config_type import LIST, PASSWORD, STRING, Password, each_one_of, one_of
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
        type=STRING,
        rule=one_of(PEM, PKCS12, JKS),
        doc="The format of the key store: PEM, or PKCS12 (needs `pip install ottla[pkcs12]`). "
        "JKS is refused: Java's own format is not read here.",
    )
    ssl_keystore_location: str | None = config_key(
        default=None,
        type=STRING,
        importance=HIGH,
        doc="The file with this side's private key and its certificate, followed by the chain.",
    )
    ssl_keystore_password: Password | None = config_key(
        default=None,
        type=PASSWORD,
        importance=HIGH,
        doc="The password of a PKCS12 file; PEM has ssl.key.password only.",
    )
    ssl_keystore_certificate_chain: Password | None = config_key(
        default=None,
        type=PASSWORD,
        importance=HIGH,
        doc="The certificate and its chain as PEM text, in the place of ssl.keystore.location.",
    )
    ssl_keystore_key: Password | None = config_key(
        default=None,
        type=PASSWORD,
        importance=HIGH,
        doc="The private key (PKCS#8) as PEM text, beside ssl.keystore.certificate.chain.",
    )
    ssl_key_password: Password | None = config_key(
        default=None,
        type=PASSWORD,
        importance=HIGH,
        doc="The password of the private key, where that is encrypted.",
    )
    ssl_truststore_type: str = config_key(
        default=PEM,
        type=STRING,
        rule=one_of(PEM, PKCS12, JKS),
        doc="The format of the trust store, as ssl.keystore.type.",
    )
    ssl_truststore_location: str | None = config_key(
        default=None,
        type=STRING,
        importance=HIGH,
        doc="The file with the certificates of those whose signatures are trusted. "
        "Unset: the certificate authorities that the operating system trusts.",
    )
    ssl_truststore_password: Password | None = config_key(
        default=None,
        type=PASSWORD,
        importance=HIGH,
        doc="The password of a PKCS12 trust store.",
    )
    ssl_truststore_certificates: Password | None = config_key(
        default=None,
        type=PASSWORD,
        importance=HIGH,
        doc="The trusted certificates as PEM text, in the place of ssl.truststore.location.",
    )
    ssl_enabled_protocols: tuple[str, ...] = config_key(
        default=(TLS_1_2, TLS_1_3),
        type=LIST,
        rule=each_one_of(TLS_1_2, TLS_1_3),
        doc="The versions of TLS that may be negotiated.",
    )
    ssl_cipher_suites: tuple[str, ...] = config_key(
        default=(),
        type=LIST,
        importance=LOW,
        doc="The cipher suites that may be negotiated, by their IANA names. Empty: OpenSSL's "
        "choice. A TLS version of which no suite is named is not used; of TLSv1.3 all or none of "
        "TLS_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384 and TLS_CHACHA20_POLY1305_SHA256 "
        "must be named.",
    )
    ssl_endpoint_identification_algorithm: str = config_key(
        default=HTTPS,
        type=STRING,
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
    """What a table was given of the settings that another one has as well."""
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
