"""A broker with an authorizer, and one without."""

from __future__ import annotations

import pytest
from broker_world import BrokerWorld

from ottla.errors import ErrorCode
from ottla.protocol.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.transactions import WriteTxnMarkersRequest
from ottla.security.principal import KafkaPrincipal

AUTHORIZER = {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}
IN_CLUSTER = {"zookeeper_connect": "here:2181", "broker_id": 0}
TWO_LISTENERS = {
    "listeners": "PLAINTEXT://:9092,B://:9093",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
    "inter_broker_listener_name": "B",
}
EVE, ROOT = KafkaPrincipal.user("eve"), KafkaPrincipal.user("root")


@pytest.mark.parametrize(
    ("settings", "is_served"),
    [
        ({}, False),
        ({**AUTHORIZER, "super_users": "User:root"}, True),
        ({**AUTHORIZER, "super_users": "User:root", "authorizer_mode": "log"}, False),
    ],
)
def test_administrators_end_transactions_elsewhere_only_where_rights_are_asked_for(
    settings, is_served
):
    """Otherwise anybody could (KIP-664)."""
    world = BrokerWorld(
        **TWO_LISTENERS,
        **IN_CLUSTER,
        **settings,
    ).start()
    answer = world.ask(WriteTxnMarkersRequest(), 1, principal=ROOT)

    assert (not isinstance(answer, str)) is is_served


@pytest.mark.parametrize(("settings", "error"), [({}, 0), (AUTHORIZER, "denied")])
def test_rights_are_asked_for_where_there_is_an_authorizer(settings, error):
    """Nobody has any before they are given."""
    world = BrokerWorld(auto_create_topics_enable="false", **settings).start()
    world.create("t")
    body = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    (topic,) = world.ask(body, 9, principal=EVE).topics

    assert topic.error_code == (ErrorCode.TOPIC_AUTHORIZATION_FAILED if error else 0)
