"""The broker's settings for ZooKeeper, under Kafka's names."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from ottla.config.config_def import HIGH, LOW, config_key
from ottla.config.config_type import Password
from ottla.config.rule import at_least
from ottla.config.zookeeper_tls_config import ZooKeeperTlsConfig
from ottla.errors import ConfigError
from ottla.structs import NamedTuple

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


class ZooKeeperConfig(ZooKeeperTlsConfig, group=True):
    """Where the registry is, and how long its sessions last."""

    zookeeper_connect: str | None = config_key(
        default=None,
        importance=HIGH,
        doc=(
            "The ZooKeeper servers, as host1:2181,host2:2181, and behind them a path under which "
            "the cluster lives (/kafka), which is created. Without it the broker keeps its "
            "registry in the first of its log.dirs."
        ),
    )
    zookeeper_session_timeout_ms: int = config_key(
        default=18000,
        rule=at_least(1),
        importance=HIGH,
        doc="How long ZooKeeper may hear nothing of a broker before it takes it for dead.",
    )
    zookeeper_connection_timeout_ms: int | None = config_key(
        default=None,
        rule=at_least(1),
        importance=HIGH,
        doc=(
            "How long a broker that starts waits for a ZooKeeper server; without it as long as "
            "zookeeper.session.timeout.ms."
        ),
    )
    zookeeper_max_in_flight_requests: int = config_key(
        default=10,
        rule=at_least(1),
        importance=HIGH,
        doc="How many requests to ZooKeeper may wait for their answers at the same time.",
    )
    zookeeper_set_acl: bool = config_key(
        default=False,
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
        doc="Who the broker is to ZooKeeper, by SASL with DIGEST-MD5: a user_<name> of the "
        "server's DigestLoginModule. Needs `pip install ottla[zookeeper-sasl]`. Ottla's own "
        "setting; Kafka has it in the section Client of a JAAS file.",
    )
    zookeeper_sasl_password: Password | None = config_key(
        default=None,
        doc="The password of zookeeper.sasl.username. Ottla's own setting.",
    )
    zookeeper_digest_username: str | None = config_key(
        default=None,
        importance=LOW,
        doc="Who the broker is to ZooKeeper, in its scheme `digest`. Ottla's own setting.",
    )
    zookeeper_digest_password: Password | None = config_key(
        default=None,
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
