"""The broker's settings for ZooKeeper, under Kafka's names."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from ottla.config.config_def import HIGH, LOW, ConfigTable, config_key
from ottla.config.config_type import (
    BOOLEAN,
    INT,
    LIST,
    PASSWORD,
    STRING,
    Password,
    at_least,
    each_one_of,
    one_of,
)
from ottla.config.known_keys import shown
from ottla.config.ssl_config import HTTPS, JKS, PEM, PKCS12, TLS_1_2, TLS_1_3, SslSettings
from ottla.errors import ConfigError

DEFAULT_PORT: Final = 2181

_SERVER: Final = r"(?P<host>[^\s:/\[\],]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?"


class ZooKeeperAddress(NamedTuple):
    """A connect string in its parts: the servers as host:port, and the chroot ("" for none)."""

    servers: tuple[str, ...]
    chroot: str


def parse_connect(key: str, text: str) -> ZooKeeperAddress:
    """`host1:2181,host2:2181/kafka`; ConfigError where it is not of this form."""
    hosts, slash, chroot = text.partition("/")
    servers = []
    for word in hosts.split(","):
        match = re.fullmatch(_SERVER, word.strip())
        if match is None or not 0 < int(match["port"] or DEFAULT_PORT) < 1 << 16:
            raise ConfigError(f"{key}={text}: must be as host1:2181,host2:2181/chroot")
        servers.append(f"{match['host']}:{match['port'] or DEFAULT_PORT}")
    names = chroot.rstrip("/").split("/") if chroot.rstrip("/") else []
    if slash and any(name in ("", ".", "..") or "\0" in name for name in names):
        raise ConfigError(f"{key}={text}: /{chroot} is not a path in ZooKeeper")
    return ZooKeeperAddress(tuple(servers), "".join(f"/{name}" for name in names))


TLS_ENABLE: Final = "zookeeper.ssl.client.enable"


class ZooKeeperTlsConfig(ConfigTable, group=True):
    """TLS of the connections to ZooKeeper, under the names that Kafka has had since 2.5."""

    zookeeper_ssl_client_enable: bool = config_key(
        default=False,
        type=BOOLEAN,
        importance=HIGH,
        doc="Whether connections to ZooKeeper are encrypted: zookeeper.connect names its "
        "secureClientPort then. The other zookeeper.ssl.* must not be set without it.",
    )
    zookeeper_ssl_keystore_location: str | None = config_key(
        default=None,
        type=STRING,
        doc="The file with the broker's private key and certificate, for servers that ask for one.",
    )
    zookeeper_ssl_keystore_password: Password | None = config_key(
        default=None,
        type=PASSWORD,
        doc="The password of the key store: of the PKCS12 file, or of the key in a PEM file.",
    )
    zookeeper_ssl_keystore_type: str | None = config_key(
        default=None,
        type=STRING,
        rule=one_of(PEM, PKCS12, JKS),
        doc="The format of the key store; without it PKCS12 where the name ends with .p12 or "
        ".pfx, else PEM. JKS is refused.",
    )
    zookeeper_ssl_truststore_location: str | None = config_key(
        default=None,
        type=STRING,
        doc="The file with the certificates that are trusted. Unset: the certificate authorities "
        "that the operating system trusts.",
    )
    zookeeper_ssl_truststore_password: Password | None = config_key(
        default=None,
        type=PASSWORD,
        doc="The password of a PKCS12 trust store.",
    )
    zookeeper_ssl_truststore_type: str | None = config_key(
        default=None,
        type=STRING,
        rule=one_of(PEM, PKCS12, JKS),
        doc="The format of the trust store, as zookeeper.ssl.keystore.type.",
    )
    zookeeper_ssl_protocol: str | None = config_key(
        default=None,
        type=STRING,
        rule=one_of(TLS_1_2, TLS_1_3),
        importance=LOW,
        doc="The one version of TLS that is used; unset: 1.2 and 1.3 may be negotiated. Kafka's "
        "default is TLSv1.2, which ZooKeeper 3.9 refuses by its own default.",
    )
    zookeeper_ssl_enabled_protocols: tuple[str, ...] = config_key(
        default=(),
        type=LIST,
        rule=each_one_of(TLS_1_2, TLS_1_3),
        importance=LOW,
        doc="The versions of TLS that may be negotiated; empty: what zookeeper.ssl.protocol says.",
    )
    zookeeper_ssl_cipher_suites: tuple[str, ...] = config_key(
        default=(),
        type=LIST,
        importance=LOW,
        doc="The cipher suites that may be negotiated, as ssl.cipher.suites.",
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = config_key(
        default=HTTPS.upper(),
        type=STRING,
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


class ZooKeeperConfig(ZooKeeperTlsConfig, group=True):
    """Where the registry is, and how long its sessions last."""

    zookeeper_connect: str | None = config_key(
        default=None,
        type=STRING,
        importance=HIGH,
        doc=(
            "The ZooKeeper servers, as host1:2181,host2:2181, and behind them a path under which "
            "the cluster lives (/kafka), which is created. Without it the broker keeps its "
            "registry in the first of its log.dirs."
        ),
    )
    zookeeper_session_timeout_ms: int = config_key(
        default=18000,
        type=INT,
        rule=at_least(1),
        importance=HIGH,
        doc="How long ZooKeeper may hear nothing of a broker before it takes it for dead.",
    )
    zookeeper_connection_timeout_ms: int | None = config_key(
        default=None,
        type=INT,
        rule=at_least(1),
        importance=HIGH,
        doc=(
            "How long a broker that starts waits for a ZooKeeper server; without it as long as "
            "zookeeper.session.timeout.ms."
        ),
    )
    zookeeper_max_in_flight_requests: int = config_key(
        default=10,
        type=INT,
        rule=at_least(1),
        importance=HIGH,
        doc="How many requests to ZooKeeper may wait for their answers at the same time.",
    )
    zookeeper_set_acl: bool = config_key(
        default=False,
        type=BOOLEAN,
        importance=HIGH,
        doc=(
            "Whether only the brokers may change what they create in ZooKeeper; everybody may "
            "read it, but for users, tokens and brokers' settings. Brokers must have a name there: "
            "by zookeeper.sasl.username, zookeeper.digest.username, or a certificate "
            "(zookeeper.ssl.keystore.location). All brokers have the same."
        ),
    )
    zookeeper_sasl_username: str | None = config_key(
        default=None,
        type=STRING,
        doc="Who the broker is to ZooKeeper, by SASL with DIGEST-MD5: a user_<name> of the "
        "server's DigestLoginModule. Needs `pip install ottla[zookeeper-sasl]`. Ottla's own "
        "setting; Kafka has it in the section Client of a JAAS file.",
    )
    zookeeper_sasl_password: Password | None = config_key(
        default=None,
        type=PASSWORD,
        doc="The password of zookeeper.sasl.username. Ottla's own setting.",
    )
    zookeeper_digest_username: str | None = config_key(
        default=None,
        type=STRING,
        importance=LOW,
        doc="Who the broker is to ZooKeeper, in its scheme `digest`. Ottla's own setting.",
    )
    zookeeper_digest_password: Password | None = config_key(
        default=None,
        type=PASSWORD,
        importance=LOW,
        doc="The password of zookeeper.digest.username. Ottla's own setting.",
    )

    @classmethod
    def complete(cls, values: dict[str, Any], given: Collection[str]) -> None:
        super().complete(values, given)
        values["zookeeper_connect"] = values["zookeeper_connect"] or None
        if values["zookeeper_connect"] is not None:
            parse_connect("zookeeper.connect", values["zookeeper_connect"])
        names = []
        for scheme in ("sasl", "digest"):
            username = values[f"zookeeper_{scheme}_username"]
            password = values[f"zookeeper_{scheme}_password"]
            if (username is None) != (password is None):
                raise ConfigError(
                    f"zookeeper.{scheme}.username and zookeeper.{scheme}.password: must be set "
                    "together"
                )
            if username is not None and (not username or ":" in username):
                raise ConfigError(
                    f"zookeeper.{scheme}.username={username}: must be a name without a colon"
                )
            names.append(username)
        if values["zookeeper_set_acl"] and not any(
            (*names, values["zookeeper_ssl_keystore_location"])
        ):
            raise ConfigError(
                "zookeeper.set.acl=true: must come with zookeeper.sasl.username, "
                "zookeeper.digest.username or zookeeper.ssl.keystore.location, because nodes "
                "belong to whoever made them"
            )
