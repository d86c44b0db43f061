"""Pages for users without the right to describe the cluster: the rest is shown."""

from __future__ import annotations

import pytest
from visitor import Visitor, visit

from ottla import Admin
from ottla.console.pages import PAGES
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

NOT_KNOWN = {
    "/brokers": "Which partitions move is not known: ",
    "/broker?id=0": "Its settings are not known: ",
}


@pytest.fixture(scope="module")
def servers():
    """A broker where everybody may do everything, except on the cluster."""
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with InProcessBroker(**settings) as broker, Admin(broker.bootstrap_servers) as admin:
        broker.create_topic("orders", 1)
        entry = AccessControlEntry("User:*", "*", AclOperation.ALL, AclPermissionType.DENY)
        cluster = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)
        admin.create_acls([AclBinding(cluster, entry)])
        yield broker.bootstrap_servers


def test_parts_of_the_cluster_are_left_out(servers):
    """With a sentence, on every page that is about more than them."""

    async def walk(visitor: Visitor) -> None:
        for path, sentence in NOT_KNOWN.items():
            answer = await visitor.get(path)
            assert answer.status == 200
            assert sentence in answer.text
        for page in PAGES:
            path = page.path.replace("{topic}", "orders")
            if (page.home or page.tab) and page.is_there(visitor.app.settings):
                assert (await visitor.get(path)).status == 200, path
        assert (await visitor.get("/broker?id=0&part=replicas")).status == 200

    visit(servers, walk)
