"""Brokers with SASL_SSL between them and an authorizer, their users, and what these may do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import ottla
from ottla import KafkaError
from ottla.config.authorizer_config import AUTHORIZERS
from ottla.errors import ErrorCode
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePattern,
    ResourceType,
)
from ottla.testing import wait_until

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
TOPIC: Final = "orders"
PARTITIONS: Final = 3
USERS: Final = ("broker", "admin", "alice", "bob", "mallory")
"""Alice writes and reads, bob reads; mallory may do nothing."""
POLL_MS = 100


def secret(user: str) -> str:
    return f"secret-of-{user}"


def broker_settings(certificates) -> dict[str, str | int]:
    """One listener, for brokers and clients."""
    users = " ".join(f'user_{user}="{secret(user)}"' for user in USERS)
    own = f'{MODULE} required username="broker" password="{secret("broker")}"'
    return {
        "listeners": "SECURE://localhost:0",
        "listener.security.protocol.map": "SECURE:SASL_SSL",
        "inter.broker.listener.name": "SECURE",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f"{own} {users};",
        "ssl.keystore.location": certificates.server,
        "ssl.truststore.location": certificates.ca,
        "authorizer.class.name": AUTHORIZERS[0],
        "super.users": "User:broker;User:admin",
        # A broker that has not heard of the topic yet would say that nobody may create it.
        "auto.create.topics.enable": "false",
    }


def login(user: str, certificates) -> dict[str, str]:
    """How a user connects, as librdkafka and Ottla have it."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": secret(user),
        "ssl.ca.location": certificates.ca,
    }


def ours(user: str, certificates) -> dict[str, str]:
    """The same for our own clients."""
    settings = login(user, certificates)
    return {name.replace("ssl.ca.", "ssl.truststore."): text for name, text in settings.items()}


def rule(
    user: str,
    operation: AclOperation,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    """An ACL about the topic."""
    entry = AccessControlEntry(f"User:{user}", "*", operation, permission)
    return AclBinding(ResourcePattern(ResourceType.TOPIC, TOPIC), entry)


RULES: Final = (
    rule("alice", AclOperation.WRITE),
    rule("alice", AclOperation.READ),
    rule("bob", AclOperation.READ),
)
DENIAL: Final = rule("bob", AclOperation.READ, AclPermissionType.DENY)
NO_DENIAL: Final = AclBindingFilter(*(DENIAL.pattern + DENIAL.entry))


def prepare(addresses: Iterable[str], certificates) -> None:
    """Make the topic, of which each broker leads a partition, and ACLs that all brokers know."""
    addresses = list(addresses)
    with ottla.Admin(addresses[0], ours("admin", certificates)) as admin:
        admin.create_topics([ottla.NewTopic(TOPIC, PARTITIONS, 3)])
        admin.create_acls(RULES)
    for address in addresses:
        for user in ("alice", "bob"):
            with ottla.Admin(address, ours(user, certificates)) as admin:
                wait_until(lambda admin=admin: TOPIC in admin.list_topics(), f"{user} sees it")


class PartitionReaders:
    """A user's consumers, one for each partition, and so for each broker: what they were told."""

    def __init__(self, bootstrap_servers: str, settings: dict[str, str]) -> None:
        self.read = [0] * PARTITIONS
        self.refused = [0] * PARTITIONS
        self._consumers = [
            ottla.Consumer(bootstrap_servers, settings, auto_offset_reset="earliest")
            for _ in range(PARTITIONS)
        ]
        for index, consumer in enumerate(self._consumers):
            consumer.assign([ottla.TopicPartition(TOPIC, index)])

    def __enter__(self) -> PartitionReaders:
        return self

    def __exit__(self, *exc: object) -> None:
        for consumer in self._consumers:
            consumer.close()

    def poll(self) -> None:
        """Poll each once; a refusal is counted."""
        for index, consumer in enumerate(self._consumers):
            try:
                self.read[index] += len(consumer.poll(POLL_MS))
            except KafkaError as error:
                if error.error is not ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    raise
                self.refused[index] += 1

    def have_read_more(self, than: Iterable[int]) -> bool:
        return all(read > before for read, before in zip(self.read, than, strict=True))

    def have_been_refused(self, than: Iterable[int]) -> bool:
        return all(count > before for count, before in zip(self.refused, than, strict=True))
