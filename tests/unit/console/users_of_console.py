"""A broker whose users have rights of their own, for a console at which they log in."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from visitor import Visitor, visit

from ottla import Admin, Producer, TopicPartition
from ottla.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from ottla.testing import InProcessBroker

USERS = ("admin", "alice", "bob", "carol", "nobody")
AT_LOGIN = {
    "has_login": True,
    "client": {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
}
"""The settings of a console whose users log in."""


def password(name: str) -> str:
    return f"{name}-s3cret"


def client(name: str) -> dict[str, str]:
    """The settings of a user's own clients."""
    return {**AT_LOGIN["client"], "sasl.username": name, "sasl.password": password(name)}


def at_login(
    broker: InProcessBroker,
    walk: Callable[[Visitor], Coroutine[Any, Any, Any]],
    **settings: Any,
) -> Any:
    """A walk at a console of the broker where users log in."""
    return visit(broker.bootstrap_servers, walk, **AT_LOGIN, **settings)


async def logged_in(visitor: Visitor, name: str) -> Visitor:
    """Another browser, where a user is logged in."""
    browser = visitor.another()
    assert (await browser.log_in(name, password(name))).status == 303
    return browser


@contextmanager
def users_broker() -> Iterator[InProcessBroker]:
    """admin may do all, alice and bob all with topics and groups that begin with their names; carol
    may describe topics of alice, and nobody may do nothing.
    """
    users = " ".join(f'user_{name}="{password(name)}"' for name in USERS)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="admin" password="{password("admin")}" {users};'
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin",
    }
    with InProcessBroker(**settings) as broker:
        fill(broker)
        yield broker


def fill(broker: InProcessBroker) -> None:
    """A topic and a group of alice and of bob, with a secret in a record."""
    servers = broker.bootstrap_servers
    rights = [right(name, name, kind) for name in ("alice", "bob") for kind in KINDS]
    rights.append(right("carol", "alice", ResourceType.TOPIC, AclOperation.DESCRIBE))
    with Admin(servers, client("admin")) as admin:
        admin.create_acls(rights)
        for name in ("alice", "bob"):
            broker.create_topic(f"{name}-orders", 1)
            with Producer(servers, client(name)) as producer:
                producer.send(f"{name}-orders", f"secret of {name}".encode()).result(60)
            admin.alter_group_offsets(f"{name}-readers", {TopicPartition(f"{name}-orders", 0): 0})


KINDS = (ResourceType.TOPIC, ResourceType.GROUP)


def right(
    user: str, owner: str, kind: ResourceType, operation: AclOperation = AclOperation.ALL
) -> AclBinding:
    """The right of a user to all that begins with the name of its owner."""
    entry = AccessControlEntry(f"User:{user}", "*", operation, AclPermissionType.ALLOW)
    return AclBinding(ResourcePattern(kind, f"{owner}-", PatternType.PREFIXED), entry)
