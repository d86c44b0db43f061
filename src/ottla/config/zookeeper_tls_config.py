"""Settings of TLS to ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ottla.config.config_def import HIGH, LOW, ConfigTable, config_key
from ottla.config.config_type import Password
from ottla.config.known_keys import shown
from ottla.config.rule import each_one_of, one_of
from ottla.config.ssl_config import HTTPS, JKS, PEM, PKCS12, TLS_1_2, TLS_1_3, SslSettings
from ottla.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Collection

TLS_ENABLE: Final = "zookeeper.ssl.client.enable"


class ZooKeeperTlsConfig(ConfigTable, group=True):
    """TLS of the connections to ZooKeeper, under the names that Kafka has had since 2.5."""

    zookeeper_ssl_client_enable: bool = config_key(
        default=False,
        importance=HIGH,
        doc="Whether connections to ZooKeeper are encrypted: zookeeper.connect names its "
        "secureClientPort then. The other zookeeper.ssl.* must not be set without it.",
    )
    zookeeper_ssl_keystore_location: str | None = config_key(
        default=None,
        doc="The file with the broker's private key and certificate, for servers that ask for one.",
    )
    zookeeper_ssl_keystore_password: Password | None = config_key(
        default=None,
        doc="The password of the key store: of the PKCS12 file, or of the key in a PEM file.",
    )
    zookeeper_ssl_keystore_type: str | None = config_key(
        default=None,
        rule=one_of(PEM, PKCS12, JKS),
        doc="The format of the key store; without it PKCS12 where the name ends with .p12 or "
        ".pfx, else PEM. JKS is refused.",
    )
    zookeeper_ssl_truststore_location: str | None = config_key(
        default=None,
        doc="The file with the certificates that are trusted. Unset: the certificate authorities "
        "that the operating system trusts.",
    )
    zookeeper_ssl_truststore_password: Password | None = config_key(
        default=None,
        doc="The password of a PKCS12 trust store.",
    )
    zookeeper_ssl_truststore_type: str | None = config_key(
        default=None,
        rule=one_of(PEM, PKCS12, JKS),
        doc="The format of the trust store, as zookeeper.ssl.keystore.type.",
    )
    zookeeper_ssl_protocol: str | None = config_key(
        default=None,
        rule=one_of(TLS_1_2, TLS_1_3),
        importance=LOW,
        doc="The one version of TLS that is used; unset: 1.2 and 1.3 may be negotiated. Kafka's "
        "default is TLSv1.2, which ZooKeeper 3.9 refuses by its own default.",
    )
    zookeeper_ssl_enabled_protocols: tuple[str, ...] = config_key(
        default=(),
        rule=each_one_of(TLS_1_2, TLS_1_3),
        importance=LOW,
        doc="The versions of TLS that may be negotiated; empty: what zookeeper.ssl.protocol says.",
    )
    zookeeper_ssl_cipher_suites: tuple[str, ...] = config_key(
        default=(),
        importance=LOW,
        doc="The cipher suites that may be negotiated, as ssl.cipher.suites.",
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = config_key(
        default=HTTPS.upper(),
        rule=one_of(HTTPS, HTTPS.upper(), ""),
        importance=LOW,
        doc="Whether the server's certificate must be for the host in zookeeper.connect: HTTPS, or "
        "empty for no check.",
    )

    @property
    def zookeeper_ssl(self) -> SslSettings | None:
        """The same as settings of any client that connects; None without TLS.

        Raises:
            ConfigError: they do not go together; it names the keys of Kafka's clients.
        """
        if not self.zookeeper_ssl_client_enable:
            return None
        settings: dict[str, Any] = {
            "ssl.enabled.protocols": self.zookeeper_ssl_enabled_protocols
            or tuple(filter(None, (self.zookeeper_ssl_protocol,)))
            or (TLS_1_2, TLS_1_3),
            "ssl.cipher.suites": self.zookeeper_ssl_cipher_suites,
            "ssl.endpoint.identification.algorithm": (
                self.zookeeper_ssl_endpoint_identification_algorithm.lower()
            ),
        }
        location = self.zookeeper_ssl_keystore_location
        if location is not None:
            type_ = self.zookeeper_ssl_keystore_type or _store_type(location)
            of_password = "ssl.key.password" if type_ == PEM else "ssl.keystore.password"
            settings["ssl.keystore.location"] = location
            settings["ssl.keystore.type"] = type_
            settings[of_password] = self.zookeeper_ssl_keystore_password
        location = self.zookeeper_ssl_truststore_location
        if location is not None:
            type_ = self.zookeeper_ssl_truststore_type or _store_type(location)
            settings["ssl.truststore.location"] = location
            settings["ssl.truststore.type"] = type_
            settings["ssl.truststore.password"] = self.zookeeper_ssl_truststore_password
        return SslSettings.parse(settings)

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        if not values["zookeeper_ssl_client_enable"]:
            for name in ZooKeeperTlsConfig.keys:
                row = cls.keys[name]
                if name != TLS_ENABLE and values[row.attribute] not in (row.default, None, ""):
                    text = shown(name, row.format(values[row.attribute]))
                    raise ConfigError(
                        f"{name}={text}: must not be set without {TLS_ENABLE}=true, for nothing "
                        "would be encrypted"
                    )
            return
        for store in ("keystore", "truststore"):
            if values[f"zookeeper_ssl_{store}_location"] is None:
                for part in ("password", "type"):
                    if values[f"zookeeper_ssl_{store}_{part}"] is not None:
                        raise ConfigError(
                            f"zookeeper.ssl.{store}.{part}: must come with "
                            f"zookeeper.ssl.{store}.location"
                        )
            elif values[f"zookeeper_ssl_{store}_type"] == JKS:
                raise ConfigError(
                    f"zookeeper.ssl.{store}.type=JKS: must be PEM or PKCS12, for Java's own format "
                    "is not read here"
                )


def _store_type(location: str) -> str:
    return PKCS12 if location.lower().endswith((".p12", ".pfx")) else PEM
