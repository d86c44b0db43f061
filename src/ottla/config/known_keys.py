"""Names of Kafka settings (2.3 to 3.9) that Ottla accepts and does nothing with."""

from __future__ import annotations

from typing import Final


def _names(*lines: str) -> frozenset[str]:
    return frozenset(name for line in lines for name in line.split())


BROKER_PREFIXES: Final = (
    "broker.heartbeat.",
    "broker.session.",
    "compression.",
    "controller.",
    "delegation.token.",
    "group.consumer.",
    "group.coordinator.",
    "group.share.",
    "listener.name.",
    "log.cleaner.",
    "metadata.",
    "metrics.",
    "offsets.",
    "password.encoder.",
    "quota.",
    "remote.",
    "replica.",
    "replication.quota.",
    "sasl.",
    "share.",
    "socket.connection.setup.",
    "ssl.",
    "telemetry.",
    "transaction.",
    "zookeeper.",
)
"""Families of broker settings; names that the table has are never looked up here."""

BROKER_NAMES: Final = _names(
    "allow.everyone.if.no.acl.found alter.config.policy.class.name authorizer.class.name",
    "alter.log.dirs.replication.quota.window.num auto.include.jmx.reporter",
    "alter.log.dirs.replication.quota.window.size.seconds",
    "background.threads client.quota.callback.class connection.failed.authentication.delay.ms",
    "connections.max.reauth.ms control.plane.listener.name",
    "create.topic.policy.class.name delete.records.purgatory.purge.interval.requests",
    "early.start.listeners eligible.leader.replicas.enable",
    "fetch.purgatory.purge.interval.requests log.preallocate",
    "producer.purgatory.purge.interval.requests",
    "initial.broker.registration.timeout.ms",
    "inter.broker.protocol.version kafka.metrics.polling.interval.secs kafka.metrics.reporters",
    "log.dir.failure.timeout.ms log.local.retention.bytes",
    "log.local.retention.ms log.message.format.version",
    "max.connection.creation.rate max.request.partition.size.limit metric.reporters node.id",
    "num.io.threads num.network.threads num.replica.alter.log.dirs.threads",
    "principal.builder.class process.roles queued.max.request.bytes queued.max.requests",
    "security.providers super.users",
    "server.max.startup.time.ms unstable.api.versions.enable unstable.feature.versions.enable",
)

TOPIC_NAMES: Final = _names(
    "local.retention.bytes local.retention.ms",
    "message.format.version preallocate",
    "remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable",
)

CLIENT_PREFIXES: Final = ("sasl.", "ssl.")

_CLIENT_NAMES: Final = _names(
    "auto.include.jmx.reporter client.dns.lookup enable.metrics.push metadata.recovery.strategy",
    "metadata.recovery.rebootstrap.trigger.ms metric.reporters metrics.num.samples",
    "metrics.recording.level metrics.sample.window.ms security.providers",
    "socket.connection.setup.timeout.max.ms",
)

PRODUCER_NAMES: Final = _CLIENT_NAMES | _names(
    "metadata.max.idle.ms partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms transaction.two.phase.commit.enable",
)

CONSUMER_NAMES: Final = _CLIENT_NAMES

ADMIN_NAMES: Final = _CLIENT_NAMES | _names("bootstrap.controllers")
