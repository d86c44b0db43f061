"""Kafka's settings (2.3 to 4.1) that Ottla has no row for: passed over, or refused.

A setting that only tunes a thing that Ottla does another way, or lacks, gets a warning. One
that asks for protection that Ottla would not give is refused: a broker that should check passwords
must not start without doing so. Kafka's default asks for nothing, and passes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from ottla.config.config_type import BOOLEAN, DOUBLE, INT, LONG, SHORT, STRING
from ottla.errors import ConfigError
from ottla.structs import NamedTuple


class Refusal(NamedTuple):
    """Why a setting cannot be honoured, and Kafka's default, with which it asks for nothing."""

    reason: str
    default: str = ""


def _names(*lines: str) -> tuple[str, ...]:
    return tuple(name for line in lines for name in line.split())


def _reasons(named: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """The reason of each name, where there are the names of each reason."""
    return {name: reason for reason, names in named.items() for name in names}


BROKER_UNUSED: Final = _reasons(
    {
        "KRaft's; the controller here is elected in ZooKeeper or the registry": _names(
            "broker.heartbeat.interval.ms broker.session.timeout.ms",
            "controller.performance.always.log.threshold.ms",
            "controller.performance.sample.period.ms controller.quorum.append.linger.ms",
            "controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms",
            "controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms",
            "controller.quorum.retry.backoff.ms early.start.listeners",
            "eligible.leader.replicas.enable initial.broker.registration.timeout.ms",
            "internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes",
            "internal.metadata.max.batch.size.in.bytes internal.metadata.max.fetch.size.in.bytes",
            "log.dir.failure.timeout.ms metadata.log.dir",
            "metadata.log.max.record.bytes.between.snapshots",
            "metadata.log.max.snapshot.interval.ms metadata.log.segment.bytes",
            "metadata.log.segment.min.bytes metadata.log.segment.ms metadata.max.idle.interval.ms",
            "metadata.max.retention.bytes metadata.max.retention.ms server.max.startup.time.ms",
            "unclean.leader.election.interval.ms unstable.api.versions.enable",
            "unstable.feature.versions.enable zookeeper.metadata.migration.min.batch.size",
        ),
        "there are no share groups and no groups of the Streams protocol": _names(
            "group.share.assignors group.share.delivery.count.limit group.share.enable",
            "group.share.heartbeat.interval.ms group.share.max.groups",
            "group.share.max.heartbeat.interval.ms group.share.max.record.lock.duration.ms",
            "group.share.max.session.timeout.ms group.share.max.share.sessions",
            "group.share.max.size group.share.min.heartbeat.interval.ms",
            "group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms",
            "group.share.partition.max.record.locks group.share.persister.class.name",
            "group.share.record.lock.duration.ms group.share.session.timeout.ms",
            "group.streams.heartbeat.interval.ms group.streams.max.heartbeat.interval.ms",
            "group.streams.max.session.timeout.ms group.streams.max.size",
            "group.streams.max.standby.replicas group.streams.min.heartbeat.interval.ms",
            "group.streams.min.session.timeout.ms group.streams.num.standby.replicas",
            "group.streams.session.timeout.ms share.coordinator.append.linger.ms",
            "share.coordinator.cold.partition.snapshot.interval.ms",
            "share.coordinator.load.buffer.size",
            "share.coordinator.snapshot.update.records.per.snapshot",
            "share.coordinator.state.topic.compression.codec",
            "share.coordinator.state.topic.min.isr share.coordinator.state.topic.num.partitions",
            "share.coordinator.state.topic.prune.interval.ms",
            "share.coordinator.state.topic.replication.factor",
            "share.coordinator.state.topic.segment.bytes share.coordinator.threads",
            "share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests",
        ),
        "there is no tiered storage": _names(
            "log.local.retention.bytes log.local.retention.ms remote.fetch.max.wait.ms",
            "remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes",
            "remote.log.manager.copier.thread.pool.size",
            "remote.log.manager.copy.max.bytes.per.second",
            "remote.log.manager.copy.quota.window.num",
            "remote.log.manager.copy.quota.window.size.seconds",
            "remote.log.manager.expiration.thread.pool.size",
            "remote.log.manager.fetch.max.bytes.per.second",
            "remote.log.manager.fetch.quota.window.num",
            "remote.log.manager.fetch.quota.window.size.seconds",
            "remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms",
            "remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter",
            "remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes",
            "remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path",
            "remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name",
            "remote.log.reader.max.pending.tasks remote.log.reader.threads",
            "remote.log.storage.manager.class.name remote.log.storage.manager.class.path",
            "remote.log.storage.manager.impl.prefix remote.log.storage.system.enable",
        ),
        "one thread serves all requests, and slow work has threads of its own": _names(
            "background.threads group.coordinator.threads num.io.threads",
            "num.replica.alter.log.dirs.threads",
        ),
        "one thread serves all connections, as more of them would not pay (docs/operate/"
        "operations.md has the numbers)": _names("num.network.threads"),
        "a connection has one request in flight, or five produces that wait for acknowledgements, "
        "and none waits in a queue": _names(
            "queued.max.request.bytes queued.max.requests",
        ),
        "an operation leaves its purgatory when it is complete": _names(
            "delete.records.purgatory.purge.interval.requests",
            "fetch.purgatory.purge.interval.requests producer.purgatory.purge.interval.requests",
        ),
        "versions are negotiated for each connection, and records are kept in format 2": _names(
            "inter.broker.protocol.version log.message.format.version",
        ),
        "segments grow as they are written": _names(
            "log.preallocate",
        ),
        "reporters of Java cannot be run, and windows are Kafka's defaults": _names(
            "auto.include.jmx.reporter kafka.metrics.polling.interval.secs",
            "kafka.metrics.reporters metrics.num.samples metrics.recording.level",
            "metrics.sample.window.ms",
        ),
        "the controller's requests come on the listener of the brokers": _names(
            "control.plane.listener.name",
        ),
        "replica.alter.log.dirs.io.max.bytes.per.second limits these moves": _names(
            "alter.log.dirs.replication.quota.window.num",
            "alter.log.dirs.replication.quota.window.size.seconds",
        ),
        "internal topics are written uncompressed, and by every in-sync replica": _names(
            "group.coordinator.append.linger.ms offsets.commit.required.acks",
            "offsets.load.buffer.size offsets.topic.compression.codec",
            "transaction.state.log.load.buffer.size",
        ),
        "groups of consumers (KIP-848) are always served": _names(
            "group.consumer.regex.refresh.interval.ms group.coordinator.new.enable",
        ),
        "transactional batches are always verified, and transactions have one phase": _names(
            "transaction.partition.verification.enable transaction.two.phase.commit.enable",
        ),
        "brokers connect with socket.receive.buffer.bytes and a time limit of theirs": _names(
            "replica.socket.receive.buffer.bytes socket.connection.setup.timeout.max.ms",
            "socket.connection.setup.timeout.ms",
        ),
        "brokers repeat AddPartitionsToTxn at a pace of their own": _names(
            "add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms",
        ),
        "the versions of TLS are those of ssl.enabled.protocols": _names(
            "ssl.protocol",
        ),
        "the rounds of retention are counted from when the logs are loaded": _names(
            "log.initial.task.delay.ms",
        ),
        "the ZooKeeper client is kazoo, which has neither": _names(
            "zookeeper.clientCnxnSocket zookeeper.sync.time.ms",
        ),
    }
)
"""Settings of a broker that are passed over, and why they would change nothing."""

UNUSED_THREAD_KEYS: Final = {
    "background.threads": 10,
    "num.io.threads": 8,
    "num.network.threads": 3,
}
"""Pools of threads that Kafka resizes and Ottla does not have, and Kafka's defaults."""

_UNUSED_LOGIN: Final = "Ottla's own logins do not refresh in this way: without effect."

UNUSED_KEYS: Final = {
    **dict.fromkeys(UNUSED_THREAD_KEYS, (INT, "Ottla has no such threads: without effect.")),
    "log.preallocate": (BOOLEAN, "Segments grow as they are written: without effect."),
    "sasl.kerberos.kinit.cmd": (STRING, _UNUSED_LOGIN),
    "sasl.kerberos.min.time.before.relogin": (LONG, _UNUSED_LOGIN),
    "sasl.kerberos.ticket.renew.jitter": (DOUBLE, _UNUSED_LOGIN),
    "sasl.kerberos.ticket.renew.window.factor": (DOUBLE, _UNUSED_LOGIN),
    "sasl.login.refresh.buffer.seconds": (SHORT, _UNUSED_LOGIN),
    "sasl.login.refresh.min.period.seconds": (SHORT, _UNUSED_LOGIN),
    "sasl.login.refresh.window.factor": (DOUBLE, _UNUSED_LOGIN),
    "sasl.login.refresh.window.jitter": (DOUBLE, _UNUSED_LOGIN),
}
"""What can be changed as in Kafka and does nothing: the types, and why."""

TOPIC_UNUSED: Final = _reasons(
    {
        "records are kept in format 2, as since Kafka 3.0": _names(
            "message.format.version",
        ),
    }
)
"""Settings of a topic that are passed over, as Kafka 3 passes them over itself."""

SSL_UNUSED: Final = {"ssl.protocol": BROKER_UNUSED["ssl.protocol"]}
"""The unused keys of a broker that may also be set for one listener."""

_CLIENT_UNUSED: Final = _reasons(
    {
        "reporters of Java cannot be run, and nothing is pushed to brokers": _names(
            "auto.include.jmx.reporter enable.metrics.push metric.reporters metrics.num.samples",
            "metrics.recording.level metrics.sample.window.ms",
        ),
        "every address of a name is tried": _names(
            "client.dns.lookup",
        ),
        "a client that reaches none of its brokers always asks bootstrap.servers again": _names(
            "metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy",
        ),
        "each attempt has socket.connection.setup.timeout.ms": _names(
            "socket.connection.setup.timeout.max.ms",
        ),
        "the versions of TLS are those of ssl.enabled.protocols": _names(
            "ssl.protocol",
        ),
    }
)

PRODUCER_UNUSED: Final = _CLIENT_UNUSED | _reasons(
    {
        "metadata of a topic that was written are kept until the producer is closed": _names(
            "metadata.max.idle.ms",
        ),
        "the sticky partitioner does not weigh brokers": _names(
            "partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms",
        ),
        "transactions have one phase": _names(
            "transaction.two.phase.commit.enable",
        ),
        "only a consumer has it; one dict for both is common": _names(
            "key.deserializer value.deserializer",
        ),
    }
)

CONSUMER_UNUSED: Final = _CLIENT_UNUSED | _reasons(
    {
        "settings of Kafka's own tests": _names(
            "internal.leave.group.on.close internal.throw.on.fetch.stable.offset.unsupported",
        ),
        "there are no share groups": _names(
            "share.acknowledgement.mode",
        ),
        "only a producer has it; one dict for both is common": _names(
            "key.serializer value.serializer",
        ),
    }
)

ADMIN_UNUSED: Final = _CLIENT_UNUSED | _reasons(
    {
        "there are no KRaft controllers": _names(
            "bootstrap.controllers",
        ),
    }
)

_OPENSSL: Final = "TLS is OpenSSL's here, and no class or provider of Java can be put in its place"

SSL_REFUSED: Final[Mapping[str, Refusal]] = {
    "ssl.engine.factory.class": Refusal(_OPENSSL),
    "ssl.provider": Refusal(_OPENSSL),
    "ssl.secure.random.implementation": Refusal(_OPENSSL),
    "ssl.keymanager.algorithm": Refusal(_OPENSSL, "SunX509"),
    "ssl.trustmanager.algorithm": Refusal(_OPENSSL, "PKIX"),
}

_NO_SUCH_LOGIN: Final = (
    "a login is set by sasl.mechanism and sasl.jaas.config, or sasl.username and sasl.password, "
    "and this would not be used"
)

CLIENT_REFUSED: Final[Mapping[str, Refusal]] = {
    **SSL_REFUSED,
    "security.providers": Refusal(_OPENSSL),
    "sasl.": Refusal(_NO_SUCH_LOGIN),
}

_NO_SUCH_SASL: Final = "SASL has nothing of this here, and it would not be used"
_ONE_JAAS_EACH: Final = (
    "each mechanism of a listener has one of its own, "
    "listener.name.<name>.<mechanism>.sasl.jaas.config"
)
DEFAULT_PRINCIPAL_BUILDER: Final = (
    "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
)
_ONE_BUILDER: Final = (
    "all listeners have one builder, principal.builder.class, which gets the listener's name"
)
_NO_POLICY: Final = "a class of Java cannot be run here, and what it refuses would be done"
_NO_ZOOKEEPER_TLS: Final = "connections to ZooKeeper have nothing of this, and it would not be used"

BROKER_REFUSED: Final[Mapping[str, Refusal]] = {
    **SSL_REFUSED,
    "security.providers": Refusal(_OPENSSL),
    "sasl.jaas.config": Refusal(_ONE_JAAS_EACH),
    "sasl.": Refusal(_NO_SUCH_SASL),
    "principal.builder.class": Refusal(
        _ONE_BUILDER,
        DEFAULT_PRINCIPAL_BUILDER,
    ),
    "create.topic.policy.class.name": Refusal(_NO_POLICY),
    "alter.config.policy.class.name": Refusal(_NO_POLICY),
    "client.quota.callback.class": Refusal(_NO_POLICY),
    "zookeeper.ssl.": Refusal(_NO_ZOOKEEPER_TLS),
}
"""The refusals, by a key, or by a prefix with a dot at its end for a family of keys."""

_NOTHING_PREALLOCATED: Final = "segments grow as they are written"
_NO_TIERS: Final = "there is no tiered storage"

TOPIC_REFUSED: Final[Mapping[str, Refusal]] = {
    "preallocate": Refusal(_NOTHING_PREALLOCATED, "false"),
    "remote.log.copy.disable": Refusal(_NO_TIERS, "false"),
    "remote.log.delete.on.disable": Refusal(_NO_TIERS, "false"),
    "remote.storage.enable": Refusal(_NO_TIERS, "false"),
    "local.retention.bytes": Refusal(_NO_TIERS, "-2"),
    "local.retention.ms": Refusal(_NO_TIERS, "-2"),
}

_OAUTHBEARER: Final = "org.apache.kafka.common.security.oauthbearer."
_FAMILY_DEFAULTS: Final[Mapping[str, str]] = {
    "sasl.enabled.mechanisms": "GSSAPI",
    "sasl.jaas.config": "",
    "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
    "sasl.kerberos.min.time.before.relogin": "60000",
    "sasl.kerberos.ticket.renew.jitter": "0.05",
    "sasl.kerberos.ticket.renew.window.factor": "0.8",
    "sasl.login.callback.handler.class": _OAUTHBEARER + "OAuthBearerLoginCallbackHandler",
    "sasl.login.refresh.buffer.seconds": "300",
    "sasl.login.refresh.min.period.seconds": "60",
    "sasl.login.refresh.window.factor": "0.8",
    "sasl.login.refresh.window.jitter": "0.05",
    "sasl.login.retry.backoff.max.ms": "10000",
    "sasl.login.retry.backoff.ms": "100",
    "sasl.mechanism": "GSSAPI",
    "sasl.mechanism.controller.protocol": "GSSAPI",
    "sasl.mechanism.inter.broker.protocol": "GSSAPI",
    "sasl.oauthbearer.assertion.algorithm": "RS256",
    "sasl.oauthbearer.assertion.claim.exp.seconds": "300",
    "sasl.oauthbearer.assertion.claim.jti.include": "false",
    "sasl.oauthbearer.assertion.claim.nbf.seconds": "60",
    "sasl.oauthbearer.clock.skew.seconds": "30",
    "sasl.oauthbearer.header.urlencode": "false",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms": "3600000",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "10000",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "100",
    "sasl.oauthbearer.jwt.retriever.class": _OAUTHBEARER + "DefaultJwtRetriever",
    "sasl.oauthbearer.jwt.validator.class": _OAUTHBEARER + "DefaultJwtValidator",
    "sasl.oauthbearer.scope.claim.name": "scope",
    "sasl.oauthbearer.sub.claim.name": "sub",
    "sasl.server.callback.handler.class": _OAUTHBEARER + "OAuthBearerValidatorCallbackHandler",
    "sasl.server.max.receive.size": "524288",
    "zookeeper.ssl.crl.enable": "false",
    "zookeeper.ssl.ocsp.enable": "false",
}
"""Kafka's defaults of the families that are refused; others have none."""

KRAFT_DEFAULTS: Final[Mapping[str, str]] = {
    "process.roles": "",
    "node.id": "-1",
    "controller.quorum.voters": "",
    "controller.quorum.bootstrap.servers": "",
    "controller.listener.names": "",
    "zookeeper.metadata.migration.enable": "false",
}
"""Settings that only a file for Kafka's KRaft mode has, and their defaults."""

_SECRET_WORDS: Final = (
    "password",
    "passphrase",
    "secret",
    "jaas",
    "keystore.key",
    "master.key",
)


def shown(name: str, value: Any) -> str:
    """The value, unless the name says that it is a secret."""
    return "[hidden]" if any(word in name.lower() for word in _SECRET_WORDS) else str(value)


def refuse(name: str, value: Any, refused: Mapping[str, Refusal], prefix: str = "") -> bool:
    """ConfigError for a setting that Ottla cannot honour; returns whether it is in `refused`.

    `prefix` stands before the name in the file (`listener.name.<name>.`).
    """
    family = family_of(name, refused)
    if not family:
        return False
    default = _FAMILY_DEFAULTS.get(name, refused[family].default)
    text = "" if value is None else str(value).strip()
    if text.lower() not in ("", default.lower()):
        raise ConfigError(
            f"{prefix}{name}={shown(name, text)}: must not be set; {refused[family].reason}"
        )
    return True


def family_of(name: str, refused: Mapping[str, Refusal]) -> str:
    """The key of `refused` that a name falls under; empty if none does."""
    return next((key for key in (name, *_prefixes(name)) if key in refused), "")


def _prefixes(name: str) -> Iterable[str]:
    """`a.` and `a.b.` of a.b.c."""
    return (name[: dot.end()] for dot in re.finditer(r"\.", name))


def refuse_kraft(settings: Mapping[str, Any]) -> None:
    """ConfigError for a file that was made for a node of KRaft."""
    found = [
        name
        for name, default in KRAFT_DEFAULTS.items()
        if str(settings.get(name) or default).strip() not in ("", default)
    ]
    if not found:
        return
    node_id = settings.get("node.id", settings.get("broker.id", 0))
    raise ConfigError(
        f"{found[0]}={settings[found[0]]}: this file is for Kafka's KRaft mode, which Ottla does "
        f"not have; take {', '.join(found)} and the controllers' listeners out of it, and set "
        f"broker.id={node_id}. A cluster of several brokers needs zookeeper.connect"
    )


def refused_names(refused: Mapping[str, Refusal]) -> set[str]:
    """Names that a misspelt one may stand for."""
    families = tuple(name for name in refused if name.endswith("."))
    return {name for name in refused if not name.endswith(".")} | {
        name for name in _FAMILY_DEFAULTS if name.startswith(families)
    }


def similar_name(name: str, names: Collection[str]) -> str | None:
    """The name that a misspelt one stands for: one or two letters off, or other separators."""
    plain = _letters(name)
    most = 1 if len(plain) < 8 else 2
    best = None
    for candidate in sorted(names):
        distance = _edits(plain, _letters(candidate), most)
        if distance <= most:
            best, most = candidate, distance - 1
    return best


def _letters(name: str) -> str:
    return re.sub(r"[._-]", "", name.strip().lower())


def _edits(one: str, other: str, most: int) -> int:
    """How many letters are missing, too many, wrong or swapped; above `most` any larger number."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before, last = [0] * (len(other) + 1), list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, against in enumerate(other, 1):
            is_swap = row > 1 < column and letter == other[column - 2] and one[row - 2] == against
            now.append(
                min(
                    last[column] + 1,
                    now[-1] + 1,
                    last[column - 1] + (letter != against),
                    before[column - 2] + 1 if is_swap else most + 1,
                )
            )
        if min(now) > most:
            return most + 1
        before, last = last, now
    return last[-1]
